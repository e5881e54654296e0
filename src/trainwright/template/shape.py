"""Does a runtime's JobSet spec look as the code here expects it? Asked before anything reads it.

The spec stays plain JSON. What a user writes has been read strictly, and what an API server stores has
passed its schema; but render also meets objects that neither has seen, such as a snapshot that somebody
edited. Fields that we do not know pass through: they may belong to a newer JobSet.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from trainwright.api.field_path import Path
from trainwright.api.jobset import JobSetSpec
from trainwright.api.meta import ApiStruct, Json
from trainwright.api.pod import ContainerResources
from trainwright.api.schema import ObjectShape, compile_shape
from trainwright.api.shapes import Findings
from trainwright.field_errors import FieldError, Rule


class _ClaimSpec(ApiStruct, frozen=True, kw_only=True):
    """The part of a PersistentVolumeClaimSpec that is rewritten."""

    resources: ContainerResources | None = None


_JOB_SET_SPEC: Final = compile_shape(JobSetSpec, is_open=True)
_CLAIM_SPEC: Final = compile_shape(_ClaimSpec, is_open=True)
_RESOURCES: Final = compile_shape(ContainerResources, is_open=True)


def find_shape_errors(spec: Json | None, path: str = "spec.template.spec") -> list[FieldError]:
    """Return what keeps a runtime's JobSet spec from being read; `path` is where it stands in its object."""
    if not spec or not spec.get("replicatedJobs"):
        detail = "a runtime needs at least one replicated job"
        return [FieldError(path=f"{path}.replicatedJobs", rule=Rule.REQUIRED, detail=detail)]
    return _check(_JOB_SET_SPEC, spec, path) or _find_claim_errors(spec, path)


def find_resource_errors(resources: Json, path: str) -> list[FieldError]:
    """Return what is wrong with the amounts and claims of core/v1 ResourceRequirements."""
    return _check(_RESOURCES, resources, path)


def _find_claim_errors(spec: Json, path: str) -> list[FieldError]:
    """Return what is wrong with the amounts of volume claims, whose own spec the shape leaves alone."""
    return [
        error
        for i, policy in enumerate(spec.get("volumeClaimPolicies") or ())
        for j, claim in enumerate(policy["templates"])
        for error in _check(
            _CLAIM_SPEC, claim["spec"], f"{path}.volumeClaimPolicies[{i}].templates[{j}].spec"
        )
    ]


def _check(shape: ObjectShape, value: Json, path: str) -> list[FieldError]:
    findings = Findings()
    root: Path | None = reduce(Path, path.split("."), None)
    shape.check(value, root, findings)
    return findings.errors
