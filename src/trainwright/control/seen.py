"""What the caches hold about one TrainJob: the only input of `decide` besides the time."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from trainwright.api.batch import Job
from trainwright.api.core import Event, Pod
from trainwright.api.jobset import JobSet
from trainwright.api.kueue import Workload
from trainwright.api.meta import ObjectKey
from trainwright.api.pod_group import PodGroup
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob

# The reason of a refusal by a server that does not know the kind of the object.
KIND_NOT_SERVED: Final = "KindNotServed"


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A write of this pass, or of the last one, that the API server refused, in its own words.

    `reason` is the server's (Forbidden, Invalid, Conflict, ...), or `KIND_NOT_SERVED`. `api_version` is the
    object's, where a whole object was written. `since` is when the write was refused, on the clock that
    `decide` is given: a write is repeated one second after it at the earliest, so the pass that follows a
    refusal at once only tells the user. The shell may hand the same refusal to later passes, until their
    writes went through, or forget it: the status remembers.
    """

    key: ObjectKey
    reason: str
    message: str
    since: datetime
    api_version: str = ""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One TrainJob and all that belongs to it.

    `runtime` is the live runtime that `runtimeRef` names, `snapshot` the runtime as the job began with it
    (`control.snapshot.find_snapshot` finds it, and `snapshot_problem` where one exists but cannot be
    used); each is None where it does not exist. `job_set` is the JobSet of the TrainJob's name, whoever
    owns it; `deleted_job_set` is the last state of one that is gone, as long as the shell still knows it (a
    watch delivers it), so that a JobSet that finished and was swept at once still counts as finished.
    `jobs`, `pods` and `events` are those that carry the JobSet's name, in any order; `events` holds Warnings
    about the JobSet, its Jobs and their pods only. `workload` is what Kueue made of a job that goes through
    its queues, `pod_group` what the gang scheduler of the runtime's policy looks after; whoever owns them,
    and None where there is none, or nobody serves them. `refusal` is a write that failed; None when the
    last writes went through.
    """

    train_job: TrainJob
    runtime: Runtime | None = None
    snapshot: Runtime | None = None
    snapshot_problem: str | None = None
    job_set: JobSet | None = None
    deleted_job_set: JobSet | None = None
    jobs: tuple[Job, ...] = ()
    pods: tuple[Pod, ...] = ()
    events: tuple[Event, ...] = ()
    workload: Workload | None = None
    pod_group: PodGroup | None = None
    refusal: Refusal | None = None
