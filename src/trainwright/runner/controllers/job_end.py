"""When a Job has failed, and when it has succeeded: the rules of batch/v1, in the order it tries them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import msgspec

from trainwright.api.batch import Job, JobStatus
from trainwright.api.meta import Json
from trainwright.runner.controllers.conditions import FAILURE_TARGET, SUCCESS_CRITERIA_MET, find_condition
from trainwright.runner.controllers.job_indexes import parse_indexes
from trainwright.runner.controllers.job_pods import JobPods, group_by_index
from trainwright.runner.controllers.pod_failure_policy import PodFailureAction

INDEXED: Final = "Indexed"
DEFAULT_BACKOFF_LIMIT: Final = 6
NO_LIMIT: Final = 2**31 - 1


class JobEnd(msgspec.Struct, frozen=True):
    """Why a Job ends; reasons and messages are those of batch/v1, which JobSet's failure rules match."""

    reason: str
    message: str


class Indexes(msgspec.Struct, frozen=True):
    """Which completion indexes are done for good; both are empty in a Job that is not Indexed."""

    completed: frozenset[int] = frozenset()
    failed: frozenset[int] = frozenset()


def is_indexed(job: Job) -> bool:
    """Say whether the pods of this Job have completion indexes."""
    return job.spec.completion_mode == INDEXED


def get_parallelism(job: Job) -> int:
    """Return how many pods run at once."""
    return 1 if job.spec.parallelism is None else job.spec.parallelism


def get_completions(job: Job) -> int | None:
    """Return how many pods have to succeed; None means: one, and then all that run.

    An Indexed Job without a number has as many indexes as pods at once.
    """
    if job.spec.completions is not None:
        return job.spec.completions
    return get_parallelism(job) if is_indexed(job) else None


def find_indexes(job: Job, pods: JobPods) -> Indexes:
    """Return the indexes that succeeded, and those that failed more often than they may.

    What the status says already stays true though the pods may be gone.
    """
    completions = get_completions(job)
    if not is_indexed(job) or completions is None:
        return Indexes()
    status = job.status or JobStatus()
    completed = parse_indexes(status.completed_indexes) | set(group_by_index(pods.succeeded, completions))
    failed = parse_indexes(status.failed_indexes)
    limit = job.spec.backoff_limit_per_index
    if limit is not None:
        for index, group in group_by_index(pods.counted, completions).items():
            gave_up = any(
                pods.verdicts[pod.metadata.name].action == PodFailureAction.FAIL_INDEX for pod in group
            )
            if gave_up or len(group) > limit:
                failed.add(index)
    return Indexes(frozenset(completed), frozenset(failed - completed))


def find_failure(job: Job, pods: JobPods, indexes: Indexes, now: datetime) -> JobEnd | None:
    """Return why the Job has failed, or None. A failure that was found once stays the reason."""
    if target := find_condition(job.status.conditions if job.status else None, FAILURE_TARGET):
        return JobEnd(target.reason, target.message)
    if verdict := pods.find_first(PodFailureAction.FAIL_JOB):
        return JobEnd("PodFailurePolicy", verdict.message)
    if _is_past_backoff_limit(job, pods):
        return JobEnd("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = get_seconds_left(job, now)
    if left is not None and left <= 0:
        return JobEnd("DeadlineExceeded", "Job was active longer than specified deadline")
    limit = job.spec.max_failed_indexes
    if limit is not None and len(indexes.failed) > limit:
        return JobEnd(
            "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
        )
    done = len(indexes.failed) + len(indexes.completed)
    if indexes.failed and done >= (get_completions(job) or 0):
        return JobEnd("FailedIndexes", "Job has failed indexes")
    return None


def find_success(job: Job, pods: JobPods, indexes: Indexes) -> JobEnd | None:
    """Return why the Job has succeeded, or None."""
    if met := find_condition(job.status.conditions if job.status else None, SUCCESS_CRITERIA_MET):
        return JobEnd(met.reason, met.message)
    for number, rule in enumerate((job.spec.success_policy or {}).get("rules") or ()):
        wanted = rule.get("succeededIndexes")
        reached = indexes.completed & parse_indexes(wanted) if wanted else indexes.completed
        needed = rule.get("succeededCount")
        if needed is None:
            needed = len(parse_indexes(wanted or ""))
        if len(reached) >= needed > 0:
            return JobEnd("SuccessPolicy", f"Matched rules at index {number}")
    completions = get_completions(job)
    if is_indexed(job):
        reached_all = len(indexes.completed) >= (completions or 0)
    elif completions is None:
        reached_all = bool(pods.succeeded) and not pods.active
    else:
        reached_all = len(pods.succeeded) >= completions
    if reached_all:
        return JobEnd("CompletionsReached", "Reached expected number of succeeded pods")
    return None


def get_seconds_left(job: Job, now: datetime) -> float | None:
    """Return how long the Job may go on; None where it has no deadline or does not run."""
    deadline = job.spec.active_deadline_seconds
    if deadline is None or job.spec.suspend or job.status is None or job.status.start_time is None:
        return None
    return (job.status.start_time + timedelta(seconds=deadline) - now).total_seconds()


def _is_past_backoff_limit(job: Job, pods: JobPods) -> bool:
    limit = job.spec.backoff_limit
    if limit is None:
        limit = DEFAULT_BACKOFF_LIMIT if job.spec.backoff_limit_per_index is None else NO_LIMIT
    if len(pods.counted) > limit:
        return True
    pod_spec: Json = job.spec.template.get("spec") or {}
    if pod_spec.get("restartPolicy") != "OnFailure":
        return False
    # Containers that restart in place count as well, in pods that still run.
    restarts = sum(
        container.restart_count
        for pod in pods.active
        for container in (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    )
    return bool(restarts >= max(limit, 1))
