"""Why a job that is suspended for a queue waits, in the words of Kueue's Workload.

    Evicted True           it ran, and had to stop: preempted, deactivated, not ready in time, ...
    QuotaReserved False    it waits for room, or its queue is missing or stopped
    Admitted False         there is room, and an admission check has not agreed yet
    Admitted True          Kueue is about to start it; after a while, something keeps it from that

Kueue works out the pods of a job from its runtime, every time that it looks at it. Where the runtime was
deleted meanwhile it goes on giving the job quota, and can neither start it nor take the quota back. So that
is told at once. When the runtime is back the status changes, and Kueue looks again at a job that changes.

Without a Workload all that is known is the queue's name. Source: clients, section 2; cause layers, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME
from trainwright.api.kueue import QUEUE_LABEL, Workload, WorkloadCondition
from trainwright.control.problem import Problem
from trainwright.control.view import View

WAITING_FOR_QUEUE: Final = "WaitingForQueue"
RUNTIME_DELETED: Final = "RuntimeDeleted"
LAYER: Final = "Queue"

# Kueue unsuspends a job some 10 ms after it is admitted.
_START_PATIENCE: Final = timedelta(minutes=1)

# Kueue's words for what is wrong with a queue; its reason, Inadmissible, does not tell them apart.
_INADMISSIBLE: Final[Sequence[tuple[str, str]]] = (
    ("doesn't exist", "QueueNotFound"),
    ("terminating or missing", "QueueNotFound"),
    ("is inactive", "QueueInactive"),
    ("is stopped", "QueueInactive"),
)
_STOPPED_QUEUES: Final = frozenset({"ClusterQueueStopped", "LocalQueueStopped"})


def find_queue_wait(view: View, now: datetime) -> Problem | None:
    """Return why the suspended job waits for its queue; None for one that no queue holds."""
    workload = view.workload
    queue = (view.job.metadata.labels or {}).get(QUEUE_LABEL) or (
        workload.spec.queue_name if workload else ""
    )
    if not queue:
        return None
    if workload is not None:
        if view.seen.runtime is None and _find_condition(workload, "QuotaReserved", "True"):
            return _build_runtime_deleted(view, workload, queue)
        if told := _find_in_workload(workload, queue, now):
            return told
        before = view.status.cause
        if (
            before is not None
            and before.layer == LAYER
            and before.reason != RUNTIME_DELETED
            and _find_condition(workload, "QuotaReserved", "True")
        ):
            # Kueue writes to the job in this moment: a status written now would make it do so twice.
            return Problem(
                reason=before.reason,
                message=before.message,
                layer=LAYER,
                kind=before.kind,
                name=before.name,
            )
    return Problem(
        reason=WAITING_FOR_QUEUE,
        message=f"the job waits to be admitted through LocalQueue {queue!r}",
        layer=LAYER,
        kind="LocalQueue",
        name=queue,
    )


def find_next_queue_look(view: View, now: datetime) -> datetime | None:
    """Return when an admitted job should have been started; None where Kueue tells of the next change."""
    admitted = _find_condition(view.workload, "Admitted", "True") if view.workload is not None else None
    if admitted is None or admitted.last_transition_time is None:
        return None
    late = admitted.last_transition_time + _START_PATIENCE
    return late if late > now else None


def _find_in_workload(workload: Workload, queue: str, now: datetime) -> Problem | None:
    where = f"LocalQueue {queue!r}"
    if evicted := _find_condition(workload, "Evicted", "True"):
        return _build(workload, *_describe_eviction(workload, evicted, where), evicted)
    if workload.spec.active is False:
        return _build(workload, "Deactivated", f"{where}: spec.active of the Workload is false")
    if admitted := _find_condition(workload, "Admitted", "True"):
        if admitted.last_transition_time is None or now < admitted.last_transition_time + _START_PATIENCE:
            return None
        message = f"{where}: Kueue has admitted the job, and has not started it"
        return _build(workload, "NotStarted", message, admitted)
    if _find_condition(workload, "QuotaReserved", "True"):
        checks = [
            check for check in workload.status.admission_checks or () if check.state in ("Pending", "Retry")
        ]
        if not checks:
            return None
        told = "; ".join(f"{check.name}: {check.message or check.state}" for check in checks)
        return _build(workload, "WaitingForAdmissionCheck", f"{where}: admission check {told}")
    if waiting := _find_condition(workload, "QuotaReserved", "False"):
        return _build(workload, _classify_wait(waiting), f"{where}: {waiting.message.strip()}", waiting)
    return None


def _build_runtime_deleted(view: View, workload: Workload, queue: str) -> Problem:
    ref = view.spec.runtime_ref
    kind = ref.kind or CLUSTER_TRAINING_RUNTIME
    message = (
        f"LocalQueue {queue!r}: Kueue has quota for the job and cannot start it: {kind} {ref.name!r}, "
        "from which it works out the pods, was deleted"
    )
    return _build(workload, RUNTIME_DELETED, message)


def _describe_eviction(workload: Workload, evicted: WorkloadCondition, where: str) -> tuple[str, str]:
    """Return reason and words of an eviction, and what the job waits for since."""
    reason = evicted.reason
    if reason.startswith("Deactivated"):
        reason = "Deactivated"  # DeactivatedDueToRequeuingLimitExceeded, ...
    elif reason in _STOPPED_QUEUES:
        reason = "QueueInactive"
    parts = [f"{where}: {evicted.message.strip() or evicted.reason}"]
    waiting = _find_condition(workload, "QuotaReserved", "False")
    if waiting is not None and waiting.reason in ("Pending", "Inadmissible"):
        parts.append(f"since then: {waiting.message.strip()}")
    requeue = workload.status.requeue_state
    if requeue is not None and requeue.requeue_at is not None:
        parts.append(f"it is queued again at {requeue.requeue_at:%Y-%m-%dT%H:%M:%SZ}")
    return reason, "; ".join(parts)


def _classify_wait(waiting: WorkloadCondition) -> str:
    """Return a reason for a wait. By the text, where Kueue's reason stands for very different things."""
    if waiting.reason != "Inadmissible":
        return WAITING_FOR_QUEUE
    return next((reason for words, reason in _INADMISSIBLE if words in waiting.message), "Inadmissible")


def _build(
    workload: Workload, reason: str, message: str, condition: WorkloadCondition | None = None
) -> Problem:
    return Problem(
        reason=reason if reason.isalnum() else WAITING_FOR_QUEUE,
        message=message,
        layer=LAYER,
        kind="Workload",
        name=workload.metadata.name,
        at=condition.last_transition_time if condition else None,
    )


def _find_condition(workload: Workload, type_: str, status: str) -> WorkloadCondition | None:
    conditions = workload.status.conditions or ()
    return next((c for c in conditions if c.type == type_ and c.status == status), None)
