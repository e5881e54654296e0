"""What `decide` looks at: one TrainJob and all that belongs to it.

Reads only. `Source` says what is read; there are two: the port (`PortSource`, here), where every read is a
request, and the operator's caches, where none is. What is not there is None, never an error. The reads are
not one snapshot of the cluster, and need not be: whatever changes between them wakes the next pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, TypeVar

from trainwright.api.batch import Job
from trainwright.api.constants import (
    CLUSTER_TRAINING_RUNTIME,
    GROUP,
    JOB_SET,
    JOBSET_NAME,
    TRAIN_JOB,
    TRAINING_RUNTIME,
)
from trainwright.api.core import ConfigMap, Event, Pod
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet
from trainwright.api.kueue import JOB_UID_LABEL, QUEUE_LABEL, WORKLOAD_KINDS, Workload
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.pod_group import PodGroup, list_pod_group_kinds
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime, TrainingRuntime
from trainwright.api.trainjob import RuntimeRef, TrainJob
from trainwright.cluster.port import Cluster
from trainwright.control.seen import Refusal, Seen
from trainwright.control.snapshot import SNAPSHOT_LABEL, find_snapshot, list_snapshot_names
from trainwright.errors import NotFound

RUNTIME_KINDS: Final[dict[str, type[TrainingRuntime] | type[ClusterTrainingRuntime]]] = {
    TRAINING_RUNTIME: TrainingRuntime,
    CLUSTER_TRAINING_RUNTIME: ClusterTrainingRuntime,
}

T = TypeVar("T")


class Source(Protocol):
    """Where the objects are read from."""

    async def find_train_job(self, namespace: str, name: str) -> TrainJob | None:
        """Return the TrainJob, or None."""
        ...

    async def find_runtime(self, key: ObjectKey) -> Runtime | None:
        """Return the runtime of either kind, or None."""
        ...

    async def find_snapshot(self, train_job: TrainJob, name: str) -> Json | None:
        """Return the ConfigMap of this name, in which a snapshot of the job's runtime may be, or None."""
        ...

    async def find_job_set(self, namespace: str, name: str) -> JobSet | None:
        """Return the JobSet, or None."""
        ...

    async def list_jobs(self, namespace: str, job_set: str) -> Sequence[Job]:
        """Return the Jobs that carry the JobSet's name, in any order."""
        ...

    async def list_pods(self, namespace: str, job_set: str) -> Sequence[Pod]:
        """Return the pods that carry the JobSet's name, in any order."""
        ...

    async def list_warnings(self, namespace: str, about: Sequence[str]) -> Sequence[Event]:
        """Return the Warning events about the objects with these uids, in any order."""
        ...

    async def find_workload(self, train_job: TrainJob) -> Workload | None:
        """Return what Kueue made of the TrainJob; None where there is none, or no Kueue."""
        ...

    async def find_pod_group(self, train_job: TrainJob, runtime: Runtime) -> PodGroup | None:
        """Return the PodGroup of a TrainJob of this runtime, or None."""
        ...

    async def catch_up(self, key: ObjectKey) -> None:
        """Wait until what was written about the TrainJob can be read; a while, if it cannot."""
        ...


async def observe(
    cluster: Cluster,
    key: ObjectKey,
    *,
    refusal: Refusal | None = None,
    deleted_job_set: JobSet | None = None,
) -> Seen | None:
    """Return what is seen of the TrainJob through the port; None where it does not exist."""
    return await observe_from(PortSource(cluster), key, refusal=refusal, deleted_job_set=deleted_job_set)


async def observe_from(
    source: Source,
    key: ObjectKey,
    *,
    refusal: Refusal | None = None,
    deleted_job_set: JobSet | None = None,
) -> Seen | None:
    """Return what is seen of the TrainJob; None where it does not exist.

    `refusal` and `deleted_job_set` are passed on: the caller knows what was refused and what a watch told.
    """
    train_job = await source.find_train_job(key.namespace, key.name)
    if train_job is None:
        return None
    runtime_key = build_runtime_key(train_job.spec.runtime_ref, key.namespace) if train_job.spec else None
    runtime = await source.find_runtime(runtime_key) if runtime_key else None
    config_map: dict[str, Json] = {}
    for name in list_snapshot_names(train_job, runtime):
        if found := await source.find_snapshot(train_job, name):
            config_map[name] = found
            break  # only the first that exists counts
    snapshot = find_snapshot(train_job, runtime, config_map.get)
    job_set = await source.find_job_set(key.namespace, key.name)
    jobs = await source.list_jobs(key.namespace, key.name)
    pods = await source.list_pods(key.namespace, key.name)
    children = [*([job_set.metadata] if job_set else []), *(job.metadata for job in jobs)]
    about = [
        metadata.uid for metadata in (*children, *(pod.metadata for pod in pods)) if metadata.uid is not None
    ]
    is_suspended = train_job.spec is not None and bool(train_job.spec.suspend)
    gang_runtime = snapshot.runtime or runtime
    return Seen(
        train_job=train_job,
        runtime=runtime,
        snapshot=snapshot.runtime,
        snapshot_problem=snapshot.problem,
        job_set=job_set,
        deleted_job_set=deleted_job_set,
        jobs=tuple(jobs),
        pods=tuple(pods),
        events=tuple(await source.list_warnings(key.namespace, about)) if about else (),
        workload=await source.find_workload(train_job) if is_suspended else None,
        pod_group=await source.find_pod_group(train_job, gang_runtime) if gang_runtime else None,
        refusal=refusal,
    )


