"""The events that a change of status is worth: values, emitted once per change.

An event costs the API server as much as the status write beside it, so a job that starts, waits in a queue
and completes emits none: its conditions and counters say the same. Events tell what ends, what is stuck, and
what happens to running pods. They are core/v1 events about the TrainJob, the only kind that the public SDK
shows (clients, section 1.2).
"""

from __future__ import annotations

from typing import Final

from trainwright.api.constants import TRAIN_JOB
from trainwright.api.trainjob import TrainJobStatus
from trainwright.control.actions import Emit
from trainwright.control.ending import Ending
from trainwright.control.problem import RESOURCES_CREATED
from trainwright.control.status import SUSPENDED, get_condition
from trainwright.control.view import FAILED, View

# The peer's name for it.
CREATION_FAILED: Final = "TrainJobResourcesCreationFailed"

_MAX_MESSAGE: Final = 950  # an event's message may have 1,024 characters


def build_ending_events(view: View, ending: Ending) -> tuple[Emit, ...]:
    """Return the event of a job that has just failed."""
    if ending.type != FAILED:
        return ()
    return (_emit(view, "Warning", ending.reason, ending.message),)


def build_change_events(view: View, after: TrainJobStatus) -> tuple[Emit, ...]:
    """Return the events of a job that goes on, for the change from its status to the next."""
    before = view.status
    events: list[Emit] = []
    refused_before, refused = (
        get_condition(before, RESOURCES_CREATED),
        get_condition(after, RESOURCES_CREATED),
    )
    if refused is not None and refused != refused_before:
        message = f"TrainJob resources reconciliation failed: {refused.message}"
        events.append(_emit(view, "Warning", CREATION_FAILED, message))
    elif _is_new_trouble(before, after) and after.cause is not None:
        events.append(_emit(view, "Warning", after.cause.reason, after.cause.message))
    was_suspended = get_condition(before, SUSPENDED) is not None
    is_suspended = get_condition(after, SUSPENDED) is not None
    if view.job_set is not None and was_suspended != is_suspended:
        reason, word = ("Suspended", "suspended") if is_suspended else ("Resumed", "resumed")
        events.append(_emit(view, "Normal", reason, f"TrainJob is {word}"))
    return tuple(events)


def _is_new_trouble(before: TrainJobStatus, after: TrainJobStatus) -> bool:
    """Say whether the children came into a trouble that was not told yet."""
    if after.cause is None or after.cause.layer not in (
        "JobSet",
        "Job",
        "PodGroup",
        "Pod",
        "Container",
        "Node",
    ):
        return False
    if after.cause.reason.startswith("WaitingFor"):
        return False
    told = before.cause
    return told is None or (told.layer, told.reason) != (after.cause.layer, after.cause.reason)


def _emit(view: View, type_: str, reason: str, message: str) -> Emit:
    cut = message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + " ..."
    return Emit(about=view.job.metadata, kind=TRAIN_JOB, type=type_, reason=reason, message=cut)
