"""From what is seen of one TrainJob to what is to be done: the one decision of the whole system.

    seen -> view -> finished before? -> ended now? -> plan for the children -> status -> actions

A pure function: no clock, no I/O, no memory besides the status. Level-based: it looks at the world as it is,
never at what woke it, so deciding again after the actions were done gives no writes. The order of the
actions is the order in which to perform them, stopping at the first that fails.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from trainwright.api.meta import Condition
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJobStatus
from trainwright.control.actions import Action, Delete, PatchStatus, RequeueAfter
from trainwright.control.cause import find_next_look
from trainwright.control.deadlines import get_deadline, get_expiry, get_requeue_seconds
from trainwright.control.ending import DECIDED_BY_US, Ending, find_ending
from trainwright.control.gang import build_gang_deletion
from trainwright.control.lifecycle import (
    Plan,
    Render,
    build_job_set_deletion,
    build_train_job_key,
    plan_children,
)
from trainwright.control.lost_objects import add_lost_objects
from trainwright.control.problem import RESOURCES_CREATED, build_refusal_problem
from trainwright.control.seen import Seen
from trainwright.control.status import (
    build_final_status,
    build_status,
    complete_final_status,
    find_finished_condition,
    get_condition,
    get_start_time,
)
from trainwright.control.transitions import build_change_events, build_ending_events
from trainwright.control.view import FAILED, View, build_view, is_ours
from trainwright.render import render as render_train_job

# A refused write is tried again after half the time that it has been refused for, within these bounds.
MIN_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0
# What somebody else has to put right, where no watch of ours may tell (a runtime, a foreign JobSet).
PROBLEM_RETRY_SECONDS: Final = 15.0


def decide(seen: Seen, now: datetime, render: Render = render_train_job) -> list[Action]:
    """Return what to do about the TrainJob, in order; nothing for one that is another controller's.

    `now` must be an aware time. At most one RequeueAfter is among the actions, the last of them.
    """
    if not is_ours(seen.train_job):
        return []
    view = build_view(seen)
    finished = find_finished_condition(seen.train_job.status)
    if finished is not None:
        return _decide_finished(view, finished, now)
    ending = find_ending(view, get_start_time(view, now), now)
    if ending is not None:
        return _decide_ending(view, ending, now)
    plan = add_lost_objects(view, plan_children(view, render), render, now)
    return _decide_unfinished(view, plan, now)


def _decide_finished(view: View, finished: Condition, now: datetime) -> list[Action]:
    """Look after a job that had ended before: its JobSet is never made again, its status never changes.

    Source: cases B001, B002. A JobSet that we decided to end is deleted as long as it is there.
    """
    actions: list[Action] = []
    if finished.type == FAILED and finished.reason in DECIDED_BY_US and view.job_set is not None:
        actions += build_job_set_deletion(view.job_set)
    actions += build_gang_deletion(view, _get_runtime(view))
    status = complete_final_status(view.status, finished)
    if status != view.status:
        actions.append(PatchStatus(key=build_train_job_key(view.job), status=status))
    expiry = get_expiry(finished.last_transition_time, _get_ttl_seconds(view))
    if expiry is None:
        return actions
    if now >= expiry:
        actions.append(Delete(key=build_train_job_key(view.job), uid=view.job.metadata.uid))
        return actions
    return [*actions, RequeueAfter(seconds=get_requeue_seconds(expiry, now))]


def _decide_ending(view: View, ending: Ending, now: datetime) -> list[Action]:
    """End the job: its JobSet first where the verdict is ours, then the status, once and for all.

    Where the deletion is refused the verdict is written nevertheless; it is tried again as long as the
    JobSet exists.
    """
    status = build_final_status(view, _get_runtime(view), ending, now)
    actions: list[Action] = []
    if ending.type == FAILED and ending.reason in DECIDED_BY_US and view.job_set and not view.seen.refusal:
        actions += build_job_set_deletion(view.job_set)
    actions.append(PatchStatus(key=build_train_job_key(view.job), status=status))
    actions += build_ending_events(view, ending)
    expiry = get_expiry(now, _get_ttl_seconds(view))
    if expiry is not None:
        actions.append(RequeueAfter(seconds=get_requeue_seconds(expiry, now)))
    elif view.seen.refusal:
        actions.append(RequeueAfter(seconds=MIN_RETRY_SECONDS))
    return actions


def _decide_unfinished(view: View, plan: Plan, now: datetime) -> list[Action]:
    """Bring the children a step further and say how the job does.

    A write that was refused goes into the status first, and is tried again when the status says so and a
    while has passed: a shell that performs these actions at once cannot go round in circles.
    """
    refusal = view.seen.refusal if plan.has_actions else None
    problem = plan.problem or (build_refusal_problem(refusal) if refusal else None)
    status = build_status(view, plan, problem, now)
    is_changed = status != view.status
    is_due = refusal is None or (
        not is_changed and now >= refusal.since + timedelta(seconds=MIN_RETRY_SECONDS)
    )
    actions: list[Action] = []
    if is_due:
        actions += plan.first
    if is_changed:
        actions.append(PatchStatus(key=build_train_job_key(view.job), status=status))
        actions += build_change_events(view, status)
    if is_due:
        actions += plan.then
    waits = _list_waits(view, plan, status, is_due, now)
    return [*actions, RequeueAfter(seconds=min(waits))] if waits else actions


def _list_waits(view: View, plan: Plan, status: TrainJobStatus, is_due: bool, now: datetime) -> list[float]:
    """Return after how many seconds to look again although nothing may change until then."""
    waits: list[float] = []
    deadline = get_deadline(status.start_time, view.spec.active_deadline_seconds)
    if deadline is not None:
        waits.append(get_requeue_seconds(deadline, now))
    next_look = find_next_look(view, status.cause, now)
    if next_look is not None:
        waits.append(get_requeue_seconds(next_look, now))
    if plan.problem is not None:
        waits.append(PROBLEM_RETRY_SECONDS)
    elif not is_due:
        refused = get_condition(status, RESOURCES_CREATED)
        refused_for = (now - refused.last_transition_time).total_seconds() if refused else 0.0
        waits.append(min(max(refused_for / 2, MIN_RETRY_SECONDS), MAX_RETRY_SECONDS))
    return waits


def _get_ttl_seconds(view: View) -> int | None:
    """Return how long the finished job stays: its own setting, else its runtime's; None for ever."""
    if view.spec.ttl_seconds_after_finished is not None:
        return view.spec.ttl_seconds_after_finished
    runtime = _get_runtime(view)
    return runtime.spec.ttl_seconds_after_finished if runtime and runtime.spec else None


def _get_runtime(view: View) -> Runtime | None:
    return view.seen.snapshot or view.seen.runtime