def choose_workload(workloads: Iterable[Workload]) -> Workload | None:
    """Return the newest Workload of a job that is not being deleted: Kueue replaces one that does not fit."""
    return max(
        (workload for workload in workloads if workload.metadata.deletion_timestamp is None),
        key=lambda workload: (str(workload.metadata.creation_timestamp or ""), workload.metadata.name),
        default=None,
    )


def build_runtime_key(ref: RuntimeRef, namespace: str) -> ObjectKey | None:
    """Return the key of the runtime that a job of this namespace refers to; None for no kind of ours."""
    kind = ref.kind or CLUSTER_TRAINING_RUNTIME
    if (ref.api_group or GROUP) != GROUP or kind not in RUNTIME_KINDS:
        return None
    return ObjectKey(kind, namespace if kind == TRAINING_RUNTIME else "", ref.name)


class PortSource:
    """Reads through the port. What was written can be read at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def find_train_job(self, namespace: str, name: str) -> TrainJob | None:
        """Return the TrainJob, or None."""
        body = await self._find(ObjectKey(TRAIN_JOB, namespace, name))
        return None if body is None else parse_object(body, TrainJob)

    async def find_runtime(self, key: ObjectKey) -> Runtime | None:
        """Return the runtime of either kind, or None."""
        body = await self._find(key)
        return None if body is None else parse_object(body, RUNTIME_KINDS[key.kind])

    async def find_snapshot(self, train_job: TrainJob, name: str) -> Json | None:
        """Return the ConfigMap, or None."""
        return await self._find(ObjectKey("ConfigMap", train_job.metadata.namespace or "", name))

    async def find_job_set(self, namespace: str, name: str) -> JobSet | None:
        """Return the JobSet, or None."""
        body = await self._find(ObjectKey(JOB_SET, namespace, name))
        return None if body is None else parse_object(body, JobSet)

    async def list_jobs(self, namespace: str, job_set: str) -> Sequence[Job]:
        """Return the Jobs that carry the JobSet's name."""
        return _parse_all((await self._cluster.list("Job", namespace, {JOBSET_NAME: job_set})).items, Job)

    async def list_pods(self, namespace: str, job_set: str) -> Sequence[Pod]:
        """Return the pods that carry the JobSet's name."""
        return _parse_all((await self._cluster.list("Pod", namespace, {JOBSET_NAME: job_set})).items, Pod)

    async def list_warnings(self, namespace: str, about: Sequence[str]) -> Sequence[Event]:
        """Return the Warning events about the objects with these uids."""
        events = await self._cluster.list_events(namespace, about)
        return _parse_all([event for event in events if event.get("type") == "Warning"], Event)

    async def find_workload(self, train_job: TrainJob) -> Workload | None:
        """Return what Kueue made of the TrainJob; one that goes through no queue costs no request."""
        metadata = train_job.metadata
        if QUEUE_LABEL not in (metadata.labels or {}):
            return None
        for kind in WORKLOAD_KINDS:
            try:
                labels = {JOB_UID_LABEL: metadata.uid or ""}
                bodies = (await self._cluster.list(kind, metadata.namespace, labels)).items
            except NotFound:
                continue
            return choose_workload(_parse_all(bodies, Workload))
        return None

    async def find_pod_group(self, train_job: TrainJob, runtime: Runtime) -> PodGroup | None:
        """Return the PodGroup; a job whose pods are no gang costs no request."""
        for kind in list_pod_group_kinds(runtime):
            key = ObjectKey(kind, train_job.metadata.namespace or "", train_job.metadata.name)
            if (body := await self._find(key)) is not None:
                return parse_object(body, PodGroup)
        return None

    async def catch_up(self, key: ObjectKey) -> None:
        """Return at once."""

    async def list_train_jobs(self, namespace: str) -> list[TrainJob]:
        """Return the TrainJobs of a namespace."""
        return _parse_all((await self._cluster.list(TRAIN_JOB, namespace)).items, TrainJob)

    async def list_snapshots(self, namespace: str) -> list[ConfigMap]:
        """Return the runtime snapshots of a namespace."""
        listed = await self._cluster.list("ConfigMap", namespace, {SNAPSHOT_LABEL: "true"})
        return _parse_all(listed.items, ConfigMap)

    async def _find(self, key: ObjectKey) -> Json | None:
        try:
            return await self._cluster.get(key)
        except NotFound:
            return None


def _parse_all(bodies: Sequence[Json], kind: type[T]) -> list[T]:
    return [parse_object(body, kind) for body in bodies]
