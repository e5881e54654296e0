"""The Jobs of a JobSet by how they stand, and the counters made from them (spec 02, sections 14.7, 14.8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from trainwright.api import constants
from trainwright.api.batch import Job
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet, ReplicatedJob, ReplicatedJobStatus
from trainwright.api.meta import Json, is_controlled_by
from trainwright.runner.controllers.child_job import JOB_RESTART_ATTEMPT, get_job_restarts
from trainwright.runner.controllers.conditions import COMPLETE, FAILED, has_condition


class ChildJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The Jobs that a JobSet controls. Those of an attempt that is over are in `previous` alone."""

    active: tuple[Job, ...] = ()
    successful: tuple[Job, ...] = ()
    failed: tuple[Job, ...] = ()
    previous: tuple[Job, ...] = ()

    def all(self) -> Iterator[Job]:
        """Yield every Job."""
        yield from (*self.active, *self.successful, *self.failed, *self.previous)


def classify_jobs(job_set: JobSet, jobs: Sequence[Json]) -> ChildJobs:
    """Return the Jobs controlled by this JobSet, sorted into attempts and states, in global order."""
    own = [job for job in (parse_object(body, Job) for body in jobs) if _is_own(job_set, job)]
    own.sort(key=lambda job: _get_number(job, constants.JOB_GLOBAL_INDEX))
    groups: dict[str, list[Job]] = {"active": [], "successful": [], "failed": [], "previous": []}
    for job in own:
        groups[_get_state(job_set, job)].append(job)
    return ChildJobs(**{name: tuple(members) for name, members in groups.items()})


def count_jobs(job_set: JobSet, children: ChildJobs) -> list[ReplicatedJobStatus]:
    """Return the counters of every replicated job, by name in descending order.

    A Job is ready while it runs and as many of its pods as it has at once are ready or have succeeded.
    """
    statuses = [_count(job_set, replicated_job, children) for replicated_job in job_set.spec.replicated_jobs]
    return sorted(statuses, key=lambda status: status.name, reverse=True)


def get_replicated_job_name(job: Job) -> str:
    """Return which replicated job this Job is of."""
    return (job.metadata.labels or {}).get(constants.REPLICATED_JOB_NAME, "")


def get_job_index(job: Job) -> int:
    """Return the index of a Job among those of its replicated job."""
    return _get_number(job, constants.JOB_INDEX)


def _count(job_set: JobSet, replicated_job: ReplicatedJob, children: ChildJobs) -> ReplicatedJobStatus:
    def of(jobs: Sequence[Job]) -> list[Job]:
        return [job for job in jobs if get_replicated_job_name(job) == replicated_job.name]

    active = of(children.active)
    before = next(
        (
            status
            for status in (job_set.status.replicated_jobs_status if job_set.status else None) or ()
            if status.name == replicated_job.name
        ),
        None,
    )
    return ReplicatedJobStatus(
        name=replicated_job.name,
        ready=sum(map(_is_ready, active)),
        succeeded=len(of(children.successful)),
        failed=len(of(children.failed)),
        active=sum(job.status is not None and job.status.active > 0 for job in active),
        suspended=sum(bool(job.spec.suspend) for job in active),
        job_restarts=before.job_restarts if before else None,
        job_restarts_count_towards_max=before.job_restarts_count_towards_max if before else None,
    )


def _is_ready(job: Job) -> bool:
    if job.status is None:
        return False
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    wanted = parallelism if job.spec.completions is None else min(parallelism, job.spec.completions)
    return job.status.ready + job.status.succeeded >= wanted


def _get_state(job_set: JobSet, job: Job) -> str:
    attempt = job_set.status.restarts if job_set.status else 0
    own_attempt = get_job_restarts(job_set, get_replicated_job_name(job), get_job_index(job))
    if (
        _get_number(job, constants.RESTART_ATTEMPT) < attempt
        or _get_number(job, JOB_RESTART_ATTEMPT) < own_attempt
    ):
        return "previous"
    conditions = job.status.conditions if job.status else None
    if has_condition(conditions, FAILED):
        return "failed"
    return "successful" if has_condition(conditions, COMPLETE) else "active"


def _is_own(job_set: JobSet, job: Job) -> bool:
    return is_controlled_by(job.metadata, job_set.metadata)


def _get_number(job: Job, label: str) -> int:
    value = (job.metadata.labels or {}).get(label, "")
    return int(value) if value.isdecimal() else 0
