"""Does a runtime's JobSet spec look as the code here expects it? Asked before anything reads it.

The spec stays plain JSON. What a user writes has been read strictly, and what an API server stores has
passed its schema; but render also meets objects that neither has seen, such as a snapshot that somebody
edited. Fields that we do not know pass through: they may belong to a newer JobSet.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce

import msgspec

from trainwright.api.constants import ANCESTOR_CONTAINERS
from trainwright.api.field_path import Path
from trainwright.api.jobset import JobSetSpec
from trainwright.api.meta import ApiStruct, Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.schema import compile_shape
from trainwright.api.shapes import Findings
from trainwright.api.trainjob import MAX_STEPS
from trainwright.field_errors import FieldError, Rule
from trainwright.template.replicated_jobs import find_named, get_ancestor, get_pod_spec, list_replicated_jobs


class _ClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """The part of a PersistentVolumeClaimSpec that is rewritten."""

    resources: ResourceRequirements | None = None


def find_shape_errors(spec: Json | None, path: str = "spec.template.spec") -> list[FieldError]:
    """Return what keeps a runtime's JobSet spec from being read; `path` is where it stands in its object."""
    if not spec or not spec.get("replicatedJobs"):
        detail = "a runtime needs at least one replicated job"
        return [FieldError(path=f"{path}.replicatedJobs", rule=Rule.REQUIRED, detail=detail)]
    if excess := find_excess(spec, path):
        return [excess]
    return _check(JobSetSpec, spec, path) or _find_claim_errors(spec, path)


def find_excess(spec: Json, path: str) -> FieldError | None:
    """Return one error where there are more replicated jobs than a TrainJob's status can tell of.

    Asked first: what is said about each of thousands would be read by nobody, and takes a while.
    """
    replicated_jobs = spec.get("replicatedJobs")
    if not isinstance(replicated_jobs, list) or len(replicated_jobs) <= MAX_STEPS:
        return None
    detail = (
        f"may have at most {MAX_STEPS} items, has {len(replicated_jobs)}: the status of a TrainJob has room "
        "for no more; make several Jobs of one replicated job by replicas"
    )
    return FieldError(path=f"{path}.replicatedJobs", rule=Rule.TOO_MANY, detail=detail)


def find_missing_containers(
    spec: Json | None, ancestors: Collection[str], path: str = "spec.template.spec"
) -> list[FieldError]:
    """Return an error for each step of these kinds that lacks the container which a job's settings go to."""
    errors = []
    for i, replicated_job in enumerate(list_replicated_jobs(spec)):
        ancestor = get_ancestor(replicated_job)
        if ancestor is None or ancestor not in ancestors:
            continue
        name = ANCESTOR_CONTAINERS[ancestor]
        if find_named(get_pod_spec(replicated_job).get("containers"), name) is None:
            place = f"{path}.replicatedJobs[{i}].template.spec.template.spec.containers"
            detail = f"the step {ancestor!r} must have a container {name!r}"
            errors.append(FieldError(path=place, rule=Rule.REQUIRED, detail=detail))
    return errors


def find_resource_errors(resources: Json, path: str) -> list[FieldError]:
    """Return what is wrong with the amounts and claims of core/v1 ResourceRequirements."""
    return _check(ResourceRequirements, resources, path)


def _find_claim_errors(spec: Json, path: str) -> list[FieldError]:
    """Return what is wrong with the amounts of volume claims, whose own spec the shape leaves alone."""
    return [
        error
        for i, policy in enumerate(spec.get("volumeClaimPolicies") or ())
        for j, claim in enumerate(policy["templates"])
        for error in _check(_ClaimSpec, claim["spec"], f"{path}.volumeClaimPolicies[{i}].templates[{j}].spec")
    ]


def _check(kind: type[msgspec.Struct], value: Json, path: str) -> list[FieldError]:
    # Compiled when first needed, and then shared with the reading of files: it takes longer than an import
    # may.
    findings = Findings()
    root: Path | None = reduce(Path, path.split("."), None)
    compile_shape(kind).check(value, root, findings)
    return [error for error in findings.errors if error.rule is not Rule.UNKNOWN]
