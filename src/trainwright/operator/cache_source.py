"""What `decide` looks at, read from the caches: no request per job.

Three things are read where the caches do not have them although they may exist:

- a snapshot: the peer's form, which lies among all ConfigMaps of a namespace and is not watched, and one of
  ours whose watch is behind. Only jobs that another controller worked on, or that name a snapshot, pay for
  that, with one read per process: what it gave is remembered, until somebody has to put it right;
- a runtime that seems to be missing: it may have been made a moment before its job, and each kind has a watch
  of its own. That it is missing is remembered for a few seconds, however many jobs ask for it;
- pods that failed, of a JobSet that says that it failed while the caches show none that did: the watch of
  pods is behind, and a verdict that is given without them would never say which container ended how.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import msgspec

from trainwright.api.batch import Job
from trainwright.api.constants import (
    JOBSET_NAME,
    JOBSET_UID,
    PEER_SNAPSHOT_SUFFIX,
    SNAPSHOT_NAME_PREFIX,
    TEMPLATE_HASH_ANNOTATION,
)
from trainwright.api.core import Event, Pod
from trainwright.api.encoding import build_object, parse_object
from trainwright.api.jobset import JobSet
from trainwright.api.kueue import Workload
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.pod_group import PodGroup, list_pod_group_kinds
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.observe import RUNTIME_KINDS
from trainwright.control.problem import RESOURCES_CREATED, SNAPSHOT_LOST, SNAPSHOT_UNUSABLE
from trainwright.control.status import get_condition
from trainwright.control.view import FAILED
from trainwright.errors import Forbidden, NotFound
from trainwright.operator.caches import Caches
from trainwright.operator.expectations import Expectations
from trainwright.operator.stored import StoredJobSet, decode_pod, open_job_set, open_train_job

MISSING_SECONDS: Final = 5.0
_REMEMBERED: Final = 10_000


class CacheSource:
    """A `cluster.observe.Source` over the caches."""

    def __init__(self, caches: Caches, cluster: KubeCluster, expectations: Expectations) -> None:
        self._caches = caches
        self._cluster = cluster
        self._expectations = expectations
        self._read_before: OrderedDict[tuple[str, str], Json | None] = OrderedDict()

    async def find_train_job(self, namespace: str, name: str) -> TrainJob | None:
        """Return the TrainJob, or None."""
        stored = self._caches.train_jobs.store.get(namespace, name)
        return open_train_job(stored) if stored is not None else None

    async def find_runtime(self, key: ObjectKey) -> Runtime | None:
        """Return the runtime of either kind, or None."""
        return self._caches.find_runtime(key)

    async def find_snapshot(self, train_job: TrainJob, name: str) -> Json | None:
        """Return the ConfigMap of this name, or None; one that is not watched is read."""
        namespace = train_job.metadata.namespace or ""
        stored = self._caches.snapshots.store.get(namespace, name)
        if stored is not None:
            return build_object(stored)
        if name.endswith(PEER_SNAPSHOT_SUFFIX) and not _may_have_peer_snapshot(
            train_job, self._caches.job_sets.store.get(namespace, train_job.metadata.name)
        ):
            return None
        if name.startswith(SNAPSHOT_NAME_PREFIX) and not _names_snapshot(train_job):
            return None
        return await self._read(train_job, ObjectKey("ConfigMap", namespace, name))

    async def find_job_set(self, namespace: str, name: str) -> JobSet | None:
        """Return the JobSet, or None."""
        stored = self._caches.job_sets.store.get(namespace, name)
        return open_job_set(stored) if stored is not None else None

    async def list_jobs(self, namespace: str, job_set: str) -> Sequence[Job]:
        """Return the Jobs that carry the JobSet's name."""
        return self._caches.list_jobs(namespace, job_set)

    async def list_pods(self, namespace: str, job_set: str) -> Sequence[Pod]:
        """Return the pods that carry the JobSet's name."""
        return self._caches.list_pods(namespace, job_set)

    async def list_warnings(self, namespace: str, about: Sequence[str]) -> Sequence[Event]:
        """Return the Warnings about the objects with these uids."""
        return self._caches.list_warnings(namespace, about)

    async def find_workload(self, train_job: TrainJob) -> Workload | None:
        """Return what Kueue made of the TrainJob, or None."""
        return self._caches.find_workload(train_job.metadata.uid or "")

    async def find_pod_group(self, train_job: TrainJob, runtime: Runtime) -> PodGroup | None:
        """Return the PodGroup of a TrainJob of this runtime, or None."""
        return self._caches.find_pod_group(train_job, list_pod_group_kinds(runtime))

    def list_runtime_names(self, kind: str, namespace: str) -> Sequence[str]:
        """Return the names of the runtimes of a kind that a job of this namespace may use."""
        return self._caches.list_runtime_names(kind, namespace)

    async def catch_up(self, key: ObjectKey) -> None:
        """Wait until the caches show what was written for the TrainJob."""
        await self._expectations.wait(key)

    async def _read(self, train_job: TrainJob, key: ObjectKey) -> Json | None:
        """Read a ConfigMap once for each TrainJob; again while the job waits for it to be put right."""
        place = (train_job.metadata.uid or "", key.name)
        if place in self._read_before and not _waits_for_snapshot(train_job):
            return self._read_before[place]
        try:
            found: Json | None = await self._cluster.get(key)
        except NotFound:
            found = None
        self._read_before[place] = found
        while len(self._read_before) > _REMEMBERED:
            self._read_before.popitem(last=False)
        return found


