"""Laying a TrainJob's `runtimePatches` over a runtime's template (spec 01 section 5.3, spec 02 section 2.3).

Patches are applied in list order, so that the later manager wins field by field. A patch changes what is
there; it never adds a replicated job or a container, because neither can be complete in a patch. Names that
do not exist in the runtime are reported by `find_unknown_targets`, which admission and render both refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from trainwright.api.encoding import build_json
from trainwright.api.kueue import PATCH_MANAGER
from trainwright.api.meta import Json
from trainwright.api.runtime import JobSetTemplate
from trainwright.api.trainjob import ContainerPatch, PodSpecPatch, ReplicatedJobPatch, RuntimePatch
from trainwright.field_errors import FieldError, Rule
from trainwright.template.merge import KeyedList, KeyedLists, merge
from trainwright.template.replicated_jobs import (
    POD_SPEC_PATH,
    find_named,
    get_pod_spec,
    list_replicated_jobs,
)

_WHOLE_BY_NAME: Final = KeyedList(key="name", replaces=True)
_EXISTING_BY_NAME: Final = KeyedList(key="name", adds=False)

# A volume or variable of the same name is replaced whole: merging its fields would leave two volume
# sources, or both `value` and `valueFrom`, which the API server refuses once the Jobs are made. Lists that
# are not named here (tolerations, those inside affinity and security contexts) are replaced.
PATCHABLE_LISTS: Final[KeyedLists] = {
    "replicatedJobs": _EXISTING_BY_NAME,
    f"{POD_SPEC_PATH}.volumes": _WHOLE_BY_NAME,
    f"{POD_SPEC_PATH}.imagePullSecrets": _WHOLE_BY_NAME,
    f"{POD_SPEC_PATH}.schedulingGates": _WHOLE_BY_NAME,
    **{
        f"{POD_SPEC_PATH}.{containers}{below}": rule
        for containers in ("containers", "initContainers")
        for below, rule in (
            ("", _EXISTING_BY_NAME),
            (".env", _WHOLE_BY_NAME),
            (".volumeMounts", KeyedList(key="mountPath")),
        )
    },
}

# Kueue's entry says what the machines of a flavor ask of a pod, on top of what made Kueue choose the flavor:
# that the pod tolerates its taints already. Without those no machine of the flavor would take it.
_QUEUE_LISTS: Final[KeyedLists] = {**PATCHABLE_LISTS, f"{POD_SPEC_PATH}.tolerations": KeyedList(key=None)}


def apply_patches(template: JobSetTemplate, patches: Sequence[RuntimePatch]) -> JobSetTemplate:
    """Return the template with all patches laid over it, in order.

    Only labels and annotations of `metadata` count. Targets that do not exist are left out.
    """
    metadata: Json = build_json(template.metadata) if template.metadata else {}
    spec: Json = template.spec or {}
    for patch in patches:
        change = patch.training_runtime_spec and patch.training_runtime_spec.template
        if not change:
            continue
        if change.metadata:
            metadata = merge(metadata, build_json(change.metadata), {})
        if change.spec:
            lists = _QUEUE_LISTS if patch.manager == PATCH_MANAGER else PATCHABLE_LISTS
            spec = merge(spec, build_json(change.spec), lists)
    return msgspec.convert({"metadata": metadata or None, "spec": spec or None}, JobSetTemplate)


class UnknownTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A name in a patch that the runtime does not have.

    `path` is that of the name, from the TrainJob down; `target` is "replicated job", "container" or "init
    container"; `replicated_job` is set for the last two; `known` lists the names there are.
    """

    path: str
    target: str
    name: str
    known: tuple[str, ...]
    replicated_job: str | None = None

    def build_field_error(self) -> FieldError:
        """Return what to tell the user."""
        where = (
            f"replicated job {self.replicated_job!r} of the runtime" if self.replicated_job else "the runtime"
        )
        remedy = (
            f"use one of {', '.join(map(repr, self.known))}" if self.known else "remove it from the patch"
        )
        detail = f"{where} has no {self.target} {self.name!r}; {remedy}"
        return FieldError(path=self.path, rule=Rule.NOT_FOUND, detail=detail, value=self.name)


def find_unknown_targets(template: JobSetTemplate, patches: Sequence[RuntimePatch]) -> list[UnknownTarget]:
    """Return every replicated job and container that a patch names and the unpatched template does not have.

    Containers are looked up among the containers and init containers among the init containers: a patch of
    one kind cannot reach the other.
    """
    found: list[UnknownTarget] = []
    replicated_jobs = list_replicated_jobs(template.spec)
    for i, patch in enumerate(patches):
        change = patch.training_runtime_spec and patch.training_runtime_spec.template
        if not change or not change.spec:
            continue
        for j, job_patch in enumerate(change.spec.replicated_jobs or ()):
            path = f"spec.runtimePatches[{i}].trainingRuntimeSpec.template.spec.replicatedJobs[{j}]"
            replicated_job = find_named(replicated_jobs, job_patch.name)
            if replicated_job is None:
                found.append(_unknown(f"{path}.name", "replicated job", job_patch.name, replicated_jobs))
            else:
                found += _find_unknown_containers(path, job_patch, get_pod_spec(replicated_job))
    return found


def _find_unknown_containers(path: str, job_patch: ReplicatedJobPatch, pod_spec: Json) -> list[UnknownTarget]:
    pod_patch = get_pod_spec_patch(job_patch)
    if pod_patch is None:
        return []
    checks: tuple[tuple[str, str, list[ContainerPatch] | None], ...] = (
        ("initContainers", "init container", pod_patch.init_containers),
        ("containers", "container", pod_patch.containers),
    )
    return [
        _unknown(
            f"{path}.template.spec.template.spec.{field}[{k}].name",
            target,
            container.name,
            pod_spec.get(field),
            job_patch.name,
        )
        for field, target, containers in checks
        for k, container in enumerate(containers or ())
        if find_named(pod_spec.get(field), container.name) is None
    ]


def get_pod_spec_patch(job_patch: ReplicatedJobPatch) -> PodSpecPatch | None:
    """Return what the patch sets in the pod spec of its replicated job."""
    job_spec = job_patch.template and job_patch.template.spec
    return (job_spec and job_spec.template and job_spec.template.spec) or None


def _unknown(
    path: str, target: str, name: str, elements: list[Any] | None, replicated_job: str | None = None
) -> UnknownTarget:
    known = tuple(element["name"] for element in elements or ())
    return UnknownTarget(path=path, target=target, name=name, known=known, replicated_job=replicated_job)
