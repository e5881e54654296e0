"""Everything the operator knows of the cluster, kept current by watches, and who has to hear of a change.

    TrainJob, JobSet, Job, Pod, runtimes     of all namespaces, or of one
    ClusterTrainingRuntime                   always; with one namespace where the rights reach so far
    ConfigMap                                runtime snapshots of ours alone (by label)
    Event                                    Warnings alone (by field), about children of our TrainJobs
    Workload, PodGroup                       where they are served, once a TrainJob or a runtime needs them

Every change is mapped to the TrainJobs that it may concern; what they do about it is not decided here. All
replicas keep their caches, so that whoever becomes the leader works at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from trainwright.api.batch import Job
from trainwright.api.constants import (
    CLUSTER_TRAINING_RUNTIME,
    JOB_SET,
    SNAPSHOT_NAME_PREFIX,
    TRAIN_JOB,
    TRAINING_RUNTIME,
)
from trainwright.api.core import ConfigMap, Event, Pod
from trainwright.api.jobset import JobSet
from trainwright.api.kueue import QUEUE_LABEL, WORKLOAD_KINDS, Workload
from trainwright.api.meta import ObjectKey, is_controlled_by
from trainwright.api.pod_group import POD_GROUP_KINDS, PodGroup, list_pod_group_kinds
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime, TrainingRuntime
from trainwright.api.trainjob import TrainJob
from trainwright.cluster.kube.informer import Informer, Selection, list_owner_uids
from trainwright.cluster.kube.queue import Priority
from trainwright.cluster.kube.store import Difference
from trainwright.cluster.kube.transport import Transport
from trainwright.cluster.observe import choose_workload
from trainwright.control.snapshot import SNAPSHOT_LABEL
from trainwright.operator.optional_kinds import OptionalKind
from trainwright.operator.stored import (
    StoredJobSet,
    StoredTrainJob,
    build_runtime_name,
    decode_cluster_training_runtime,
    decode_config_map,
    decode_event,
    decode_job,
    decode_job_set,
    decode_pod,
    decode_pod_group,
    decode_train_job,
    decode_training_runtime,
    decode_workload,
    find_train_job_owner,
    is_of_train_job,
    list_gangs_of_snapshot,
    list_job_set_names,
    open_job_set,
)

# Indexes.
_JOB_SET: Final = "job set"
_RUNTIME: Final = "runtime"
_SNAPSHOT: Final = "snapshot"
_ABOUT: Final = "about"
_OWNER: Final = "owner"
_QUEUED: Final = "queued"
_GANG: Final = "gang"

_KINDS_OF_CHILDREN: Final = frozenset({JOB_SET, "Job", "Pod"})

# Told which TrainJob to look at, how urgently, and after how many seconds.
Wake = Callable[[ObjectKey, Priority, float], None]

# A look at a job of 10,000 pods takes 20 ms, and its pods change 40,000 times while it starts: what one of so
# many pods does is looked at together with what the others do in the same moment.
MANY_PODS: Final = 100
MANY_PODS_SECONDS: Final = 0.25


class Caches:
    """The stores, and the informers that fill them."""

    def __init__(self, transport: Transport, namespace: str | None = None) -> None:
        here = Selection(namespace=namespace)
        self.train_jobs: Informer[StoredTrainJob] = Informer(
            transport,
            TRAIN_JOB,
            decode_train_job,
            selection=here,
            indexes={
                _RUNTIME: _list_awaited_runtimes,
                _SNAPSHOT: _list_snapshots,
                _QUEUED: lambda job: [_QUEUED] if _goes_through_queue(job) else [],
            },
        )
        self.job_sets: Informer[StoredJobSet] = Informer(transport, JOB_SET, decode_job_set, selection=here)
        self.jobs: Informer[Job] = Informer(
            transport, "Job", decode_job, selection=here, indexes={_JOB_SET: list_job_set_names}
        )
        self.pods: Informer[Pod] = Informer(
            transport, "Pod", decode_pod, selection=here, indexes={_JOB_SET: list_job_set_names}
        )
        self.training_runtimes: Informer[TrainingRuntime] = Informer(
            transport,
            TRAINING_RUNTIME,
            decode_training_runtime,
            selection=here,
            indexes={_GANG: list_pod_group_kinds},
        )
        self.cluster_training_runtimes: Informer[ClusterTrainingRuntime] = Informer(
            transport,
            CLUSTER_TRAINING_RUNTIME,
            decode_cluster_training_runtime,
            indexes={_GANG: list_pod_group_kinds},
        )
        self.snapshots: Informer[ConfigMap] = Informer(
            transport,
            "ConfigMap",
            decode_config_map,
            selection=Selection(namespace=namespace, labels={SNAPSHOT_LABEL: "true"}),
            indexes={_GANG: list_gangs_of_snapshot},
        )
        self.warnings: Informer[Event] = Informer(
            transport,
            "Event",
            decode_event,
            selection=Selection(namespace=namespace, fields={"type": "Warning"}),
            indexes={_ABOUT: lambda event: [f"{event.metadata.namespace}/{event.involved_object.uid}"]},
            keeps=self._is_about_a_child,
        )
        self.workloads: OptionalKind[Workload] = OptionalKind(
            Informer(
                transport,
                WORKLOAD_KINDS[0],
                decode_workload,
                selection=here,
                indexes={_OWNER: list_owner_uids},
                keeps=is_of_train_job,
            ),
            WORKLOAD_KINDS,
            lambda: self.train_jobs.store.count_by(_QUEUED, _QUEUED) > 0,
        )
        self.pod_groups: dict[str, OptionalKind[PodGroup]] = {
            kind: OptionalKind(
                Informer(
                    transport,
                    kind,
                    decode_pod_group,
                    selection=here,
                    keeps=is_of_train_job,
                ),
                [kind],
                partial(self._has_gangs, kind),
            )
            for kind in POD_GROUP_KINDS.values()
        }
        # Who looks after one namespace may have no right to what belongs to all of them.
        self._shared_runtimes: OptionalKind[ClusterTrainingRuntime] | None = None
        if namespace is not None:
            self._shared_runtimes = OptionalKind(
                self.cluster_training_runtimes, [CLUSTER_TRAINING_RUNTIME], lambda: True
            )
        self._deleted_job_sets: dict[tuple[str, str], StoredJobSet] = {}
        self._wakes: list[Wake] = []
        self._connect()

    def add_wake(self, wake: Wake) -> None:
        """Call `wake` with the key of every TrainJob that a change may concern."""
        self._wakes.append(wake)

    async def run(self) -> None:
        """Keep everything current until cancelled.

        Events come last: which of them are about children of ours is told by the TrainJobs.
        """
        async with asyncio.TaskGroup() as group:
            for informer in self._list_informers():
                if informer is not self.warnings:
                    group.create_task(informer.run(), name=f"informer-{informer.kind}")
            for optional in self._list_optional():
                group.create_task(optional.run(), name=f"informer-{optional.informer.kind}")
            await self.train_jobs.synced.wait()
            group.create_task(self.warnings.run(), name="informer-Event")

    async def wait_until_synced(self) -> None:
        """Wait until every store was filled once."""
        for informer in self._list_informers():
            await informer.synced.wait()
        # Or each restart would tell every job that waits something less, and then again what it was told.
        for optional in self._list_optional():
            await optional.wait_until_known()

    def list_unsynced(self) -> list[str]:
        """Return the kinds whose store was not filled yet."""
        return [informer.kind for informer in self._list_informers() if not informer.synced.is_set()]

    def list_train_job_keys(self) -> list[ObjectKey]:
        """Return the key of every TrainJob."""
        return [build_key(stored) for stored in self.train_jobs.store]

    def find_runtime(self, key: ObjectKey) -> Runtime | None:
        """Return the runtime of either kind, or None."""
        if key.kind == TRAINING_RUNTIME:
            return self.training_runtimes.store.get(key.namespace, key.name)
        return self.cluster_training_runtimes.store.get("", key.name)

    def list_runtime_names(self, kind: str, namespace: str) -> list[str]:
        """Return the names of the runtimes of a kind that a job of this namespace may use."""
        if kind == CLUSTER_TRAINING_RUNTIME:
            return sorted(runtime.metadata.name for runtime in self.cluster_training_runtimes.store)
        return sorted(
            runtime.metadata.name
            for runtime in self.training_runtimes.store
            if runtime.metadata.namespace == namespace
        )

    def list_jobs(self, namespace: str, job_set: str) -> list[Job]:
        """Return the Jobs that carry the JobSet's name."""
        return self.jobs.store.list_by(_JOB_SET, f"{namespace}/{job_set}")

    def list_pods(self, namespace: str, job_set: str) -> list[Pod]:
        """Return the pods that carry the JobSet's name."""
        return self.pods.store.list_by(_JOB_SET, f"{namespace}/{job_set}")

    def list_warnings(self, namespace: str, about: Iterable[str]) -> list[Event]:
        """Return the Warnings in a namespace about the objects with these uids."""
        return [event for uid in about for event in self.warnings.store.list_by(_ABOUT, f"{namespace}/{uid}")]

    def find_workload(self, train_job_uid: str) -> Workload | None:
        """Return what Kueue made of the TrainJob with this uid, or None."""
        return choose_workload(self.workloads.informer.store.list_by(_OWNER, train_job_uid))

    def find_pod_group(self, train_job: TrainJob, kinds: Iterable[str]) -> PodGroup | None:
        """Return the PodGroup of the TrainJob, of one of these kinds, or None."""
        where = train_job.metadata.namespace or "", train_job.metadata.name
        found = (self.pod_groups[kind].informer.store.get(*where) for kind in kinds)
        return next((pod_group for pod_group in found if pod_group is not None), None)

    def get_deleted_job_set(self, namespace: str, name: str) -> JobSet | None:
        """Return the last state of a TrainJob's JobSet that ended and is gone, if it was seen to go."""
        stored = self._deleted_job_sets.get((namespace, name))
        return open_job_set(stored) if stored is not None else None

    def has_users(self, snapshot: ConfigMap) -> bool:
        """Say whether any TrainJob of its namespace names the snapshot."""
        digest = snapshot.metadata.name.removeprefix(SNAPSHOT_NAME_PREFIX)
        return bool(self.train_jobs.store.list_by(_SNAPSHOT, f"{snapshot.metadata.namespace}/{digest}"))

    def find_version(self, key: ObjectKey) -> str | None:
        """Return the resource version of a stored object, empty for none; None for a kind not watched."""
        informer = self._find_informer(key)
        if informer is None:
            return None
        stored = informer.store.get(key.namespace, key.name)
        return (stored.metadata.resource_version or "") if stored is not None else ""

    def add_version_handler(
        self, see: Callable[[ObjectKey, str], None], see_list: Callable[[str], None]
    ) -> None:
        """Tell every version of the kinds that we write, and every complete list of them."""
        for informer in (self.train_jobs, self.job_sets, self.jobs, self.snapshots):
            _add_version_handler(informer, see, see_list)

    def _find_informer(self, key: ObjectKey) -> Informer[Any] | None:
        if key.kind == "ConfigMap":
            return self.snapshots if key.name.startswith(SNAPSHOT_NAME_PREFIX) else None
        written: dict[str, Informer[Any]] = {
            TRAIN_JOB: self.train_jobs,
            JOB_SET: self.job_sets,
            "Job": self.jobs,
        }
        return written.get(key.kind)

    def _list_informers(self) -> list[Informer[Any]]:
        shared = [self.cluster_training_runtimes] if self._shared_runtimes is None else []
        return [
            self.train_jobs,
            self.job_sets,
            self.jobs,
            self.pods,
            self.training_runtimes,
            *shared,
            self.snapshots,
            self.warnings,
        ]

    def _list_optional(self) -> list[OptionalKind[Any]]:
        shared = [self._shared_runtimes] if self._shared_runtimes is not None else []
        return [*shared, self.workloads, *self.pod_groups.values()]

    def _has_gangs(self, kind: str) -> bool:
        """Say whether any job that runs now or later may have a PodGroup of this kind."""
        stores = (self.training_runtimes.store, self.cluster_training_runtimes.store, self.snapshots.store)
        return any(store.count_by(_GANG, kind) for store in stores)

    def _look_for_gangs(self) -> None:
        for optional in self.pod_groups.values():
            optional.look()

    def _connect(self) -> None:
        self.train_jobs.add_handler(self._hear_train_job)
        self.job_sets.add_handler(self._hear_job_set)
        self.jobs.add_handler(self._hear_child)
        self.pods.add_handler(self._hear_pod)
        self.training_runtimes.add_handler(self._hear_runtime)
        self.cluster_training_runtimes.add_handler(self._hear_runtime)
        self.snapshots.add_handler(self._hear_snapshot)
        self.warnings.add_handler(self._hear_warning)
        for optional in self._list_optional():
            optional.informer.add_handler(self._hear_owned)

    def _wake(
        self, namespace: str, name: str, priority: Priority = Priority.EVENT, delay_seconds: float = 0.0
    ) -> None:
        key = ObjectKey(TRAIN_JOB, namespace, name)
        for wake in self._wakes:
            wake(key, priority, delay_seconds)

    def _hear_train_job(self, difference: Difference[StoredTrainJob]) -> None:
        if difference.new is None:
            self._deleted_job_sets.pop(difference.key, None)
        elif _goes_through_queue(difference.new):
            self.workloads.look()
        self._wake(*difference.key)

    def _hear_job_set(self, difference: Difference[StoredJobSet]) -> None:
        old, new = difference.old, difference.new
        if new is not None:
            self._deleted_job_sets.pop(difference.key, None)
        elif old is not None and _has_ended(old):
            job = self.train_jobs.store.get(*difference.key)
            if job is not None and not job.has_ended and is_controlled_by(old.metadata, job.metadata):
                self._deleted_job_sets[difference.key] = old
        self._wake(*difference.key)

    def _hear_child(self, difference: Difference[Any]) -> None:
        for name in _list_changed_job_sets(difference):
            namespace, _, job_set = name.partition("/")
            self._wake(namespace, job_set)

    def _hear_pod(self, difference: Difference[Pod]) -> None:
        for name in _list_changed_job_sets(difference):
            namespace, _, job_set = name.partition("/")
            is_one_of_many = self.pods.store.count_by(_JOB_SET, name) > MANY_PODS
            self._wake(namespace, job_set, delay_seconds=MANY_PODS_SECONDS if is_one_of_many else 0.0)

    def _hear_runtime(self, difference: Difference[Any]) -> None:
        """Wake the jobs that wait for a runtime; those that have begun go on with their snapshot.

        Those in a queue hear that it comes or goes, since Kueue cannot start them without; an edit is nothing
        to the thousands of them.
        """
        self._look_for_gangs()
        comes_or_goes = difference.old is None or difference.new is None
        kind = TRAINING_RUNTIME if difference.key[0] else CLUSTER_TRAINING_RUNTIME
        name = build_runtime_name(kind, *difference.key)
        for job in self.train_jobs.store.list_by(_RUNTIME, name):
            if comes_or_goes or _awaits_runtime(job):
                self._wake(job.metadata.namespace or "", job.metadata.name)

    def _hear_snapshot(self, difference: Difference[ConfigMap]) -> None:
        """Wake the jobs whose snapshot went away, so that it is written again while its content is known."""
        if difference.new is not None:
            self._look_for_gangs()
            return
        namespace, name = difference.key
        digest = name.removeprefix(SNAPSHOT_NAME_PREFIX)
        for job in self.train_jobs.store.list_by(_SNAPSHOT, f"{namespace}/{digest}"):
            if not job.has_ended:
                self._wake(namespace, job.metadata.name, Priority.RESYNC)

    def _hear_owned(self, difference: Difference[Any]) -> None:
        obj = difference.new or difference.old
        owner = find_train_job_owner(obj) if obj is not None else None
        if owner is not None:
            self._wake(difference.key[0], owner.name)

    def _hear_warning(self, difference: Difference[Event]) -> None:
        if difference.new is None:
            return  # it expired; that a trouble was is still true
        about = difference.new.involved_object
        name = self._find_train_job_name(about.namespace, about.name)
        if name is not None:
            self._wake(about.namespace, name)

    def _is_about_a_child(self, event: Event) -> bool:
        about = event.involved_object
        return (
            about.kind in _KINDS_OF_CHILDREN
            and self._find_train_job_name(about.namespace, about.name) is not None
        )

    def _find_train_job_name(self, namespace: str, child: str) -> str | None:
        """Return the TrainJob whose child has this name: `<job>`, `<job>-<role>-0`, `<job>-<role>-0-0-x7k2p`.

        An event may come before the Job or pod that it is about, but never before the TrainJob, whose JobSet
        this process made.
        """
        name = child
        while name:
            if self.train_jobs.store.get(namespace, name) is not None:
                return name
            name = name.rpartition("-")[0]
        return None


