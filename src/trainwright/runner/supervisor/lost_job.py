"""Reports one job whose supervisor died: as lost, not as running.

A supervisor leaves a mark while it works (`supervisor_lock`). A mark whose lock nobody holds means
that it was killed, or the machine went down. Its processes go with it (PR_SET_PDEATHSIG, or the reboot);
what should have survived is killed here, by pid and start time.

    suspended                 the pods that it was stopping are gone: its suspension is carried through
    nothing ran (yet, again)  suspended, with an event: `resume` runs it
    ran                       its JobSet fails with reason SupervisorLost, and the TrainJob follows
    finished, or deleted      only its mark is removed
"""

from __future__ import annotations

import contextlib

from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.local.paths import StatePaths
from trainwright.cluster.port import Cluster
from trainwright.errors import Conflict, NotFound
from trainwright.runner.controllers.actions import MarkDeleted
from trainwright.runner.controllers.ending import SUPERVISOR_LOST, End, build_end
from trainwright.runner.controllers.settle import Reconcile, settle, suspend_unstarted
from trainwright.runner.controllers.shell import Clock, Controllers, index_uids, write
from trainwright.runner.controllers.train_job_state import is_finished, is_suspended
from trainwright.runner.executors.leftovers import end_leftovers
from trainwright.runner.supervisor.job_folder import remove_job
from trainwright.runner.supervisor.supervisor_lock import Supervisor, read_mark


async def report_lost_job(
    cluster: Cluster, paths: StatePaths, uid: str, reconcile: Reconcile, clock: Clock
) -> ObjectKey | None:
    """Report one job whose lock the caller holds; return which TrainJob was lost, None where none was."""
    end_leftovers(paths.job(uid))
    supervisor = read_mark(paths, uid)
    if supervisor is None:
        return None
    key = supervisor.key
    train_job = await _find_train_job(cluster, key, uid)
    if train_job is None:
        remove_job(paths, uid)
        return None
    if is_finished(train_job):
        await settle(cluster, key, uid, reconcile, clock)
        return None
    controllers = Controllers(cluster, key, uid, clock)
    job_set = await controllers.get_job_set()
    if is_suspended(train_job) or job_set is None or job_set["spec"].get("suspend"):
        if job_set is not None:
            await _drop_pods(cluster, controllers, job_set, clock)
        if not is_suspended(train_job):
            await suspend_unstarted(cluster, key, uid, _build_unstarted_end(supervisor), clock)
        await settle(cluster, key, uid, reconcile, clock)
        return key
    end = End(SUPERVISOR_LOST, _build_message(supervisor, paths, uid))
    jobs, pods = await controllers.list_children(job_set)
    uids = index_uids((job_set, *jobs, *pods))
    for status in build_end(job_set, jobs, pods, end, clock()):
        with contextlib.suppress(NotFound, Conflict):
            await write(cluster, status, clock(), uids)
    await settle(cluster, key, uid, reconcile, clock)
    return key


async def _drop_pods(cluster: Cluster, controllers: Controllers, job_set: Json, clock: Clock) -> None:
    """Mark the pods that were being stopped; without processes they go at once."""
    _, pods = await controllers.list_children(job_set)
    for pod in pods:
        if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
            metadata = pod["metadata"]
            mark = MarkDeleted(key=ObjectKey("Pod", metadata["namespace"], metadata["name"]))
            with contextlib.suppress(NotFound, Conflict):
                await write(cluster, mark, clock(), index_uids([pod]))


def _build_unstarted_end(supervisor: Supervisor) -> End:
    return End(
        SUPERVISOR_LOST,
        f"the supervisor of this job (pid {supervisor.process.pid}) died before anything ran; "
        f"run it with `trainwright resume {supervisor.name}`",
    )


def _build_message(supervisor: Supervisor, paths: StatePaths, uid: str) -> str:
    return (
        f"the supervisor of this job (pid {supervisor.process.pid}) died while it ran, and its processes "
        f"with it; see {paths.job(uid).supervisor_log}, and submit the job again to run it once more"
    )


async def _find_train_job(cluster: Cluster, key: ObjectKey, uid: str) -> Json | None:
    try:
        train_job = await cluster.get(key)
    except NotFound:
        return None
    return train_job if train_job["metadata"]["uid"] == uid else None
