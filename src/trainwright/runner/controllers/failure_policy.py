"""What a failed Job does to its JobSet (spec 02, section 14.7, "Failure")."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from trainwright.api.batch import Job, JobCondition
from trainwright.api.jobset import FailurePolicy, FailurePolicyRule, JobSet, JobSetStatus, ReplicatedJobStatus
from trainwright.runner.controllers.child_jobs import get_job_index, get_replicated_job_name
from trainwright.runner.controllers.conditions import FAILED, RESTARTING, TRUE, build_condition, set_condition

FAIL_JOB_SET: Final = "FailJobSet"
RESTART_JOB_SET: Final = "RestartJobSet"
RESTART_JOB: Final = "RestartJob"
RESTART_JOB_AND_IGNORE: Final = "RestartJobAndIgnoreMaxRestarts"

REACHED_MAX_RESTARTS: Final = "ReachedMaxRestarts"
TERMINAL_FAILED: Final = "Failed"


class Outcome(msgspec.Struct, frozen=True):
    """The status that follows from a failure, and the event that tells of a restart."""

    status: JobSetStatus
    event_reason: str = ""
    event_message: str = ""


def apply_failure_policy(
    job_set: JobSet, status: JobSetStatus, failed: Sequence[Job], now: datetime
) -> Outcome:
    """Return what becomes of the JobSet now that at least one Job has failed.

    Without a policy the JobSet fails with its first failed Job. With one, the first rule that matches any
    failed Job decides; where none does, all Jobs are made again while restarts are left.
    """
    policy = job_set.spec.failure_policy
    if policy is None:
        message = "jobset failed due to one or more job failures"
        return Outcome(fail(status, "FailedJobs", _name_first(message, _find_first(failed)), now))
    rule, job = _match_rules(policy.rules or (), failed)
    action = rule.action if rule else RESTART_JOB_SET
    if action == FAIL_JOB_SET:
        message = _name_first("applying FailJobSet failure policy action", job)
        return Outcome(fail(status, "FailJobSetFailurePolicyAction", message, now))
    counts = action in {RESTART_JOB_SET, RESTART_JOB}
    if counts and _count_restarts(status) >= policy.max_restarts:
        message = _name_first("jobset failed due to reaching max number of restarts", job)
        return Outcome(fail(status, REACHED_MAX_RESTARTS, message, now))
    message = _name_first(f"applying {action} failure policy action", job)
    if action in {RESTART_JOB, RESTART_JOB_AND_IGNORE}:
        restarted = _restart_job(job_set, status, job, counts=counts)
    else:
        restarted = msgspec.structs.replace(
            status,
            restarts=status.restarts + 1,
            restarts_count_towards_max=status.restarts_count_towards_max + counts,
            conditions=set_condition(
                status.conditions,
                build_condition(RESTARTING, TRUE, _build_restart_reason(policy, rule), message, now),
            ),
        )
    return Outcome(restarted, f"{action}FailurePolicyAction", message)


def fail(status: JobSetStatus, reason: str, message: str, now: datetime) -> JobSetStatus:
    """Return the status of a JobSet that failed for this reason."""
    return msgspec.structs.replace(
        status,
        terminal_state=TERMINAL_FAILED,
        conditions=set_condition(status.conditions, build_condition(FAILED, TRUE, reason, message, now)),
    )


def _match_rules(
    rules: Sequence[FailurePolicyRule], failed: Sequence[Job]
) -> tuple[FailurePolicyRule | None, Job]:
    for rule in rules:
        if matching := [job for job in failed if _is_match(rule, job)]:
            return rule, _find_first(matching)
    return None, _find_first(failed)


def _is_match(rule: FailurePolicyRule, job: Job) -> bool:
    condition = _get_failure(job)
    if rule.on_job_failure_reasons and condition.reason not in rule.on_job_failure_reasons:
        return False
    if rule.target_replicated_jobs and get_replicated_job_name(job) not in rule.target_replicated_jobs:
        return False
    patterns = rule.on_job_failure_message_patterns
    return not patterns or any(_is_found(pattern, condition.message) for pattern in patterns)


def _is_found(pattern: str, message: str) -> bool:
    try:
        return re.search(pattern, message) is not None
    except re.error:
        # RE2 and Python differ in corners; a pattern that only RE2 knows matches nothing rather than ending
        # the controller. Admission says so when the runtime is read.
        return False


def _find_first(failed: Sequence[Job]) -> Job:
    return min(
        failed, key=lambda job: _get_failure(job).last_transition_time or datetime.max.replace(tzinfo=UTC)
    )


def _get_failure(job: Job) -> JobCondition:
    conditions = job.status.conditions if job.status else None
    return next(c for c in conditions or () if c.type == FAILED and c.status == TRUE)


def _count_restarts(status: JobSetStatus) -> int:
    """Return the restarts that the budget counts: of the whole JobSet and of single Jobs together."""
    single = sum(sum(job.job_restarts_count_towards_max or ()) for job in status.replicated_jobs_status or ())
    return status.restarts_count_towards_max + single


def _restart_job(job_set: JobSet, status: JobSetStatus, job: Job, *, counts: bool) -> JobSetStatus:
    name, index = get_replicated_job_name(job), get_job_index(job)
    replicas = next(r.replicas for r in job_set.spec.replicated_jobs if r.name == name)

    def count(counters: list[int] | None, by: int) -> list[int]:
        return [n + (by if i == index else 0) for i, n in enumerate(counters or [0] * replicas)]

    def update(counted: ReplicatedJobStatus) -> ReplicatedJobStatus:
        if counted.name != name:
            return counted
        return msgspec.structs.replace(
            counted,
            job_restarts=count(counted.job_restarts, 1),
            job_restarts_count_towards_max=count(counted.job_restarts_count_towards_max, int(counts)),
        )

    return msgspec.structs.replace(
        status, replicated_jobs_status=[update(counted) for counted in status.replicated_jobs_status or ()]
    )


def _build_restart_reason(policy: FailurePolicy, rule: FailurePolicyRule | None) -> str:
    if rule is None:
        return "DefaultFailurePolicy"
    name = rule.name or f"failurePolicyRule{(policy.rules or []).index(rule)}"
    return f"FailurePolicy_{name}"


def _name_first(message: str, job: Job) -> str:
    return f"{message} (first failed job: {job.metadata.name})"
