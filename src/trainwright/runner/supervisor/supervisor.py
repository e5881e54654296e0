"""One process per TrainJob that makes it run on this machine: the loop around everything else.

    watch, or a process ended --> pass: TrainJob controller -> JobSet and Job controllers -> kubelet
                                   ^                                                         |
                                   +----------- again, until nothing is written <-----------+

A pass looks at the world as it is, never at what woke it. The loop ends when nothing is left to do: the job
finished, is suspended and its pods are gone, or was deleted. `supervisor_process` holds the lock.

SIGTERM ends the job: pods are stopped with their grace period and the JobSet fails, saying so. SIGINT, or a
second SIGTERM, gives up grace periods.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

import msgspec

from trainwright.api.constants import (
    CLUSTER_TRAINING_RUNTIME,
    JOB_SET,
    JOBSET_NAME,
    TRAIN_JOB,
    TRAINING_RUNTIME,
)
from trainwright.api.encoding import build_json
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.local.paths import StatePaths
from trainwright.cluster.port import Change, ChangeType, Cluster, Expired
from trainwright.control.progress_protocol import Report
from trainwright.errors import Conflict, NotFound, UserError
from trainwright.runner.controllers.ending import SUPERVISOR_STOPPED, End, build_end
from trainwright.runner.controllers.settle import MOST_ROUNDS, Reconcile, settle, suspend_unstarted
from trainwright.runner.controllers.shell import Clock, Controllers, index_uids, write
from trainwright.runner.controllers.train_job_state import is_finished, is_foreign, is_suspended
from trainwright.runner.executor import Executor
from trainwright.runner.pods.job_ports import JobPorts
from trainwright.runner.pods.kubelet import Kubelet, PodTools
from trainwright.runner.pods.pod_context import PodContexts, Surroundings
from trainwright.runner.pods.pod_devices import PodDevices
from trainwright.runner.progress.history import ProgressHistory
from trainwright.runner.progress.server import ProgressServer
from trainwright.runner.supervisor.expiry import note_expiry
from trainwright.runner.supervisor.job_folder import remove_job
from trainwright.runner.supervisor.sweep import sweep_claims
from trainwright.runner.supervisor_log import SupervisorLog

FIRST_RETRY_SECONDS: Final = 0.5
LONGEST_RETRY_SECONDS: Final = 30.0

_WATCHED: Final = (
    TRAIN_JOB,
    JOB_SET,
    "Job",
    "Pod",
    "ConfigMap",
    "Secret",
    TRAINING_RUNTIME,
    CLUSTER_TRAINING_RUNTIME,
)
_RESUME: Final = "trainwright resume"


class Job(msgspec.Struct, frozen=True):
    """Which TrainJob is supervised. The uid tells it from a later one of the same name."""

    key: ObjectKey
    uid: str


class Engine(msgspec.Struct, frozen=True):
    """What a supervisor works with."""

    cluster: Cluster
    paths: StatePaths
    executor: Executor
    reconcile: Reconcile
    devices: PodDevices
    log: SupervisorLog
    clock: Clock


class Supervisor:
    """Makes one TrainJob run. `run` returns when nothing is left to do for it."""

    def __init__(self, engine: Engine, job: Job, surroundings: Surroundings) -> None:
        self._engine = engine
        self._job = job
        self._wake = asyncio.Event()
        self._seen: dict[tuple[str, str], Json] = {}
        self._is_ending = False
        self._retries = 0
        self._log = engine.log
        paths = engine.paths.job(job.uid)
        self._controllers = Controllers(engine.cluster, job.key, job.uid, engine.clock)
        self._ports = JobPorts(engine.paths.root)
        self._progress = ProgressServer(
            job.key.namespace,
            job.key.name,
            paths.token,
            self._store_report,
            ProgressHistory(paths.progress),
        )
        contexts = PodContexts(
            engine.cluster,
            engine.paths,
            surroundings,
            get_port=self._ports.get,
            trainer_environment=self._progress.environment,
        )
        tools = PodTools(engine.executor, contexts, engine.devices, engine.log, engine.clock)
        self._kubelet = Kubelet(engine.cluster, paths, tools, self._wake.set)

    async def run(self) -> None:
        """Work until nothing is left to do, and leave no process behind."""
        try:
            async with self._progress, asyncio.TaskGroup() as tasks:
                watcher = tasks.create_task(self._watch(), name="watch")
                with self._listening_to_signals(tasks):
                    await self._loop(tasks)
                watcher.cancel()
        finally:
            self._ports.release()

    async def _loop(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._wake.clear()
            try:
                pause = await self._pass(tasks)
                if await self._is_done(pause):
                    return
                self._retries = 0
            except UserError as error:
                # The store may be full or locked for a while: the job's processes go on meanwhile.
                pause = min(FIRST_RETRY_SECONDS * 2**self._retries, LONGEST_RETRY_SECONDS)
                self._retries += 1
                self._log.warning("pass failed", error=str(error), retry_seconds=pause)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    async def _pass(self, tasks: asyncio.TaskGroup) -> float | None:
        """Bring the job one step on, again and again until nothing is written; return when to look again."""
        pauses: list[float | None] = []
        for _ in range(MOST_ROUNDS):
            pauses.clear()
            train_job = await self._get_train_job()
            if train_job is None:
                # Its objects went with it; what runs is stopped. A new job of its name is not ours.
                await self._kubelet.sync([], tasks)
                return None
            if self._is_ending and not (is_finished(train_job) or is_suspended(train_job)):
                return await self._end(tasks)
            engine = self._engine
            pauses.append(await engine.reconcile(engine.cluster, self._job.key, engine.clock))
            done = await self._controllers.run_once()
            if self._kubelet.is_idle:
                self._ports.check()
            synced = await self._kubelet.sync(done.pods, tasks)
            pauses += [done.requeue_after, synced.requeue_after]
            if not (done.wrote or synced.wrote):
                break
        else:
            self._log.warning("the job does not come to rest", rounds=MOST_ROUNDS)
            return FIRST_RETRY_SECONDS
        return min((pause for pause in pauses if pause is not None), default=None)

    async def _end(self, tasks: asyncio.TaskGroup) -> float | None:
        """Stop all pods; once they are gone, fail the job."""
        self._kubelet.stop_all(tasks)
        cluster, clock = self._engine.cluster, self._engine.clock
        job_set = await self._controllers.get_job_set()
        if job_set is None:
            message = (
                f"the supervisor of this job was asked to end; run it with `{_RESUME} {self._job.key.name}`"
            )
            end = End(SUPERVISOR_STOPPED, message)
            await suspend_unstarted(cluster, self._job.key, self._job.uid, end, clock)
            return None
        _, pods = await self._controllers.list_children(job_set)
        await self._kubelet.report(pods)
        if self._kubelet.is_idle:
            message = (
                f"the supervisor of this job (pid {os.getpid()}) was asked to end by a signal and stopped "
                "its processes; submit the job again to run it once more"
            )
            jobs, pods = await self._controllers.list_children(job_set)
            uids = index_uids((job_set, *jobs, *pods))
            for status in build_end(job_set, jobs, pods, End(SUPERVISOR_STOPPED, message), clock()):
                with contextlib.suppress(NotFound, Conflict):
                    await write(cluster, status, clock(), uids)
            await settle(cluster, self._job.key, self._job.uid, self._engine.reconcile, clock)
        return None

    async def _is_done(self, pause: float | None) -> bool:
        """Say whether nothing is left to do, after a pass that wrote nothing more."""
        if not self._kubelet.is_idle:
            return False
        train_job = await self._get_train_job()
        if train_job is None:
            await sweep_claims(self._engine.cluster, self._engine.paths)
            remove_job(self._engine.paths, self._job.uid)
            return True
        if is_finished(train_job):
            if pause is not None:
                due = self._engine.clock() + timedelta(seconds=pause)
                note_expiry(self._engine.paths, self._job.uid, self._job.key, due)
            return True
        return self._is_ending or is_suspended(train_job) or is_foreign(train_job)

    async def _get_train_job(self) -> Json | None:
        try:
            train_job = await self._engine.cluster.get(self._job.key)
        except NotFound:
            return None
        return train_job if train_job["metadata"]["uid"] == self._job.uid else None

    async def _store_report(self, report: Report) -> None:
        """Write what the training code reported. Fields that it left out this time are gone."""
        status = {
            **dict.fromkeys(
                ("progressPercentage", "estimatedRemainingSeconds", "metrics", "lastUpdatedTime")
            ),
            **build_json(report.status),
        }
        with contextlib.suppress(NotFound, Conflict):
            await self._engine.cluster.patch_status(
                self._job.key,
                {"metadata": {"uid": self._job.uid}, "status": {"trainerStatus": status}},
            )

    async def _watch(self) -> None:
        """Wake the loop when somebody else changed something that matters to this job."""
        labels = {JOBSET_NAME: self._job.key.name}
        while True:
            try:
                listed = await self._engine.cluster.list("Pod", self._job.key.namespace, labels)
                self._wake.set()
                async for change in self._engine.cluster.watch(_WATCHED, None, listed.resource_version):
                    if self._matters(change):
                        self._wake.set()
            except Expired:
                continue
            except UserError as error:
                self._log.warning("watch failed", error=str(error))
                await asyncio.sleep(FIRST_RETRY_SECONDS)

    def _matters(self, change: Change) -> bool:
        """Say whether a change can make a difference.

        Status writes cannot: this process alone writes them, and its passes go on until they are done.
        """
        metadata = change.object["metadata"]
        kind, name = change.object["kind"], metadata["name"]
        if kind in {TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME}:
            return True
        if metadata.get("namespace") != self._job.key.namespace:
            return False
        if kind in {"ConfigMap", "Secret"}:
            return True
        owner = name if kind in {TRAIN_JOB, JOB_SET} else (metadata.get("labels") or {}).get(JOBSET_NAME)
        if owner != self._job.key.name:
            return False
        kept = ("uid", "generation", "labels", "annotations")
        seen = {field: metadata.get(field) for field in kept} | {"deleted": change.type == ChangeType.DELETED}
        is_new = self._seen.get((kind, name)) != seen
        self._seen[kind, name] = seen
        return is_new

    @contextlib.contextmanager
    def _listening_to_signals(self, tasks: asyncio.TaskGroup) -> Iterator[None]:
        loop = asyncio.get_running_loop()

        def end() -> None:
            self._log.info("asked to end", again=self._is_ending)
            if self._is_ending:
                hurry()
            self._is_ending = True
            self._wake.set()

        def hurry() -> None:
            self._log.info("asked to hurry")
            self._kubelet.hurry(tasks)

        handlers: dict[int, Callable[[], None]] = {signal.SIGTERM: end, signal.SIGINT: hurry}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, handlers)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for number in handlers:
                loop.remove_signal_handler(number)
