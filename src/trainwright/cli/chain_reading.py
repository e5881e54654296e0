"""Read all that belongs to one job, for `explain`."""

from __future__ import annotations

from collections.abc import Sequence

from trainwright.api.batch import Job
from trainwright.api.constants import JOB_SET, JOBSET_NAME
from trainwright.api.core import Event, Pod
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet
from trainwright.api.kueue import Workload
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.trainjob import TrainJob
from trainwright.cli.explanation import Chain
from trainwright.cli.targets import Target
from trainwright.cluster.observe import PortSource
from trainwright.errors import Forbidden, NotFound


async def read_chain(target: Target, train_job: TrainJob) -> Chain:
    """Return the job with what belongs to it, as far as the caller may see it."""
    namespace, name = train_job.metadata.namespace or "", train_job.metadata.name
    hidden: list[str] = []
    bodies = {
        kind: await _list_children(target, kind, namespace, name, hidden) for kind in (JOB_SET, "Job", "Pod")
    }
    job_set = next((parse_object(body, JobSet) for body in bodies[JOB_SET]), None)
    jobs = tuple(parse_object(body, Job) for body in bodies["Job"])
    pods = tuple(parse_object(body, Pod) for body in bodies["Pod"])
    workload = await _find_workload(target, train_job, hidden)
    owners = (train_job, *((job_set,) if job_set else ()), *jobs, *pods)
    try:
        events = await target.cluster.list_events(
            namespace, [owner.metadata.uid for owner in owners if owner.metadata.uid]
        )
    except Forbidden:
        events = []
        hidden.append("Event")
    return Chain(
        train_job=train_job,
        job_set=job_set,
        jobs=jobs,
        pods=pods,
        workload=workload,
        events=tuple(parse_object(body, Event) for body in events),
        node=target.describe_node(train_job, pods),
        hidden=tuple(hidden),
    )


async def _find_workload(target: Target, train_job: TrainJob, hidden: list[str]) -> Workload | None:
    """Return what Kueue made of a job that goes through its queues, or None."""
    try:
        return await PortSource(target.cluster).find_workload(train_job)
    except Forbidden:
        hidden.append("Workload")
        return None


async def _list_children(
    target: Target, kind: str, namespace: str, name: str, hidden: list[str]
) -> Sequence[Json]:
    """Return the objects of a kind that belong to the job; `hidden` collects kinds that may not be read."""
    try:
        if kind == JOB_SET:
            return [await target.cluster.get(ObjectKey(JOB_SET, namespace, name))]
        return (await target.cluster.list(kind, namespace, {JOBSET_NAME: name})).items
    except NotFound:
        return []
    except Forbidden:
        hidden.append(kind)
        return []
