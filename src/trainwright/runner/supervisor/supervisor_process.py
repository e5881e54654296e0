"""What a supervisor's process does from its first line to its last: the lock, the log, the loop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import msgspec

from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import StatePaths
from trainwright.cluster.local.store import LocalCluster
from trainwright.cluster.reconcile import reconcile
from trainwright.errors import NotFound, StateDirectoryError
from trainwright.plugins import load_frameworks
from trainwright.render import render
from trainwright.runner.controllers.shell import Controllers
from trainwright.runner.executor import Executor
from trainwright.runner.executors.leftovers import end_leftovers
from trainwright.runner.pods.pod_context import Surroundings
from trainwright.runner.pods.pod_devices import PodDevices
from trainwright.runner.progress.package import PYTHON_PATH_ENV, build_python_path, path_for_jobs
from trainwright.runner.supervisor.handshake import BUSY, STARTED, Handshake
from trainwright.runner.supervisor.lost_job import report_lost_job
from trainwright.runner.supervisor.supervision import acquire_patiently, keep_supervised, needs_supervisor
from trainwright.runner.supervisor.supervisor import Engine, Job, Supervisor
from trainwright.runner.supervisor.supervisor_lock import SupervisorLock, get_mark
from trainwright.runner.supervisor_log import SupervisorLog

BuildExecutor = Callable[[], Executor]


def build_process_executor() -> Executor:
    """Return the executor that runs pods as processes of this machine."""
    from trainwright.runner.executors.process import ProcessExecutor

    return ProcessExecutor()


async def supervise(
    paths: StatePaths,
    key: ObjectKey,
    surroundings: Surroundings,
    tell: Callable[[Handshake], None],
    build_executor: BuildExecutor = build_process_executor,
) -> None:
    """Supervise a TrainJob until nothing is left to do, and say through `tell` how that begins.

    Where a supervisor is at work this returns at once. Where one died before, that is reported first.
    Raises NotFound, StateDirectoryError, LockHeld.
    """
    with LocalCluster(paths.store) as cluster:
        train_job = await cluster.get(key)
        job = Job(key, train_job["metadata"]["uid"])
        lock = SupervisorLock(paths, job.uid)
        if not acquire_patiently(lock, paths, job.uid):
            tell(Handshake(BUSY))
            return
        was_lost = get_mark(paths, job.uid).exists()
        if was_lost:
            end_leftovers(paths.job(job.uid))
        controllers = Controllers(cluster, key, job.uid, read_clock)
        job_set = await controllers.get_job_set() if was_lost else None
        if job_set is not None and not job_set["spec"].get("suspend"):
            await report_lost_job(cluster, paths, job.uid, reconcile, read_clock)
            if not lock.is_in_place():
                raise NotFound(key.kind, key.name, "it was deleted meanwhile")
        surroundings = _offer_progress(surroundings, paths)
        with paths.job(job.uid).supervisor_log.open("ab", buffering=0) as log:
            engine = Engine(
                cluster=cluster,
                paths=paths,
                executor=build_executor(),
                reconcile=partial(reconcile, render=partial(render, frameworks=load_frameworks())),
                devices=PodDevices(paths.root, surroundings.environment),
                log=SupervisorLog(log, read_clock),
                clock=read_clock,
            )

            async def work() -> None:
                tell(Handshake(STARTED, str(paths.job(job.uid).supervisor_log)))
                await Supervisor(engine, job, surroundings).run()

            async def has_work() -> bool:
                return await needs_supervisor(cluster, paths, key, job.uid)

            await keep_supervised(lock, key, work, has_work)


def _offer_progress(surroundings: Surroundings, paths: StatePaths) -> Surroundings:
    """Return the surroundings in which `from trainwright.progress import report` works in every container."""
    try:
        folder = path_for_jobs(paths.python)
    except OSError as error:
        raise StateDirectoryError(f"cannot write below {paths.python}: {error.strerror}") from error
    python_path = build_python_path(surroundings.environment, folder)
    return msgspec.structs.replace(
        surroundings, environment={**surroundings.environment, PYTHON_PATH_ENV: python_path}
    )


def read_clock() -> datetime:
    """Return the time."""
    return datetime.now(UTC)
