"""Rules about the runtime patches of a TrainJob (spec 01 section 2.4, rules P1 to P4).

Targets are looked up in the template as the runtime has it, before any patch is merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainwright.admission.job_set_rules import get_claim_name
from trainwright.admission.train_job_defaults import is_same_patch, list_replicated_job_patches
from trainwright.admission.verdict import refuse
from trainwright.api.constants import ANCESTOR_CONTAINERS, ANCESTOR_LABEL
from trainwright.api.names import explain_domain_path
from trainwright.api.runtime import JobSetTemplate
from trainwright.api.trainjob import ContainerPatch, RuntimePatch
from trainwright.field_errors import FieldError, Rule
from trainwright.template.layout import JobLayout
from trainwright.template.patches import find_unknown_targets, get_pod_spec_patch

_RESERVED_CONTAINERS = frozenset(ANCESTOR_CONTAINERS.values())


def find_patch_errors(patches: Sequence[RuntimePatch], old: Sequence[RuntimePatch] = ()) -> list[FieldError]:
    """Return what is wrong with patches, whatever the runtime; nothing about one that is stored like that.

    A job that another version let in has to stay one that can be suspended and resumed.
    """
    errors = []
    stored = {patch.manager: patch for patch in old}
    for i, patch in enumerate(patches):
        if (before := stored.get(patch.manager)) is not None and is_same_patch(patch, before):
            continue
        place = f"spec.runtimePatches[{i}]"
        if patch.manager and (problem := explain_domain_path(patch.manager)):
            errors.append(refuse(f"{place}.manager", Rule.INVALID, problem, patch.manager))
        for path, container in _list_container_patches(i, patch):
            if container.env and container.name in _RESERVED_CONTAINERS:
                detail = (
                    f"a patch may not set variables of {container.name}; set spec.trainer.env or "
                    "spec.initializer instead"
                )
                errors.append(refuse(f"{path}.env", Rule.INVALID, detail))
        for j, job_patch in enumerate(list_replicated_job_patches(patch)):
            metadata = job_patch.template.metadata if job_patch.template else None
            if ANCESTOR_LABEL in ((metadata.labels if metadata else None) or {}):
                path = (
                    f"{place}.trainingRuntimeSpec.template.spec.replicatedJobs[{j}]"
                    f".template.metadata.labels[{ANCESTOR_LABEL}]"
                )
                detail = "says in the runtime which step this is, and may not be patched; remove it"
                errors.append(refuse(path, Rule.FORBIDDEN, detail))
    return errors


def find_target_errors(template: JobSetTemplate, patches: Sequence[RuntimePatch]) -> list[FieldError]:
    """Return an error for each replicated job and container that the runtime does not have."""
    return [target.build_field_error() for target in find_unknown_targets(template, patches)]


def list_mount_warnings(layout: JobLayout, patches: Sequence[RuntimePatch]) -> list[str]:
    """Return where a patch mounts a volume that the pod does not have, so that no pod can be made."""
    claims = {
        get_claim_name(template)
        for policy in (layout.template.spec or {}).get("volumeClaimPolicies") or ()
        for template in policy.get("templates") or ()
    }
    warnings = []
    for i, patch in enumerate(patches):
        for j, job_patch in enumerate(list_replicated_job_patches(patch)):
            pod_set = layout.find_pod_set(job_patch.name)
            pod_spec = pod_set.pod_spec if pod_set else {}
            volumes = claims | {volume["name"] for volume in pod_spec.get("volumes") or ()}
            for path, container in _list_container_patches(i, patch, j):
                warnings += [
                    f"{path}.volumeMounts[{k}].name: {job_patch.name} has no volume {mount['name']!r}"
                    for k, mount in enumerate(container.volume_mounts or ())
                    if mount.get("name") not in volumes
                ]
    return warnings


def _list_container_patches(
    i: int, patch: RuntimePatch, only: int | None = None
) -> Iterator[tuple[str, ContainerPatch]]:
    """Yield the path and the patch of each regular container."""
    for j, job_patch in enumerate(list_replicated_job_patches(patch)):
        pod = get_pod_spec_patch(job_patch)
        if only not in (None, j) or pod is None:
            continue
        for k, container in enumerate(pod.containers or ()):
            yield (
                f"spec.runtimePatches[{i}].trainingRuntimeSpec.template.spec.replicatedJobs[{j}]"
                f".template.spec.template.spec.containers[{k}]",
                container,
            )
