"""Finds jobs whose supervisor died, at the beginning of every command.

Most commands find none, and should notice nothing of it: one `scandir`, and no import of the controllers.
What is done about a job that was lost is in `runner.supervisor.lost_job`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import StatePaths
from trainwright.cluster.port import Cluster
from trainwright.runner.supervisor.supervisor_lock import holding, list_marked

if TYPE_CHECKING:
    from trainwright.runner.controllers.settle import Reconcile
    from trainwright.runner.controllers.shell import Clock


def _read_clock() -> datetime:
    return datetime.now(UTC)


async def report_lost(
    cluster: Cluster, paths: StatePaths, reconcile: Reconcile | None = None, clock: Clock = _read_clock
) -> list[ObjectKey]:
    """Report every job whose supervisor died; return which."""
    reported: list[ObjectKey] = []
    for uid in list_marked(paths):
        with holding(paths, uid) as lock:
            if lock is None:
                continue
            from trainwright.cluster.reconcile import reconcile as reconcile_train_job
            from trainwright.runner.supervisor.lost_job import report_lost_job

            key = await report_lost_job(cluster, paths, uid, reconcile or reconcile_train_job, clock)
            lock.clear()
            if key is not None:
                reported.append(key)
    return reported
