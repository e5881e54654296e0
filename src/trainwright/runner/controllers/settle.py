"""Lets a job come to rest without running anything: for jobs that ended, or whose supervisor did.

The same controllers as in a supervisor's pass, and no processes: a pod that is marked as deleted has none, so
it is removed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from trainwright.api.constants import TRAIN_JOB
from trainwright.api.meta import ObjectKey, ObjectMeta
from trainwright.cluster.port import Cluster
from trainwright.control.actions import Emit
from trainwright.errors import Conflict, NotFound
from trainwright.runner.controllers.ending import End
from trainwright.runner.controllers.shell import Clock, Controllers, emit

Reconcile = Callable[[Cluster, ObjectKey, Clock], Awaitable[float | None]]

MOST_ROUNDS: Final = 30


async def settle(
    cluster: Cluster, key: ObjectKey, uid: str, reconcile: Reconcile, clock: Clock
) -> float | None:
    """Run the controllers until nothing is written; return when to look again, None for never.

    Only for a job whose lock is held by the caller and of which no process is left.
    """
    controllers = Controllers(cluster, key, uid, clock)
    pause: float | None = None
    for _ in range(MOST_ROUNDS):
        pause = await reconcile(cluster, key, clock)
        done = await controllers.run_once()
        wrote = done.wrote
        for pod in done.pods:
            if pod["metadata"].get("deletionTimestamp"):
                wrote = await _remove(cluster, pod["metadata"]) or wrote
        pauses = [value for value in (pause, done.requeue_after) if value is not None]
        pause = min(pauses, default=None)
        if not wrote:
            break
    return pause


async def suspend_unstarted(cluster: Cluster, key: ObjectKey, uid: str, end: End, clock: Clock) -> None:
    """Suspend a TrainJob of which nothing runs and whose supervisor goes, so that it can be resumed.

    One that was deleted meanwhile needs that no more.
    """
    try:
        train_job = await cluster.patch(key, {"metadata": {"uid": uid}, "spec": {"suspend": True}})
    except (NotFound, Conflict):
        return
    about = msgspec.convert(train_job["metadata"], ObjectMeta)
    event = Emit(about=about, kind=TRAIN_JOB, type="Warning", reason=end.reason, message=end.message)
    await emit(cluster, event, clock())


async def _remove(cluster: Cluster, metadata: dict[str, str]) -> bool:
    try:
        await cluster.delete(ObjectKey("Pod", metadata["namespace"], metadata["name"]), metadata["uid"])
    except (NotFound, Conflict):
        return False
    return True
