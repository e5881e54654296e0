"""Removes what a job left in the state directory, once the job itself is gone."""

from __future__ import annotations

from trainwright.cluster.local.paths import StatePaths
from trainwright.runner.supervisor.expiry import forget_expiry
from trainwright.runner.supervisor.supervisor_lock import get_mark, holding, remove_folder


def remove_job(paths: StatePaths, uid: str) -> None:
    """Remove a job's folder and marks. For whoever holds its lock, which goes with the folder."""
    # The folder last: from then on the lock, and the marks, may be somebody else's.
    forget_expiry(paths, uid)
    get_mark(paths, uid).unlink(missing_ok=True)
    remove_folder(paths, uid)


def forget_job(paths: StatePaths, uid: str) -> bool:
    """Remove what a deleted job left, unless a supervisor is there to do it after stopping its processes."""
    if not paths.job(uid).root.exists():
        return True
    with holding(paths, uid) as lock:
        if lock is None:
            return False
        # Its supervisor may have been killed: what its pods had elsewhere is written down in this folder.
        # Imported here, as most commands remove nothing and should not wait for it.
        from trainwright.runner.executors.leftovers import end_leftovers

        end_leftovers(paths.job(uid))
        remove_job(paths, uid)
    return True
