"""Empty folders and files of the host at which pods mount volumes: the first pod that needs one makes it, and
the last one that used it removes it.

A removed mount point takes along what others have mounted there: the kernel undoes mounts of other namespaces
on a folder that is removed. So pods of all jobs of this user have to know of each other. Each path has a file
in one folder, on which every user of the path holds a shared lock; whoever gets it alone may remove the path.
The file is there as long as the path is ours. That of a pod whose supervisor died is locked by nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from trainwright.runner.executors.mount_plan import MountPoint


class MountPoints:
    """Those that one pod uses. `folder` is where pods know of each other; it is made when needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locks: dict[str, int] = {}

    def is_ours(self, path: str) -> bool:
        """Say whether a path of the host is a mount point of this or another pod."""
        return _name_lock(self.folder, path).exists()

    def use(self, point: MountPoint) -> None:
        """Make the mount point, or keep the one of another pod from being removed. Raises OSError."""
        if point.path in self._locks:
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._locks[point.path] = _lock_shared(_name_lock(self.folder, point.path))
        path = Path(point.path)
        if point.is_file:
            path.touch()
        else:
            path.mkdir(exist_ok=True)

    def release(self) -> None:
        """Use them no more. `remove_unused` removes them."""
        for lock in self._locks.values():
            # Closing alone would not do while a process that is just being started has the descriptor too.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)
        self._locks.clear()


def remove_unused(folder: Path, points: Iterable[MountPoint]) -> None:
    """Remove those mount points that no pod uses, the last one first, unless something is in them.

    Containers of one pod may each have needed the same folder: it is looked at after all that are below it.
    """
    for point in reversed(dict.fromkeys(points)):
        lock_file = _name_lock(folder, point.path)
        with contextlib.suppress(OSError):
            lock = os.open(lock_file, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(lock, lock_file):
                    _remove_empty(point)
                    lock_file.unlink()
            finally:
                os.close(lock)


def _lock_shared(lock_file: Path) -> int:
    """Return the locked file. One that was removed between opening and locking is opened anew."""
    while True:
        lock = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # Nobody holds it alone for longer than it takes to remove a folder.
        fcntl.flock(lock, fcntl.LOCK_SH)
        if _is_at(lock, lock_file):
            return lock
        os.close(lock)


def _is_at(lock: int, lock_file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), lock_file.stat())
    except FileNotFoundError:
        return False


def _remove_empty(point: MountPoint) -> None:
    path = Path(point.path)
    with contextlib.suppress(OSError):
        if not point.is_file:
            path.rmdir()
        elif path.stat().st_size == 0:
            path.unlink()


def _name_lock(folder: Path, path: str) -> Path:
    return folder / hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:32]
