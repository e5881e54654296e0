"""What may change in a TrainJob once it is there (spec 01 section 1.7, rules U1 and U2 of 2.4).

`suspend`, the TTL and metadata may always change. Patches, the number of nodes and what each node gets may
change while the job is suspended and none of its pods run. Nothing else may.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from trainwright.admission.sameness import is_same
from trainwright.admission.train_job_defaults import list_replicated_job_patches
from trainwright.admission.verdict import refuse
from trainwright.api.jobset import JobSet
from trainwright.api.kueue import PATCH_MANAGER, QUEUE_LABEL
from trainwright.api.trainjob import PodSpecPatch, RuntimePatch, Trainer, TrainJob, TrainJobSpec
from trainwright.field_errors import FieldError, Rule
from trainwright.template.patches import get_pod_spec_patch

# Of `trainer`, what may change while the job is suspended: its size.
_SCALABLE: Final = ("num_nodes", "resources_per_node", "num_proc_per_node")
# Of a pod patch, what may not change while the same manager patches the same replicated job (spec 01, 1.3).
_IMMUTABLE_OF_PODS: Final = {
    field.name: field.encode_name
    for field in msgspec.structs.fields(PodSpecPatch)
    if field.name not in {"node_selector", "affinity", "tolerations", "scheduling_gates"}
}


def find_immutable_changes(new: TrainJobSpec, old: TrainJobSpec) -> list[FieldError]:
    """Return an error for each change that is never allowed; an API server answers these with 422."""
    errors = []
    for field, path in (
        ("runtime_ref", "spec.runtimeRef"),
        ("managed_by", "spec.managedBy"),
        ("active_deadline_seconds", "spec.activeDeadlineSeconds"),
    ):
        if getattr(new, field) != getattr(old, field):
            errors.append(_immutable(path, getattr(new, field)))
    if not is_same(new.initializer, old.initializer):
        errors.append(_immutable("spec.initializer", new.initializer))
    errors += _find_immutable_trainer_changes(new.trainer or Trainer(), old.trainer or Trainer())
    errors += _find_immutable_patch_changes(new, old)
    return errors


def find_untimely_changes(new: TrainJob, old: TrainJob, job_set: JobSet | None) -> list[FieldError]:
    """Return an error for each change that is not allowed at this moment.

    `job_set` is the job's JobSet as it is, None where there is none.
    """
    if new.spec is None or old.spec is None:
        return []
    changed = [
        f"spec.trainer.{_WIRE_NAMES[field]}"
        for field in _SCALABLE
        if not is_same(_get(new.spec.trainer, field), _get(old.spec.trainer, field))
    ]
    if not is_same(new.spec.runtime_patches, old.spec.runtime_patches):
        changed.append("spec.runtimePatches")
    errors = list(_check_queue_patch(new, old))
    if not new.spec.suspend and not old.spec.suspend:
        detail = (
            "may change only while the job is suspended before or after the update; set spec.suspend first"
        )
        return errors + [refuse(path, Rule.FORBIDDEN, detail) for path in changed]
    return errors + [
        refuse(
            path, Rule.FORBIDDEN, f"may not change while pods of {name} still run; wait until they are gone"
        )
        for path in changed
        for name in _list_active(job_set)
    ]


def has_relevant_change(new: TrainJobSpec, old: TrainJobSpec) -> bool:
    """Say whether an update changes anything that the runtime has a say in."""
    return any(
        not is_same(getattr(new, field), getattr(old, field))
        for field in ("runtime_ref", "initializer", "trainer", "runtime_patches")
    )


def _find_immutable_trainer_changes(new: Trainer, old: Trainer) -> Iterator[FieldError]:
    """Yield an error for each field that says what runs; no block is the same as an empty one.

    No command at all, `[]`, is not the same as none that is given: the runtime's.
    """
    for field, wire_name in _WIRE_NAMES.items():
        before, after = getattr(old, field), getattr(new, field)
        is_kept = is_same(before, after) if field == "env" else before == after
        if field not in _SCALABLE and not is_kept:
            yield _immutable(
                f"spec.trainer.{wire_name}", after, "; only the trainer's size may, while suspended"
            )


def _get(trainer: Trainer | None, field: str) -> Any:
    return getattr(trainer, field) if trainer else None


_WIRE_NAMES: Final = {field.name: field.encode_name for field in msgspec.structs.fields(Trainer)}


def _list_active(job_set: JobSet | None) -> list[str]:
    """Return the replicated jobs with pods that run, or still end."""
    status = job_set.status if job_set else None
    counters = (status.replicated_jobs_status if status else None) or ()
    return [counter.name for counter in counters if counter.active > 0]


def _find_immutable_patch_changes(new: TrainJobSpec, old: TrainJobSpec) -> Iterator[FieldError]:
    old_pods = {
        (patch.manager, job_patch.name): get_pod_spec_patch(job_patch)
        for patch in old.runtime_patches or ()
        for job_patch in list_replicated_job_patches(patch)
    }
    for i, patch in enumerate(new.runtime_patches or ()):
        for j, job_patch in enumerate(list_replicated_job_patches(patch)):
            pod, old_pod = get_pod_spec_patch(job_patch), old_pods.get((patch.manager, job_patch.name))
            if pod is None or old_pod is None:
                continue
            for field, wire_name in _IMMUTABLE_OF_PODS.items():
                before, after = getattr(old_pod, field), getattr(pod, field)
                if before is not None and after is not None and not is_same(before, after):
                    path = (
                        f"spec.runtimePatches[{i}].trainingRuntimeSpec.template.spec.replicatedJobs[{j}]"
                        f".template.spec.template.spec.{wire_name}"
                    )
                    yield _immutable(path, None)


def _check_queue_patch(new: TrainJob, old: TrainJob) -> Iterator[FieldError]:
    """Keep Kueue's patch in a queued job: without it the job would hold quota and never start."""
    if QUEUE_LABEL not in (new.metadata.labels or {}):
        return

    def has_entry(patches: list[RuntimePatch] | None) -> bool:
        return any(patch.manager == PATCH_MANAGER for patch in patches or ())

    assert new.spec is not None  # noqa: S101 (narrows the type)
    assert old.spec is not None  # noqa: S101
    if has_entry(old.spec.runtime_patches) and not has_entry(new.spec.runtime_patches):
        detail = f"the entry of {PATCH_MANAGER} starts a queued job; leave it in the list"
        yield refuse("spec.runtimePatches", Rule.FORBIDDEN, detail)


def _immutable(path: str, value: Any, more: str = "") -> FieldError:
    value = msgspec.to_builtins(value) if isinstance(value, msgspec.Struct) else value
    return refuse(path, Rule.INVALID, f"may not change{more}; make a new TrainJob for that", value)
