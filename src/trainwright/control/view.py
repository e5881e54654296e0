"""What is seen of one TrainJob, sorted out once: whose JobSet it is, and which Jobs and pods belong to it.

All later steps read this view instead of the raw observations. It decides nothing and holds no time.
"""

from __future__ import annotations

from typing import Final

import msgspec

from trainwright.api.batch import Job
from trainwright.api.constants import (
    COMPLETION_INDEX,
    CONTROLLER_NAME,
    JOB_INDEX,
    JOBSET_UID,
    REPLICATED_JOB_NAME,
    RESTART_ATTEMPT,
    TRAIN_JOB,
)
from trainwright.api.core import Pod
from trainwright.api.jobset import JobSet
from trainwright.api.kueue import Workload
from trainwright.api.meta import ObjectMeta, is_controlled_by
from trainwright.api.pod_group import PodGroup
from trainwright.api.trainjob import TrainJob, TrainJobSpec, TrainJobStatus
from trainwright.control.seen import Seen

COMPLETE: Final = "Complete"
FAILED: Final = "Failed"

_ENDED_PHASES: Final = frozenset({"Succeeded", "Failed"})


class Place(msgspec.Struct, frozen=True, order=True):
    """Where a pod stands in its JobSet: replicated job, Job index and completion index (its rank)."""

    replicated_job: str
    job_index: int
    rank: int


class View(msgspec.Struct, frozen=True, kw_only=True):
    """The observations about one TrainJob, sorted.

    `job_set` is the job's own JobSet, `deleted_job_set` the last state of one that is gone, `foreign_job_set`
    one of the same name that is not the job's. `jobs` and `pods` belong to `job_set`; `leftover_jobs` and
    `leftover_pods` carry its name but belong to one that is gone.
    Live pods are those that have not ended, in their grace period too.
    """

    seen: Seen
    job: TrainJob
    spec: TrainJobSpec
    status: TrainJobStatus
    job_set: JobSet | None
    deleted_job_set: JobSet | None
    foreign_job_set: JobSet | None
    jobs: tuple[Job, ...]
    pods: tuple[Pod, ...]
    live_pods: tuple[Pod, ...]
    leftover_jobs: tuple[Job, ...]
    leftover_pods: tuple[Pod, ...]

    @property
    def workload(self) -> Workload | None:
        """Kueue's object for the job; None for one of another job, or that is going."""
        workload = self.seen.workload
        if workload is None or workload.metadata.deletion_timestamp is not None:
            return None
        return workload if is_controlled_by(workload.metadata, self.job.metadata) else None

    @property
    def pod_group(self) -> PodGroup | None:
        """The job's gang; None for that of another job."""
        pod_group = self.seen.pod_group
        if pod_group is None or not is_controlled_by(pod_group.metadata, self.job.metadata):
            return None
        return pod_group

    @property
    def is_suspended(self) -> bool:
        """Whether the job should not run now."""
        return bool(self.spec.suspend)

    @property
    def has_begun(self) -> bool:
        """Whether any child Job of this job was ever seen active: `status.restarts` is there from then on."""
        return self.status.restarts is not None


def build_view(seen: Seen) -> View:
    """Return the observations, sorted. The TrainJob must have a spec."""
    job = seen.train_job
    if job.spec is None:
        raise ValueError(f"TrainJob {job.metadata.name!r} has no spec")
    own, deleted = _if_own(seen.job_set, job), _if_own(seen.deleted_job_set, job)
    foreign = seen.job_set if own is None else None
    uid = own.metadata.uid if own else None
    jobs: list[Job] = []
    pods: list[Pod] = []
    leftover_jobs: list[Job] = []
    leftover_pods: list[Pod] = []
    if foreign is None:
        for child in seen.jobs:
            (jobs if own and _belongs(child.metadata, uid) else leftover_jobs).append(child)
        for pod in seen.pods:
            (pods if own and _belongs(pod.metadata, uid) else leftover_pods).append(pod)
    return View(
        seen=seen,
        job=job,
        spec=job.spec,
        status=job.status or TrainJobStatus(),
        job_set=own,
        deleted_job_set=deleted,
        foreign_job_set=foreign,
        jobs=tuple(jobs),
        pods=tuple(pods),
        live_pods=tuple(pod for pod in pods if is_live(pod)),
        leftover_jobs=tuple(leftover_jobs),
        leftover_pods=tuple(pod for pod in leftover_pods if is_live(pod)),
    )


def is_ours(job: TrainJob) -> bool:
    """Say whether this controller looks after the job: managed by nobody else and not being deleted.

    A job that is being deleted is left to the garbage collector: making its JobSet again would hold up a
    foreground deletion. Source: spec 01, section 3.2, step 2; case B032.
    """
    if job.spec is None or job.metadata.deletion_timestamp is not None:
        return False
    return job.spec.managed_by in (None, "", CONTROLLER_NAME)


def is_live(pod: Pod) -> bool:
    """Say whether the pod has not ended: pending, running, unknown, or in its grace period."""
    return pod.status.phase not in _ENDED_PHASES


def is_job_finished(job: Job) -> bool:
    """Say whether the child Job is complete or failed for good."""
    conditions = (job.status.conditions if job.status else None) or ()
    return any(c.type in (COMPLETE, FAILED) and c.status == "True" for c in conditions)


def find_place(meta: ObjectMeta) -> Place:
    """Return where a pod, or a Job (rank 0), stands, by the labels that JobSet and Job controllers set."""
    labels, annotations = meta.labels or {}, meta.annotations or {}
    return Place(
        labels.get(REPLICATED_JOB_NAME, ""),
        _parse_index(labels.get(JOB_INDEX)),
        _parse_index(labels.get(COMPLETION_INDEX, annotations.get(COMPLETION_INDEX))),
    )


def is_of_current_attempt(meta: ObjectMeta, job_set: JobSet | None) -> bool:
    """Say whether a pod or Job is of the JobSet's current attempt, not of one that a restart put aside."""
    attempt = (meta.labels or {}).get(RESTART_ATTEMPT)
    if attempt is None or job_set is None or job_set.status is None:
        return True
    return _parse_index(attempt) >= job_set.status.restarts


def describe_owner(meta: ObjectMeta) -> str:
    """Return who owns an object, in words."""
    for ref in meta.owner_references or ():
        if ref.controller:
            earlier = "an earlier " if ref.kind == TRAIN_JOB and ref.name == meta.name else ""
            return f"{earlier}{ref.kind} {ref.name!r}"
    return "nobody (it has no controlling owner)"


def _if_own(job_set: JobSet | None, job: TrainJob) -> JobSet | None:
    return job_set if job_set and is_controlled_by(job_set.metadata, job.metadata) else None


def _belongs(meta: ObjectMeta, uid: str | None) -> bool:
    """Say whether a child is of the JobSet with this uid; one that tells nothing is."""
    labelled = (meta.labels or {}).get(JOBSET_UID)
    return labelled is None or uid is None or labelled == uid


def _parse_index(text: str | None) -> int:
    """Return the number; 0 for what no controller writes: an annotation has room for a megabyte of digits."""
    return int(text) if text is not None and len(text) < 11 and text.isdecimal() else 0
