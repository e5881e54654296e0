"""Counters of slices, told as those of the one Job that others take them for.

Who reads `status.jobsStatus` works out from the runtime how many Jobs a replicated job has, and knows no
slices: one for the step that trains. Kueue waits until so many are ready, and gives the devices of a Job to
others once it has succeeded. Counted one by one, the first slice that is done would give away those of all.
How many slices do what stands in the status of the JobSet.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.api.constants import ANCESTOR_LABEL, ANCESTOR_TRAINER
from trainwright.api.jobset import JobSet, ReplicatedJob
from trainwright.api.trainjob import JobStatus
from trainwright.template.replicated_jobs import get_part


def fold_slices(counted: Sequence[JobStatus], job_set: JobSet | None) -> list[JobStatus]:
    """Return the counters of child Jobs with those of slices as of one Job.

    `job_set` is what was counted. The trainer step has several Jobs in it only where they are slices.
    """
    replicated_jobs = job_set.spec.replicated_jobs if job_set else ()
    slices = {
        entry.name: entry.replicas for entry in replicated_jobs if _trains(entry) and entry.replicas > 1
    }
    return [_fold(entry, slices[entry.name]) if entry.name in slices else entry for entry in counted]


def _fold(entry: JobStatus, slices: int) -> JobStatus:
    """Return the counters of so many slices: ready and succeeded mean all of them, the rest any."""
    has_succeeded = entry.succeeded >= slices
    return JobStatus(
        name=entry.name,
        ready=int(not has_succeeded and entry.ready + entry.succeeded >= slices),
        succeeded=int(has_succeeded),
        failed=int(entry.failed > 0),
        active=int(entry.active > 0),
        suspended=int(entry.suspended > 0),
    )


def _trains(entry: ReplicatedJob) -> bool:
    return get_part(entry.template, "metadata", "labels").get(ANCESTOR_LABEL) == ANCESTOR_TRAINER
