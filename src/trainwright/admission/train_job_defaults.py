"""Defaults of a TrainJob: those of the schema, times of patches, and fields that older clients drop.

Source: spec 01 sections 1.2 and 2.3; design section 4 for what survives an update by a client of older types.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from trainwright.admission.sameness import is_same
from trainwright.admission.schema_defaults import fill_schema_defaults
from trainwright.api.meta import truncate_to_seconds
from trainwright.api.trainjob import (
    Initializer,
    InitializerSource,
    PodSpecPatch,
    ReplicatedJobPatch,
    RuntimePatch,
    Trainer,
    TrainJob,
    TrainJobSpec,
)
from trainwright.template.patches import get_pod_spec_patch

BlockT = TypeVar("BlockT", Trainer, InitializerSource)


def default_train_job(job: TrainJob, old: TrainJob | None, now: datetime) -> TrainJob:
    """Return the TrainJob as it is stored. `old` is the stored one on an update, None on creation.

    A job without a spec stays as it is; nothing below an absent object is filled in.
    """
    if job.spec is None:
        return job
    filled = fill_schema_defaults(job)
    assert filled.spec is not None  # noqa: S101 (it was there)
    old_spec = old.spec if old else None
    spec = _restore_dropped(filled.spec, old_spec) if old_spec else filled.spec
    if spec.runtime_patches:
        known = {patch.manager: patch for patch in (old_spec.runtime_patches if old_spec else None) or ()}
        moment = truncate_to_seconds(now)
        patches = [_stamp(patch, known.get(patch.manager), moment) for patch in spec.runtime_patches]
        spec = msgspec.structs.replace(spec, runtime_patches=patches)
    return msgspec.structs.replace(filled, spec=spec)


def _stamp(patch: RuntimePatch, old: RuntimePatch | None, now: datetime) -> RuntimePatch:
    """Return the patch with its time: when its content last changed, as far as admission saw it."""
    if old is None:
        return msgspec.structs.replace(patch, time=patch.time or now)
    return msgspec.structs.replace(patch, time=old.time if is_same_patch(patch, old) else now)


def is_same_patch(one: RuntimePatch, other: RuntimePatch) -> bool:
    """Say whether two patches ask for the same, whenever they were written."""
    return is_same(msgspec.structs.replace(one, time=None), msgspec.structs.replace(other, time=None))


# Clients with older types rewrite whole objects, and drop what they do not know: seen with Kueue. They drop
# lists that are empty, too, although `command: []` means something (no command, whatever the runtime says).


def _restore_dropped(spec: TrainJobSpec, old: TrainJobSpec) -> TrainJobSpec:
    """Return the spec with fields newer than old clients put back where an update lacks them."""
    return msgspec.structs.replace(
        spec,
        ttl_seconds_after_finished=_first(spec.ttl_seconds_after_finished, old.ttl_seconds_after_finished),
        active_deadline_seconds=_first(spec.active_deadline_seconds, old.active_deadline_seconds),
        runtime_patches=_restore_in_patches(spec.runtime_patches, old.runtime_patches or ()),
        trainer=_restore_empty(spec.trainer, old.trainer),
        initializer=_restore_in_initializer(spec.initializer, old.initializer),
    )


def _restore_in_initializer(new: Initializer | None, old: Initializer | None) -> Initializer | None:
    if new is None or old is None:
        return new
    return msgspec.structs.replace(
        new, dataset=_restore_empty(new.dataset, old.dataset), model=_restore_empty(new.model, old.model)
    )


def _restore_empty(new: BlockT | None, old: BlockT | None) -> BlockT | None:
    """Put lists that were empty back where they are absent now."""
    if new is None or old is None:
        return new
    emptied: dict[str, list[Any]] = {
        name: [] for name in new.__struct_fields__ if getattr(new, name) is None and getattr(old, name) == []
    }
    return msgspec.structs.replace(new, **emptied) if emptied else new


def _first(value: int | None, otherwise: int | None) -> int | None:
    return otherwise if value is None else value


def _restore_in_patches(
    patches: list[RuntimePatch] | None, old: Sequence[RuntimePatch]
) -> list[RuntimePatch] | None:
    """Put `terminationGracePeriodSeconds` back into patches of one manager for the same replicated job."""
    graces = {
        (patch.manager, job_patch.name): pod.termination_grace_period_seconds
        for patch in old
        for job_patch in list_replicated_job_patches(patch)
        if (pod := get_pod_spec_patch(job_patch)) and pod.termination_grace_period_seconds is not None
    }
    if patches is None or not graces:
        return patches
    return [_restore_grace(patch, graces) for patch in patches]


def _restore_grace(patch: RuntimePatch, graces: dict[tuple[str, str], int]) -> RuntimePatch:
    job_patches = [
        _with_grace(job_patch, graces.get((patch.manager, job_patch.name)))
        for job_patch in list_replicated_job_patches(patch)
    ]
    template = patch.training_runtime_spec and patch.training_runtime_spec.template
    if not job_patches or not template or not template.spec or not patch.training_runtime_spec:
        return patch
    replace = msgspec.structs.replace
    spec = replace(template.spec, replicated_jobs=job_patches)
    runtime_spec = replace(patch.training_runtime_spec, template=replace(template, spec=spec))
    return replace(patch, training_runtime_spec=runtime_spec)


def _with_grace(job_patch: ReplicatedJobPatch, seconds: int | None) -> ReplicatedJobPatch:
    pod = get_pod_spec_patch(job_patch)
    if seconds is None or pod is None or pod.termination_grace_period_seconds is not None:
        return job_patch
    template = job_patch.template
    if template is None or template.spec is None or template.spec.template is None:
        return job_patch
    replace = msgspec.structs.replace
    new_pod: PodSpecPatch = replace(pod, termination_grace_period_seconds=seconds)
    pod_template = replace(template.spec.template, spec=new_pod)
    job_spec = replace(template.spec, template=pod_template)
    return replace(job_patch, template=replace(template, spec=job_spec))


def list_replicated_job_patches(patch: RuntimePatch) -> list[ReplicatedJobPatch]:
    """Return the patches of replicated jobs that one manager makes."""
    template = patch.training_runtime_spec and patch.training_runtime_spec.template
    return (template.spec.replicated_jobs if template and template.spec else None) or []
