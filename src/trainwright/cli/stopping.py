"""Ask a job to end for good, and see it end."""

from __future__ import annotations

from datetime import UTC, datetime

from trainwright.api.constants import STOP_ANNOTATION, TRAIN_JOB
from trainwright.api.encoding import parse_object
from trainwright.api.meta import ObjectKey
from trainwright.api.trainjob import TrainJob
from trainwright.cli.job_rows import is_finished
from trainwright.cli.targets import Target
from trainwright.cli.watching import watch_train_job


def build_key(train_job: TrainJob) -> ObjectKey:
    """Return which object this TrainJob is."""
    return ObjectKey(TRAIN_JOB, train_job.metadata.namespace or "", train_job.metadata.name)


async def request_stop(target: Target, train_job: TrainJob) -> None:
    """Write the request; whoever works on the job ends its processes and marks it Failed."""
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    # With its uid: a job of the same name that was made meanwhile is another one.
    metadata = {"uid": train_job.metadata.uid, "annotations": {STOP_ANNOTATION: moment}}
    stored = await target.cluster.patch(build_key(train_job), {"metadata": metadata})
    await target.engage(parse_object(stored, TrainJob))


async def wait_until_finished(target: Target, train_job: TrainJob) -> TrainJob | None:
    """Return the job once it is Complete or Failed and no process of it is left; None if it was deleted."""
    last: TrainJob | None = None
    async for seen in watch_train_job(target, build_key(train_job)):
        last = seen
        if seen is None or is_finished(seen):
            break
    await target.wait_until_idle(train_job.metadata)
    return last
