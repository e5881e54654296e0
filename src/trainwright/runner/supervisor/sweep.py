"""Deletes what has had its time: finished jobs after their time to live, and folders without a job.

No process stays behind for this; every command does what is due (`expiry`), which costs one `scandir`
where nothing is. Looking for folders that nobody knows about costs a listing of all jobs, so that is done at
most once an hour. The controllers are imported only where a job is due.
"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from trainwright.api.constants import JOB_SET, TRAIN_JOB
from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import StatePaths
from trainwright.cluster.port import Cluster
from trainwright.errors import NotFound
from trainwright.runner.pods.claim_folders import list_claim_owners, remove_claim_folders
from trainwright.runner.supervisor.expiry import Expiring, forget_expiry, list_due, note_expiry
from trainwright.runner.supervisor.job_folder import forget_job, remove_job
from trainwright.runner.supervisor.supervisor_lock import REMOVED_PREFIX, holding

if TYPE_CHECKING:
    from trainwright.runner.controllers.settle import Reconcile
    from trainwright.runner.controllers.shell import Clock

FULL_SWEEP_SECONDS: Final = 3600.0


def _read_clock() -> datetime:
    return datetime.now(UTC)


async def sweep_expired(
    cluster: Cluster, paths: StatePaths, reconcile: Reconcile | None = None, clock: Clock = _read_clock
) -> list[ObjectKey]:
    """Delete the jobs whose time to live is over, with their folders; return which."""
    deleted = [
        due.key for due in list_due(paths, clock()) if await _expire(cluster, paths, due, reconcile, clock)
    ]
    if deleted or _is_full_sweep_due(paths, clock()):
        await sweep_folders(cluster, paths)
    return deleted


async def sweep_folders(cluster: Cluster, paths: StatePaths) -> None:
    """Remove folders of TrainJobs and volume claims that are gone."""
    # Folders first: a job that is submitted meanwhile has its object before it has a folder.
    folders = sorted(entry.name for entry in os.scandir(paths.jobs)) if paths.jobs.is_dir() else []
    jobs = {job["metadata"]["uid"] for job in (await cluster.list(TRAIN_JOB)).items}
    for name in folders:
        if name.startswith(REMOVED_PREFIX):
            shutil.rmtree(paths.jobs / name, ignore_errors=True)
        elif name not in jobs:
            forget_job(paths, name)
    await sweep_claims(cluster, paths)


async def sweep_claims(cluster: Cluster, paths: StatePaths) -> None:
    """Remove the folders of volume claims that went with their JobSet."""
    # Owners first: a JobSet that is made meanwhile is in the store before it owns a folder.
    if owners := list_claim_owners(paths):
        job_sets = {job_set["metadata"]["uid"] for job_set in (await cluster.list(JOB_SET)).items}
        remove_claim_folders(paths, owners - job_sets)


async def _expire(
    cluster: Cluster, paths: StatePaths, due: Expiring, reconcile: Reconcile | None, clock: Clock
) -> bool:
    """Let a finished job come to rest; say whether it is gone after that."""
    from trainwright.cluster.reconcile import reconcile as reconcile_train_job
    from trainwright.runner.controllers.settle import settle

    with holding(paths, due.uid) as lock:
        if lock is None:
            return False
        if await _exists(cluster, due):
            pause = await settle(cluster, due.key, due.uid, reconcile or reconcile_train_job, clock)
            if await _exists(cluster, due):
                forget_expiry(paths, due.uid)
                if pause is not None:
                    note_expiry(paths, due.uid, due.key, clock() + timedelta(seconds=pause))
                return False
        remove_job(paths, due.uid)
        return True


async def _exists(cluster: Cluster, job: Expiring) -> bool:
    try:
        train_job = await cluster.get(job.key)
    except NotFound:
        return False
    return bool(train_job["metadata"]["uid"] == job.uid)


def _is_full_sweep_due(paths: StatePaths, now: datetime) -> bool:
    stamp = paths.root / "swept"
    try:
        age = now.timestamp() - stamp.stat().st_mtime
    except FileNotFoundError:
        age = FULL_SWEEP_SECONDS
    if age < FULL_SWEEP_SECONDS:
        return False
    paths.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    stamp.touch()
    return True
