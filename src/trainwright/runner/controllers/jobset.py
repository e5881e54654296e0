"""The JobSet controller, as a function: a JobSet and its Jobs in, actions out (spec 02, section 14.7).

What `decide` sees of a JobSet on this machine is what it sees on a cluster: same children, labels,
conditions, reasons, messages and counters. Not here: pods (`job`), processes (`runner.pods.kubelet`), the
headless Service (host names are the executor's business), exclusive placement (there is one machine) and
in-place restart.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from trainwright.api.batch import Job
from trainwright.api.constants import JOB_SET
from trainwright.api.encoding import build_json, parse_object
from trainwright.api.jobset import JobSet, JobSetStatus
from trainwright.api.meta import Condition, Json, ObjectKey
from trainwright.runner.controllers.actions import (
    Action,
    Create,
    Emit,
    MarkDeleted,
    Remove,
    RequeueAfter,
    WriteStatus,
)
from trainwright.runner.controllers.child_job import build_child_job
from trainwright.runner.controllers.child_jobs import (
    ChildJobs,
    classify_jobs,
    count_jobs,
    get_replicated_job_name,
)
from trainwright.runner.controllers.conditions import (
    COMPLETED,
    FAILED,
    FALSE,
    RESTARTING,
    STARTUP_COMPLETED,
    STARTUP_IN_PROGRESS,
    SUSPENDED,
    TRUE,
    build_condition,
    find_condition,
    has_condition,
    set_condition,
)
from trainwright.runner.controllers.failure_policy import apply_failure_policy
from trainwright.runner.controllers.names import build_job_name
from trainwright.runner.controllers.startup import are_dependencies_met, is_in_order, is_started
from trainwright.runner.controllers.success_policy import is_successful
from trainwright.runner.controllers.suspension import build_resume, build_suspend
from trainwright.runner.controllers.volume_claims import build_claims

JOBSET_CONTROLLER: Final = "jobset.sigs.k8s.io/jobset-controller"
BLOCKING_RECREATE: Final = "BlockingRecreate"


def decide_job_set(
    job_set: Json, jobs: Sequence[Json], now: datetime, claim_names: Collection[str] = ()
) -> list[Action]:
    """Return what to do about a JobSet, given the Jobs of its namespace that may be its own.

    `claim_names` are the PersistentVolumeClaims that exist. Nothing is done about a JobSet that another
    controller manages, or that is being deleted. Given the result of its own actions, it asks for nothing.
    """
    view = parse_object(job_set, JobSet)
    if view.metadata.deletion_timestamp or view.spec.managed_by not in {None, JOBSET_CONTROLLER}:
        return []
    before = view.status or JobSetStatus()
    children = classify_jobs(view, jobs)
    counted = msgspec.structs.replace(before, replicated_jobs_status=count_jobs(view, children))
    if is_finished(before):
        step = _Step(counted, [*_delete_jobs(children.active), *_expire(view, before, now)])
    else:
        step = _advance(view, children, counted, now, claim_names)
    actions = [*step.actions, *_announce(view, before, step.status)]
    status: Json = build_json(step.status)
    known: Json = job_set.get("status") or {}
    if status != known:
        actions.append(WriteStatus(key=_get_key(view), status=status, before=known))
    return actions


def is_finished(status: JobSetStatus | None) -> bool:
    """Say whether the JobSet completed or failed."""
    conditions = status.conditions if status else None
    return has_condition(conditions, COMPLETED) or has_condition(conditions, FAILED)


class _Step(msgspec.Struct, frozen=True):
    """What follows from one part of the rules: the status so far, and what to do."""

    status: JobSetStatus
    actions: list[Action] = msgspec.field(default_factory=list)


def _advance(
    job_set: JobSet, children: ChildJobs, status: JobSetStatus, now: datetime, claim_names: Collection[str]
) -> _Step:
    cleanup = _delete_jobs(children.previous)
    if children.failed:
        outcome = apply_failure_policy(job_set, status, children.failed, now)
        event = _build_event(job_set, "Warning", outcome.event_reason, outcome.event_message)
        return _Step(
            _end_restart(job_set, outcome.status, now), [*cleanup, *([event] if outcome.event_reason else [])]
        )
    if is_successful(job_set, children):
        message = "jobset completed successfully"
        completed = build_condition(COMPLETED, TRUE, "AllJobsCompleted", message, now)
        status = msgspec.structs.replace(
            status, terminal_state=COMPLETED, conditions=set_condition(status.conditions, completed)
        )
        return _Step(_end_restart(job_set, status, now), cleanup)
    claims: list[Action] = [
        Create(object=claim)
        for claim in build_claims(job_set)
        if claim["metadata"]["name"] not in claim_names
    ]
    started = _start_jobs(job_set, children, status, now)
    if job_set.spec.suspend:
        followed = _suspend_jobs(children, started.status, now)
    else:
        followed = _resume_jobs(job_set, children, started.status, now)
    return _Step(
        _end_restart(job_set, followed.status, now), [*cleanup, *claims, *started.actions, *followed.actions]
    )


def _start_jobs(job_set: JobSet, children: ChildJobs, status: JobSetStatus, now: datetime) -> _Step:
    """Create the Jobs that are missing and whose turn it is."""
    policy = job_set.spec.failure_policy
    if children.previous and policy is not None and policy.restart_strategy == BLOCKING_RECREATE:
        return _Step(status)
    counters = status.replicated_jobs_status or []
    existing = {job.metadata.name for job in children.all()}
    in_order = is_in_order(job_set) and not job_set.spec.suspend
    actions: list[Action] = []
    for replicated_job in job_set.spec.replicated_jobs:
        if not are_dependencies_met(job_set, replicated_job, counters):
            continue
        if in_order and is_started(replicated_job, counters):
            continue
        actions += [
            Create(object=build_child_job(job_set, replicated_job, index))
            for index in range(replicated_job.replicas)
            if build_job_name(job_set.metadata.name, replicated_job.name, index) not in existing
        ]
        if in_order:
            message = "in order startup policy is in progress"
            condition = build_condition(
                STARTUP_IN_PROGRESS, TRUE, "InOrderStartupPolicyInProgress", message, now
            )
            return _Step(_with(status, condition), actions)
    if in_order:
        message = "in order startup policy has completed"
        condition = build_condition(STARTUP_COMPLETED, TRUE, "InOrderStartupPolicyCompleted", message, now)
        return _Step(_with(status, condition), actions)
    return _Step(status, actions)


def _suspend_jobs(children: ChildJobs, status: JobSetStatus, now: datetime) -> _Step:
    condition = build_condition(SUSPENDED, TRUE, "SuspendedJobs", "jobset is suspended", now)
    return _Step(
        _with(status, condition), [build_suspend(job) for job in children.active if not job.spec.suspend]
    )


def _resume_jobs(job_set: JobSet, children: ChildJobs, status: JobSetStatus, now: datetime) -> _Step:
    counters = status.replicated_jobs_status or []
    in_order = is_in_order(job_set)
    actions: list[Action] = []
    for replicated_job in job_set.spec.replicated_jobs:
        if not are_dependencies_met(job_set, replicated_job, counters):
            continue
        if in_order and is_started(replicated_job, counters):
            continue
        actions += [
            build_resume(job, replicated_job)
            for job in children.active
            if job.spec.suspend and get_replicated_job_name(job) == replicated_job.name
        ]
        if in_order:
            return _Step(status, actions)
    condition = build_condition(SUSPENDED, FALSE, "ResumeJobs", "jobset is resumed", now)
    return _Step(_with(status, condition), actions)


def _end_restart(job_set: JobSet, status: JobSetStatus, now: datetime) -> JobSetStatus:
    """Turn RestartingJobSet False once the restart is over, one way or the other."""
    if not has_condition(status.conditions, RESTARTING):
        return status
    for reached, reason, message in (
        (has_condition(status.conditions, FAILED), "JobSetFailed", "jobset failed"),
        (has_condition(status.conditions, COMPLETED), "JobSetCompleted", "jobset completed successfully"),
        (has_condition(status.conditions, SUSPENDED), "JobSetSuspended", "jobset is suspended"),
        (_are_all_ready(job_set, status), "JobsReady", "all jobs are ready"),
    ):
        if reached:
            return _with(status, build_condition(RESTARTING, FALSE, reason, message, now))
    return status


def _are_all_ready(job_set: JobSet, status: JobSetStatus) -> bool:
    up = {s.name: s.ready + s.succeeded for s in status.replicated_jobs_status or ()}
    return all(up.get(job.name, 0) >= job.replicas for job in job_set.spec.replicated_jobs)


def _expire(job_set: JobSet, status: JobSetStatus, now: datetime) -> list[Action]:
    """Delete a finished JobSet when its time to live is over; ask to look again until then."""
    ttl = job_set.spec.ttl_seconds_after_finished
    condition = find_condition(status.conditions, COMPLETED) or find_condition(status.conditions, FAILED)
    if ttl is None or condition is None or condition.last_transition_time is None:
        return []
    left = (condition.last_transition_time + timedelta(seconds=ttl) - now).total_seconds()
    if left > 0:
        return [RequeueAfter(seconds=left)]
    return [Remove(key=_get_key(job_set), uid=job_set.metadata.uid)]


def _delete_jobs(jobs: Sequence[Job]) -> list[Action]:
    return [
        MarkDeleted(key=ObjectKey("Job", job.metadata.namespace or "", job.metadata.name))
        for job in jobs
        if job.metadata.deletion_timestamp is None
    ]


def _with(status: JobSetStatus, condition: Condition) -> JobSetStatus:
    conditions = set_condition(status.conditions, condition)
    return msgspec.structs.replace(status, conditions=conditions or None)


def _announce(job_set: JobSet, before: JobSetStatus, after: JobSetStatus) -> list[Action]:
    """Return one event for each condition that changed."""
    known = {(c.type, c.status) for c in before.conditions or ()}
    return [
        _build_event(job_set, "Warning" if c.type in {FAILED, RESTARTING} else "Normal", c.reason, c.message)
        for c in after.conditions or ()
        if (c.type, c.status) not in known
    ]


def _build_event(job_set: JobSet, type_: str, reason: str, message: str) -> Emit:
    return Emit(about=job_set.metadata, kind=JOB_SET, type=type_, reason=reason, message=message)


def _get_key(job_set: JobSet) -> ObjectKey:
    return ObjectKey(JOB_SET, job_set.metadata.namespace or "", job_set.metadata.name)