def build_key(stored: StoredTrainJob) -> ObjectKey:
    """Return the key of a stored TrainJob."""
    return ObjectKey(TRAIN_JOB, stored.metadata.namespace or "", stored.metadata.name)


def _list_changed_job_sets(difference: Difference[Any]) -> set[str]:
    """Return the `<namespace>/<JobSet>` that the child belongs to, or did."""
    children = [child for child in (difference.old, difference.new) if child is not None]
    return {name for child in children for name in list_job_set_names(child)}


def _list_awaited_runtimes(job: StoredTrainJob) -> list[str]:
    """File a job under its runtime while that may matter: it waits for it, or in a queue."""
    return [job.runtime] if _awaits_runtime(job) or _goes_through_queue(job) else []


def _awaits_runtime(job: StoredTrainJob) -> bool:
    """Say whether an edit of the runtime may matter to a job: it named no snapshot, or is refused."""
    return not job.has_ended and (not job.snapshot_hash or job.is_refused)


def _goes_through_queue(job: StoredTrainJob) -> bool:
    return QUEUE_LABEL in (job.metadata.labels or {}) and not job.has_ended


def _list_snapshots(job: StoredTrainJob) -> list[str]:
    return [f"{job.metadata.namespace}/{job.snapshot_hash}"] if job.snapshot_hash else []


def _has_ended(job_set: StoredJobSet) -> bool:
    conditions = (job_set.status.conditions if job_set.status else None) or ()
    return any(c.type in ("Completed", "Failed") and c.status == "True" for c in conditions)


def _add_version_handler(
    informer: Informer[Any], see: Callable[[ObjectKey, str], None], see_list: Callable[[str], None]
) -> None:
    kind = informer.kind

    def hear(difference: Difference[Any]) -> None:
        version = difference.new.metadata.resource_version or "" if difference.new is not None else ""
        see(ObjectKey(kind, *difference.key), version)

    informer.add_handler(hear)
    informer.add_list_handler(lambda: see_list(kind))
