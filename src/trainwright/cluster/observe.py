"""From the port to what `decide` looks at: one TrainJob and all that belongs to it.

Reads only. Objects come as plain JSON and leave as structs of the fields that are used; what is not there is
None, never an error. The reads are not one snapshot of the cluster, and need not be: whatever changes between
them wakes the next pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from trainwright.api.batch import Job
from trainwright.api.constants import (
    CLUSTER_TRAINING_RUNTIME,
    GROUP,
    JOB_SET,
    JOBSET_NAME,
    TRAINING_RUNTIME,
)
from trainwright.api.core import Event, Pod
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime, TrainingRuntime
from trainwright.api.trainjob import RuntimeRef, TrainJob
from trainwright.cluster.port import Cluster
from trainwright.control.seen import Refusal, Seen
from trainwright.control.snapshot import find_snapshot, list_snapshot_names
from trainwright.errors import NotFound

_RUNTIMES: Final[dict[str, type[TrainingRuntime] | type[ClusterTrainingRuntime]]] = {
    TRAINING_RUNTIME: TrainingRuntime,
    CLUSTER_TRAINING_RUNTIME: ClusterTrainingRuntime,
}

T = TypeVar("T")


async def observe(
    cluster: Cluster,
    key: ObjectKey,
    *,
    refusal: Refusal | None = None,
    deleted_job_set: JobSet | None = None,
) -> Seen | None:
    """Return what is seen of the TrainJob; None where it does not exist.

    `refusal` and `deleted_job_set` are passed on: the caller knows what was refused and what a watch told.
    """
    body = await _find(cluster, key)
    if body is None:
        return None
    train_job = parse_object(body, TrainJob)
    runtime = await _find_runtime(cluster, key, train_job.spec.runtime_ref) if train_job.spec else None
    names = list_snapshot_names(train_job, runtime)
    config_maps = {name: await _find(cluster, ObjectKey("ConfigMap", key.namespace, name)) for name in names}
    snapshot = find_snapshot(train_job, runtime, config_maps.get)
    job_set = await _find(cluster, ObjectKey(JOB_SET, key.namespace, key.name))
    children = {JOBSET_NAME: key.name}
    jobs = (await cluster.list("Job", key.namespace, children)).items
    pods = (await cluster.list("Pod", key.namespace, children)).items
    about = [obj["metadata"]["uid"] for obj in [*([job_set] if job_set else []), *jobs, *pods]]
    return Seen(
        train_job=train_job,
        runtime=runtime,
        snapshot=snapshot.runtime,
        snapshot_problem=snapshot.problem,
        job_set=parse_object(job_set, JobSet) if job_set else None,
        deleted_job_set=deleted_job_set,
        jobs=_parse_all(jobs, Job),
        pods=_parse_all(pods, Pod),
        events=await _list_warnings(cluster, key.namespace, about),
        refusal=refusal,
    )


async def _find(cluster: Cluster, key: ObjectKey) -> Json | None:
    try:
        return await cluster.get(key)
    except NotFound:
        return None


async def _find_runtime(cluster: Cluster, key: ObjectKey, ref: RuntimeRef) -> Runtime | None:
    """Return the live runtime; None for one that does not exist, or of a kind that is no runtime."""
    kind = ref.kind or CLUSTER_TRAINING_RUNTIME
    if (ref.api_group or GROUP) != GROUP or kind not in _RUNTIMES:
        return None
    body = await _find(cluster, ObjectKey(kind, key.namespace if kind == TRAINING_RUNTIME else "", ref.name))
    return None if body is None else parse_object(body, _RUNTIMES[kind])


async def _list_warnings(cluster: Cluster, namespace: str, about: Sequence[str]) -> tuple[Event, ...]:
    events = await cluster.list_events(namespace, about) if about else []
    return _parse_all([event for event in events if event.get("type") == "Warning"], Event)


def _parse_all(bodies: Sequence[Json], kind: type[T]) -> tuple[T, ...]:
    return tuple(parse_object(body, kind) for body in bodies)
