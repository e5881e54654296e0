"""Whether the job has ended in this pass, how, and in which words.

In order: the JobSet's own verdict (what it completed, it completed, whatever the clock says), a runtime of
an unsupported kind, a user's request to stop, the deadline. The first that holds is final.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from trainwright.api.constants import JOB_SET, STOP_ANNOTATION
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Condition
from trainwright.api.trainjob import Cause
from trainwright.control.cause import (
    build_cause,
    build_evidence_cause,
    build_own_cause,
    find_strongest,
    settle,
)
from trainwright.control.deadlines import get_deadline
from trainwright.control.evidence import LAST_LINES, Force
from trainwright.control.lifecycle import find_unsupported_kind
from trainwright.control.problem import Problem
from trainwright.control.view import COMPLETE, FAILED, View

DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
STOPPED: Final = "Stopped"
RUNTIME_NOT_SUPPORTED: Final = "TrainingRuntimeNotSupported"

# Failures that we decided: the JobSet of such a job does not end by itself and is deleted while it exists.
DECIDED_BY_US: Final = frozenset({DEADLINE_EXCEEDED, STOPPED, RUNTIME_NOT_SUPPORTED})

# A JobSet that failed because of its pods, of which none is left.
PODS_GONE: Final = "PodsGone"
_FAILED_PODS: Final = frozenset({"FailedJobs", "ReachedMaxRestarts", "FailJobSetFailurePolicyAction"})

# What a cause of an unfinished job may stand in to explain its failure once the pods are gone.
_LAYERS_OF_CHILDREN: Final = frozenset({"JobSet", "Job", "Pod", "Container", "Node"})


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the job ended: the condition to set, and the cause to leave behind for a failure."""

    type: str
    reason: str
    message: str
    at: datetime
    cause: Cause | None = None


def find_ending(view: View, start_time: datetime | None, now: datetime) -> Ending | None:
    """Return how the job, which had not ended before this pass, has ended; None where it goes on.

    `start_time` is since when the job runs, None for one that is suspended: it has no deadline.
    """
    return (
        _find_job_set_ending(view, now)
        or _find_unsupported(view, now)
        or _find_stop(view, now)
        or _find_passed_deadline(view, start_time, now)
    )


def _find_job_set_ending(view: View, now: datetime) -> Ending | None:
    for job_set in (view.job_set, view.deleted_job_set):
        if job_set is None:
            continue
        if completed := find_true_condition(job_set, "Completed"):
            return Ending(
                type=COMPLETE,
                reason=completed.reason,
                message=completed.message,
                at=completed.last_transition_time,
            )
        if failed := find_true_condition(job_set, "Failed"):
            return _build_failure(view, job_set, failed, now)
    return None


def find_true_condition(job_set: JobSet, type_: str) -> Condition | None:
    """Return the JobSet's condition of this type if it is True."""
    conditions = (job_set.status.conditions if job_set.status else None) or ()
    return next((c for c in conditions if c.type == type_ and c.status == "True"), None)


def _build_failure(view: View, job_set: JobSet, failed: Condition, now: datetime) -> Ending:
    """Explain a failed JobSet by what ended the first of its pods.

    Where the pods are gone (deleted, evicted, or restarted in place: the kubelet's evidence goes with the
    pod), the cause that was written down while they were there speaks.
    """
    cause = _find_failure_cause(view, now)
    restarts = job_set.status.restarts if job_set.status else 0
    told, last_lines, tail = cause.message.partition(LAST_LINES) if cause else ("", "", "")
    parts = [told] if told else []
    if restarts:
        parts.append("restarted once" if restarts == 1 else f"restarted {restarts} times")
    if failed.message not in told:
        parts.append(failed.message)
    if cause is None:
        is_untold = failed.reason in _FAILED_PODS and not view.pods and view.has_begun
        reason = PODS_GONE if is_untold else failed.reason
        message = (
            f"no pod of the failed Job is left to tell why: it was deleted or evicted ({failed.message})"
            if is_untold
            else failed.message
        )
        problem = Problem(
            reason=reason, message=message, layer=JOB_SET, kind=JOB_SET, name=job_set.metadata.name
        )
        cause = build_cause(view, problem, failed.last_transition_time)
    return Ending(
        type=FAILED,
        reason=failed.reason,
        message="; ".join(parts) + last_lines + tail,
        at=failed.last_transition_time,
        cause=cause,
    )


def _find_failure_cause(view: View, now: datetime) -> Cause | None:
    before = view.status.cause
    told = before if before is not None and before.layer in _LAYERS_OF_CHILDREN else None
    found = find_strongest(view, now)
    if found is None or (found[0].is_aftermath and told is not None):
        return told
    if found[0].is_end or found[0].force is Force.RESTARTING:
        return settle(build_evidence_cause(found, view, now), before)
    return told


def _find_unsupported(view: View, now: datetime) -> Ending | None:
    kind = find_unsupported_kind(view.spec)
    if kind is None:
        return None
    message = f"unsupported runtime: {kind}"
    return Ending(
        type=FAILED,
        reason=RUNTIME_NOT_SUPPORTED,
        message=message,
        at=now,
        cause=build_own_cause(view, RUNTIME_NOT_SUPPORTED, message, now),
    )


def _find_stop(view: View, now: datetime) -> Ending | None:
    requested = (view.job.metadata.annotations or {}).get(STOP_ANNOTATION)
    if requested is None:
        return None
    message = "TrainJob was stopped on request" + (f" of {requested}" if requested else "")
    return Ending(
        type=FAILED,
        reason=STOPPED,
        message=message,
        at=now,
        cause=build_own_cause(view, STOPPED, message, now),
    )


def _find_passed_deadline(view: View, start_time: datetime | None, now: datetime) -> Ending | None:
    deadline = get_deadline(start_time, view.spec.active_deadline_seconds)
    if deadline is None or now <= deadline:
        return None
    explained = f"the job did not end within activeDeadlineSeconds ({view.spec.active_deadline_seconds} s)"
    if before := view.status.cause:
        explained += f"; until then: {before.message}"
    return Ending(
        type=FAILED,
        reason=DEADLINE_EXCEEDED,
        message="TrainJob exceeded its active deadline",
        at=now,
        cause=build_own_cause(view, DEADLINE_EXCEEDED, explained, now),
    )
