"""In which order a JobSet's replicated jobs start (spec 02, section 14.7, dependsOn and startupPolicy)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trainwright.api.jobset import JobSet, ReplicatedJob, ReplicatedJobStatus

COMPLETE: Final = "Complete"
IN_ORDER: Final = "InOrder"


def is_in_order(job_set: JobSet) -> bool:
    """Say whether each replicated job waits for the one before it."""
    policy = job_set.spec.startup_policy
    return policy is not None and policy.startup_policy_order == IN_ORDER


def are_dependencies_met(
    job_set: JobSet, replicated_job: ReplicatedJob, counters: Sequence[ReplicatedJobStatus]
) -> bool:
    """Say whether all that this replicated job depends on is Ready or Complete, as it asks.

    A failed Job is not ready: nothing that depends on it starts. Where a failure ends or restarts the JobSet
    it never gets that far; where a rule restarts the one Job, what depends on it waits for the new one.
    """
    replicas = {job.name: job.replicas for job in job_set.spec.replicated_jobs}
    by_name = {status.name: status for status in counters}
    for dependency in replicated_job.depends_on or ():
        status = by_name.get(dependency.name)
        if status is None:
            return False
        reached = status.succeeded if dependency.status == COMPLETE else status.ready + status.succeeded
        if reached < replicas[dependency.name]:
            return False
    return True


def is_started(replicated_job: ReplicatedJob, counters: Sequence[ReplicatedJobStatus]) -> bool:
    """Say whether every Job of the replicated job is ready or has ended."""
    status = next((s for s in counters if s.name == replicated_job.name), None)
    return status is not None and status.ready + status.succeeded + status.failed == replicated_job.replicas
