"""How long a job has a supervisor, and that none of its changes falls between two of them.

Whoever changes a job writes the store first and then sees to it that there is a supervisor. A supervisor that
found nothing left to do gives its lock back first and then looks at the store once more:

    writer         writes              tries the lock
    supervisor               gives the lock back    looks again

Whichever way the two lines are woven, either the writer gets the lock and starts a supervisor, or the
supervisor sees what was written and takes the lock again.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from trainwright.api.constants import JOB_SET
from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import StatePaths
from trainwright.cluster.port import Cluster
from trainwright.errors import NotFound, UserError
from trainwright.runner.controllers.train_job_state import is_finished, is_foreign, is_suspended
from trainwright.runner.supervisor.supervisor_lock import SupervisorLock, find_live_supervisor

# More than whoever reports a lost job gives its processes, twice, to go.
PATIENCE_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.01


class LockHeld(UserError):
    """Somebody holds the lock of a job and does not say who."""


async def keep_supervised(
    lock: SupervisorLock,
    key: ObjectKey,
    work: Callable[[], Awaitable[None]],
    has_work: Callable[[], Awaitable[bool]],
) -> None:
    """Work under the lock, which is held, until nothing is left to do; then the lock is free.

    `work` returns when it finds nothing left to do; `has_work` is asked when the lock has been given back.
    """
    lock.sign(key)
    try:
        while True:
            await work()
            lock.release()
            if not await has_work() or not lock.try_acquire():
                return
            lock.sign(key)
    finally:
        if lock.is_held:
            lock.abandon()


def acquire_patiently(
    lock: SupervisorLock, paths: StatePaths, uid: str, patience_seconds: float = PATIENCE_SECONDS
) -> bool:
    """Take the lock; False where a supervisor is at work. Raises LockHeld.

    A lock that nobody has signed is held by a command that reports a lost job, or by a supervisor that begins
    or ends: all of them are done in a moment.
    """
    deadline = time.monotonic() + patience_seconds
    while not lock.try_acquire():
        if find_live_supervisor(paths.job(uid)) is not None:
            return False
        if time.monotonic() > deadline:
            raise LockHeld(
                f"the lock {paths.job(uid).lock} is held, but not by a supervisor; "
                "end the process that holds it (`fuser` names it) and try again"
            )
        time.sleep(_PAUSE_SECONDS)
    return True


async def needs_supervisor(cluster: Cluster, paths: StatePaths, key: ObjectKey, uid: str) -> bool:
    """Say whether there is something to do that only a supervisor does."""
    try:
        train_job = await cluster.get(key)
    except NotFound:
        return paths.job(uid).root.exists()
    if train_job["metadata"]["uid"] != uid:
        return paths.job(uid).root.exists()
    if is_finished(train_job) or is_foreign(train_job):
        return False
    if not is_suspended(train_job):
        return True
    try:
        job_set = await cluster.get(ObjectKey(JOB_SET, key.namespace, key.name))
    except NotFound:
        return False
    return not job_set["spec"].get("suspend")
