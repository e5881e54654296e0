"""This machine: objects in the embedded store, and a supervisor process for each job that runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.api.constants import NODE, TRAIN_JOB, WORKING_DIRECTORY_ANNOTATION
from trainwright.api.core import Pod
from trainwright.api.encoding import build_object
from trainwright.api.kueue import QUEUE_LABEL
from trainwright.api.meta import Json, ObjectKey, ObjectMeta
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime
from trainwright.api.trainjob import TrainJob
from trainwright.cli.build_train_job import Entry
from trainwright.cli.caller_python import CallerPython, find_caller_python
from trainwright.cli.code_sources import CodeSource, RunWords, WorkingDirectory
from trainwright.cli.entries import find_entry
from trainwright.cli.files import get_working_directory
from trainwright.cli.job_rows import is_finished
from trainwright.cli.shipped_runtimes import provide_runtime
from trainwright.cli.stopping import build_key
from trainwright.cli.target_names import TargetName
from trainwright.cli.targets import LogLine, LogRequest, Packed
from trainwright.cli.targets.image_notice import list_ignored_images
from trainwright.cli.verdict import format_waiting
from trainwright.cli.watching import watch_train_job
from trainwright.cluster.local.paths import StatePaths, build_state_paths
from trainwright.cluster.local.store import LocalCluster
from trainwright.cluster.port import Cluster
from trainwright.errors import UsageError
from trainwright.runner.pods.logs import OutputLine, list_ranks, read_logs
from trainwright.runner.supervisor.daemon import hurry_supervisor, start_supervisor
from trainwright.runner.supervisor.job_folder import forget_job
from trainwright.runner.supervisor.lost import report_lost
from trainwright.runner.supervisor.supervisor_lock import find_live_supervisor
from trainwright.runner.supervisor.sweep import sweep_expired
from trainwright.runtimes import load_shipped_runtimes

if TYPE_CHECKING:
    from trainwright.runner.progress.history import HistoryEntry

_LOOK_AGAIN_SECONDS = 0.02


class LocalTarget:
    """Jobs as processes of this machine."""

    name = TargetName.LOCAL
    admits_writes = False

    def __init__(self, paths: StatePaths, namespace: str) -> None:
        self.namespace = namespace
        self._paths = paths
        self._cluster = LocalCluster(paths.store)

    def close(self) -> None:
        """Close the store."""
        self._cluster.close()

    @property
    def cluster(self) -> Cluster:
        """The objects."""
        return self._cluster

    def list_shipped_runtimes(self) -> Mapping[str, ClusterTrainingRuntime]:
        """Return them all: the one that a job names is put into the store with it."""
        return load_shipped_runtimes()

    def find_entry(self, words: RunWords, code: CodeSource) -> Entry:
        """Return what the words start on this machine."""
        if not isinstance(code, WorkingDirectory):
            raise UsageError(
                f"{code.option} says how code gets to a cluster; jobs run in this directory: leave it out"
            )
        return find_entry(words.module, words.words, words.after_dashes, os.environ.get("PATH"))

    def find_python(self) -> CallerPython | None:
        """Return the Python of the caller's shell."""
        return find_caller_python(os.environ)

    def pack(self, train_job: TrainJob, runtime: Runtime, entry: Entry, code: CodeSource) -> Packed:  # noqa: ARG002
        """Return the job as it is: its code is here. Raises UsageError where it is to wait in a queue."""
        if QUEUE_LABEL in (train_job.metadata.labels or {}):
            raise UsageError(
                "--queue names a queue of Kueue, which a cluster has; on this machine jobs start at once: "
                "leave it out"
            )
        return Packed(train_job=train_job)

    async def submit(self, packed: Packed) -> Json:
        """Create the job."""
        return await self._cluster.create(build_object(packed.train_job))

    def build_annotations(self) -> dict[str, str]:
        """Return where the job is submitted, so that relative names keep their meaning."""
        return {WORKING_DIRECTORY_ANNOTATION: str(get_working_directory())}

    async def settle(self) -> None:
        """Report jobs whose supervisor died, and delete those whose time is over."""
        await report_lost(self._cluster, self._paths)
        await sweep_expired(self._cluster, self._paths)

    async def engage(self, train_job: TrainJob) -> None:
        """See to it that the job has a supervisor; its processes get the environment of this command."""
        await provide_runtime(self._cluster, train_job)
        key = ObjectKey(TRAIN_JOB, train_job.metadata.namespace or "", train_job.metadata.name)
        if find_live_supervisor(self._paths.job(train_job.metadata.uid or "")) is not None:
            return
        # A supervisor is forked, and SQLite must not be open then: the child would believe to hold the locks
        # of this process, hold none, and lose what it writes when this process, as the last one, cleans up.
        # Watches end here and begin again. Source: sqlite.org, "How to corrupt", 2.6 (carrying a connection
        # over a fork).
        self._cluster.close()
        try:
            start_supervisor(self._paths, key, os.environ, _find_working_directory())
        finally:
            self._cluster = LocalCluster(self._paths.store)

    async def preview(self, obj: Json, field_manager: str, *, force: bool = True) -> Json:  # noqa: ARG002
        """Return what applying the object would store: nobody else applies here, so always by force."""
        return await self._cluster.preview_apply(obj, field_manager)

    async def read_logs(
        self,
        train_job: TrainJob,
        request: LogRequest,
        tell: Callable[[str], None],
    ) -> AsyncIterator[LogLine]:
        """Yield output of the job; when following, until its supervisor ends: it outlives the last line.

        Who follows is told what keeps the job from going on, each time that it is something else.
        """
        if request.previous:
            raise UsageError("on this machine logs hold the output of every attempt: leave out --previous")
        job = self._paths.job(train_job.metadata.uid or "")
        lines = read_logs(
            job.pods,
            rank=request.rank,
            tail=request.tail,
            follow=request.follow,
            is_finished=lambda: find_live_supervisor(job) is None,
        )
        telling = asyncio.create_task(self._tell_causes(train_job, tell)) if request.follow else None
        try:
            async for line in lines:
                yield LogLine(source=_name_source(train_job.metadata.name, line), text=line.text)
        finally:
            if telling is not None:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)

    async def _tell_causes(self, train_job: TrainJob, tell: Callable[[str], None]) -> None:
        told = ""
        async for seen in watch_train_job(self, build_key(train_job)):
            cause = seen.status.cause if seen is not None and seen.status is not None else None
            if seen is None or cause is None or is_finished(seen):
                continue  # how it ended is told at the end
            if (words := format_waiting(train_job.metadata.name, cause)) != told:
                told = words
                tell(words)

    async def list_ranks(self, meta: ObjectMeta) -> list[int]:
        """Return the ranks that have printed something."""
        return list(list_ranks(self._paths.job(meta.uid or "").pods))

    async def kill(self, train_job: TrainJob) -> None:
        """Let the supervisor kill at once what it would stop with a grace period."""
        hurry_supervisor(self._paths, train_job.metadata.uid or "")

    async def wait_until_idle(self, meta: ObjectMeta) -> None:
        """Wait until the job has no supervisor: one ends when no process of its job is left."""
        # Other processes are waited for: there is nothing in this one to be told by.
        while find_live_supervisor(self._paths.job(meta.uid or "")) is not None:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def clean_up(self, meta: ObjectMeta) -> None:
        """Remove the folder of a deleted job; a supervisor that is still there does so when it ends."""
        while not forget_job(self._paths, meta.uid or ""):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def read_reports(self, meta: ObjectMeta) -> list[HistoryEntry]:
        """Return the history of reported metrics, oldest first."""
        from trainwright.runner.progress.history import read_history

        return read_history(self._paths.job(meta.uid or "").progress)

    def list_notices(self, train_job: TrainJob, runtime: Runtime) -> Sequence[str]:
        """Say which images have no effect here."""
        images = list_ignored_images(train_job, runtime, load_shipped_runtimes().get(runtime.metadata.name))
        if not images:
            return []
        which = f"image {images[0]} is" if len(images) == 1 else f"images {', '.join(images)} are"
        return [f"{which} ignored for processes on this machine"]

    def describe_node(self, train_job: TrainJob, pods: Sequence[Pod]) -> str:
        """Say who supervises the job on this machine."""
        supervisor = find_live_supervisor(self._paths.job(train_job.metadata.uid or ""))
        if supervisor is not None:
            return f"this machine; supervised by process {supervisor.process.pid}"
        running = sum(pod.status.phase == "Running" for pod in pods)
        return (
            f"this machine; {running} pods should run, but nobody supervises them"
            if running
            else ("this machine; nothing of the job runs")
        )


def _find_working_directory() -> Path:
    """Return where containers start whose job does not say: here, or at home where that was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path.home()


def _name_source(job: str, line: OutputLine) -> str:
    """Return `rank 3`, or for what no rank printed the pod without the job's name and its random letters."""
    if line.rank is not None:
        return f"rank {line.rank}"
    pod = line.pod.removeprefix(f"{job}-").rpartition("-")[0] or line.pod
    return pod if line.container in {"", NODE} else f"{pod} {line.container}"


@asynccontextmanager
async def open_local(namespace: str) -> AsyncIterator[LocalTarget]:
    """Open this user's store. Raises StateDirectoryError."""
    paths = build_state_paths(os.environ, Path.home())
    target = LocalTarget(paths, namespace)
    try:
        yield target
    finally:
        target.close()
