"""Read all that belongs to one job, for `explain`."""

from __future__ import annotations

from trainwright.api.batch import Job
from trainwright.api.constants import JOB_SET, JOBSET_NAME
from trainwright.api.core import Event, Pod
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet
from trainwright.api.meta import ObjectKey
from trainwright.api.trainjob import TrainJob
from trainwright.cli.explanation import Chain
from trainwright.cli.targets import Target
from trainwright.errors import NotFound


async def read_chain(target: Target, train_job: TrainJob) -> Chain:
    """Return the job with its JobSet, Jobs, pods and events."""
    namespace, name = train_job.metadata.namespace or "", train_job.metadata.name
    labels = {JOBSET_NAME: name}
    try:
        job_set = parse_object(await target.cluster.get(ObjectKey(JOB_SET, namespace, name)), JobSet)
    except NotFound:
        job_set = None
    jobs = tuple(
        parse_object(body, Job) for body in (await target.cluster.list("Job", namespace, labels)).items
    )
    pods = tuple(
        parse_object(body, Pod) for body in (await target.cluster.list("Pod", namespace, labels)).items
    )
    owners = (train_job, *((job_set,) if job_set else ()), *jobs, *pods)
    events = await target.cluster.list_events(namespace, [o.metadata.uid for o in owners if o.metadata.uid])
    return Chain(
        train_job=train_job,
        job_set=job_set,
        jobs=jobs,
        pods=pods,
        events=tuple(parse_object(body, Event) for body in events),
        node=target.describe_node(train_job, pods),
    )