class ReconcileSource(CacheSource):
    """What workers look at: a runtime that the caches lack is looked for on the server.

    Webhooks do not: they look for it themselves, for no longer than an API server waits for them.
    """

    def __init__(self, caches: Caches, cluster: KubeCluster, expectations: Expectations) -> None:
        super().__init__(caches, cluster, expectations)
        self._failed_pods: OrderedDict[str, list[Pod]] = OrderedDict()  # by the uid of their JobSet
        self._missing_until: dict[ObjectKey, float] = {}

    async def find_runtime(self, key: ObjectKey) -> Runtime | None:
        """Return the runtime of either kind, or None: where nobody has it, or we may not see it."""
        found = await super().find_runtime(key)
        now = asyncio.get_running_loop().time()
        if found is not None or self._missing_until.get(key, 0.0) > now:
            return found
        try:
            return parse_object(await self._cluster.get(key), RUNTIME_KINDS[key.kind])
        except (NotFound, Forbidden):
            self._missing_until = {
                other: until for other, until in self._missing_until.items() if until > now
            }
            self._missing_until[key] = now + MISSING_SECONDS
            return None

    async def list_pods(self, namespace: str, job_set: str) -> Sequence[Pod]:
        """Return the pods that carry the JobSet's name, also those whose failure the caches do not show."""
        pods = self._caches.list_pods(namespace, job_set)
        stored = self._caches.job_sets.store.get(namespace, job_set)
        if stored is None or not _has_failed(stored) or any(pod.status.phase == FAILED for pod in pods):
            return pods
        job = self._caches.train_jobs.store.get(namespace, job_set)
        if job is None or job.has_ended:
            return pods  # the verdict was given
        late = {pod.metadata.uid: pod for pod in await self._read_failed_pods(stored)}
        return [*(pod for pod in pods if pod.metadata.uid not in late), *late.values()]

    async def _read_failed_pods(self, job_set: StoredJobSet) -> list[Pod]:
        """Read the failed pods of a JobSet, once."""
        uid = job_set.metadata.uid or ""
        if uid not in self._failed_pods:
            found = await self._cluster.list(
                "Pod",
                job_set.metadata.namespace,
                {JOBSET_NAME: job_set.metadata.name},
                fields={"status.phase": FAILED},
            )
            pods = [decode_pod(msgspec.json.encode(item)) for item in found.items]
            labelled = [pod for pod in pods if (pod.metadata.labels or {}).get(JOBSET_UID) in (None, uid)]
            self._failed_pods[uid] = labelled
            while len(self._failed_pods) > _REMEMBERED:
                self._failed_pods.popitem(last=False)
        return self._failed_pods[uid]


def _has_failed(job_set: StoredJobSet) -> bool:
    conditions = (job_set.status.conditions if job_set.status else None) or ()
    return any(condition.type == FAILED and condition.status == "True" for condition in conditions)


def _names_snapshot(train_job: TrainJob) -> bool:
    ref = train_job.status.runtime_snapshot if train_job.status else None
    return ref is not None and bool(ref.hash)


def _waits_for_snapshot(train_job: TrainJob) -> bool:
    refused = get_condition(train_job.status, RESOURCES_CREATED)
    return refused is not None and refused.reason in (SNAPSHOT_UNUSABLE, SNAPSHOT_LOST)


def _may_have_peer_snapshot(train_job: TrainJob, job_set: StoredJobSet | None) -> bool:
    """Say whether the peer may have begun with the job.

    It writes its snapshot first, then a JobSet without our hash, then a status without our phase. A job that
    has neither was never looked at by it, or only in the moment before its JobSet was written, when nothing
    had begun. One that names a snapshot which is not found may have been taken over from it.
    """
    if _names_snapshot(train_job) or (train_job.status is not None and train_job.status.phase is None):
        return True
    return job_set is not None and TEMPLATE_HASH_ANNOTATION not in (job_set.metadata.annotations or {})
