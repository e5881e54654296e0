"""The gang schedulers there are, and what a runtime's `podGroupPolicy` makes of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from trainwright.api.constants import JOB_SET
from trainwright.api.meta import Json
from trainwright.api.names import explain_label_value, explain_subdomain
from trainwright.api.runtime import JobSetMetadata, PodGroupPolicy
from trainwright.api.trainjob import RuntimePatch
from trainwright.field_errors import FieldError, Rule
from trainwright.gang.contract import Gang, GangScheduler, Membership
from trainwright.gang.coscheduling import Coscheduling
from trainwright.gang.kai import Kai
from trainwright.gang.members import find_members
from trainwright.gang.native import Native
from trainwright.gang.slurm_bridge import pick_annotations
from trainwright.gang.volcano import QUEUE_ANNOTATION, Volcano
from trainwright.template.replicated_jobs import get_pod_spec, list_replicated_jobs

GANG_SCHEDULERS: Final[tuple[GangScheduler, ...]] = (Coscheduling(), Volcano(), Kai(), Native())


def select_gang_schedulers(policy: PodGroupPolicy | None) -> list[GangScheduler]:
    """Return the gang schedulers that the policy chooses: one at most, where admission has seen it."""
    if policy is None:
        return []
    return [scheduler for scheduler in GANG_SCHEDULERS if getattr(policy, scheduler.name) is not None]


def build_membership(
    policy: PodGroupPolicy | None,
    job_name: str,
    metadata: Json,
    spec: Json,
    trainer: str | None,
    enough: int | None = None,
) -> Membership | None:
    """Return how the job's gang is told to its scheduler; None where there is no policy, or no pod.

    `metadata` and `spec` are those of the JobSet as it is about to be applied, with everything in it that
    asks for resources. `enough` is the number of the trainer's pods with which training may begin.
    """
    chosen = select_gang_schedulers(policy)
    members = find_members(spec, trainer, enough)
    if policy is None or not chosen or not members.count:
        return None
    gang = Gang(
        job_name=job_name,
        annotations=metadata.get("annotations") or {},
        members=members,
        trainer=trainer,
        has_stages=len(members.first) < len(list_replicated_jobs(spec)),
    )
    membership = chosen[0].build_membership(policy, gang)
    passed_on = pick_annotations(gang.annotations)
    if not passed_on:
        return membership
    objects = tuple(
        {**obj, "metadata": {**obj["metadata"], "annotations": passed_on}} for obj in membership.objects
    )
    return msgspec.structs.replace(membership, objects=objects)


def find_gang_errors(
    policy: PodGroupPolicy | None, metadata: JobSetMetadata | None, patches: Sequence[RuntimePatch]
) -> list[FieldError]:
    """Return what keeps a gang from being told to its scheduler, by path in the TrainJob.

    `metadata` is the JobSet's, with the job's patches in it.
    """
    chosen = select_gang_schedulers(policy)
    errors = []
    if len(chosen) > 1:
        names = [scheduler.name for scheduler in chosen]
        detail = (
            f"the runtime's spec.podGroupPolicy has {' and '.join(names)}, and a pod has one scheduler; "
            "leave one of them in it"
        )
        errors.append(FieldError(path="spec.runtimeRef", rule=Rule.INVALID, detail=detail, value=names))
    queue = ((metadata.annotations if metadata else None) or {}).get(QUEUE_ANNOTATION)
    if any(scheduler.name == Volcano.name for scheduler in chosen) and queue is not None:
        errors += _check_queue(queue, patches)
    if policy and policy.kai and policy.kai.queue and (problem := explain_label_value(policy.kai.queue)):
        detail = f"the runtime's spec.podGroupPolicy.kai.queue cannot be the label that it becomes: {problem}"
        errors.append(
            FieldError(path="spec.runtimeRef", rule=Rule.INVALID, detail=detail, value=policy.kai.queue)
        )
    return errors


def list_gang_warnings(policy: PodGroupPolicy | None, spec: Json, trainer: str | None) -> list[str]:
    """Return what keeps a gang from being complete although it can be rendered.

    `spec` is the JobSet's, with pods counted.
    """
    chosen = select_gang_schedulers(policy)
    if len(chosen) != 1:
        return []
    names = find_members(spec, trainer).names
    used = sorted(
        {
            get_pod_spec(replicated_job).get("schedulerName")
            or chosen[0].scheduler_name
            or "default-scheduler"
            for replicated_job in list_replicated_jobs(spec)
            if replicated_job["name"] in names
        }
    )
    if len(used) < 2:
        return []
    return [
        f"pods of the gang have different schedulers ({', '.join(used)}), none of which sees all of it, so "
        f"it is never complete; give every replicated job of the {JOB_SET} the same schedulerName"
    ]


def list_queue_warnings(policy: PodGroupPolicy | None, metadata: JobSetMetadata | None) -> list[str]:
    """Return what jobs of a runtime would have to put right; `metadata` is that of its JobSet template."""
    annotations = (metadata.annotations if metadata else None) or {}
    if policy is None or policy.volcano is None or annotations.get(QUEUE_ANNOTATION) != "":
        return []
    return [
        f"spec.template.metadata.annotations[{QUEUE_ANNOTATION}]: names no queue of Volcano, so every "
        "TrainJob has to name one by a runtime patch"
    ]


def _check_queue(queue: str, patches: Sequence[RuntimePatch]) -> list[FieldError]:
    """Return an error, at the last patch that sets the annotation, else at the reference to the runtime."""
    problem = explain_subdomain(queue)
    if problem is None:
        return []
    place = f"template.metadata.annotations[{QUEUE_ANNOTATION}]"
    why = f" ({problem})" if queue else ""
    detail = f"names no queue of Volcano{why}: name one, or leave the annotation out for the default queue"
    for i, patch in reversed(list(enumerate(patches))):
        template = patch.training_runtime_spec.template if patch.training_runtime_spec else None
        annotations = (template.metadata.annotations if template and template.metadata else None) or {}
        if QUEUE_ANNOTATION in annotations:
            path = f"spec.runtimePatches[{i}].trainingRuntimeSpec.{place}"
            return [FieldError(path=path, rule=Rule.INVALID, detail=detail, value=queue)]
    detail = f"the runtime's spec.{place} {detail}"
    return [FieldError(path="spec.runtimeRef", rule=Rule.INVALID, detail=detail, value=queue)]
