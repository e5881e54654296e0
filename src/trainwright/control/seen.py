"""What the caches hold about one TrainJob: the only input of `decide` besides the time."""

from __future__ import annotations

from datetime import datetime

import msgspec

from trainwright.api.batch import Job
from trainwright.api.core import Event, Pod
from trainwright.api.jobset import JobSet
from trainwright.api.meta import ObjectKey
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A write of this pass, or of the last one, that the API server refused, in its own words."""

    key: ObjectKey
    reason: str
    message: str
    since: datetime


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One TrainJob and all that belongs to it.

    `runtime` is the live runtime that `runtimeRef` names, `snapshot` the runtime as the job began with it;
    either is None where it does not exist. `job_set` is the JobSet of the TrainJob's name, whoever owns it.
    `jobs`, `pods` and `events` are those of that JobSet, in any order; `events` holds Warnings only.
    `refusal` is a write that failed; None when the last writes went through.
    """

    train_job: TrainJob
    runtime: Runtime | None = None
    snapshot: Runtime | None = None
    job_set: JobSet | None = None
    jobs: tuple[Job, ...] = ()
    pods: tuple[Pod, ...] = ()
    events: tuple[Event, ...] = ()
    refusal: Refusal | None = None
