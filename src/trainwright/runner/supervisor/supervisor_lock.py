"""Who supervises a job: one process at most, told by a lock that the system takes back when it dies.

    <root>/supervised/<uid>      from before a supervisor works until after it ended in good order
    <job>/lock                   flock; held as long as the supervisor lives
    <job>/supervisor.json        who holds it: pid, start time, and which TrainJob; so says the mark

What is left behind says how it ended: no mark, no supervisor was needed; a mark and a held lock, one is at
work; a mark and a free lock, it died. The marks are a folder of their own so that looking for dead
supervisors, which every command does, costs one `listdir` and not one per job that ever ran.

The folder of a deleted job is removed by whoever holds its lock, and the lock with it, in one step: it is
renamed first. Removed file by file, its lock would be free in the middle of that, and what the next holder
writes would go with the rest. Whoever held a lock that is no longer in its place leaves the files beside it
alone: they are a later holder's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import JobPaths, StatePaths
from trainwright.runner.executors.process_identity import ProcessIdentity, is_alive, read_identity

# Folders of jobs on their way out. What a crash left of one is for `sweep`.
REMOVED_PREFIX: Final = ".removed."
_REMOVAL_ATTEMPTS: Final = 10


class Supervisor(msgspec.Struct, frozen=True, rename="camel"):
    """Who supervises, and which TrainJob."""

    process: ProcessIdentity
    namespace: str
    name: str
    kind: str = "TrainJob"

    @property
    def key(self) -> ObjectKey:
        """The TrainJob."""
        return ObjectKey(self.kind, self.namespace, self.name)


class SupervisorLock:
    """The lock of one job. Not inherited by programs that are started (O_CLOEXEC)."""

    def __init__(self, paths: StatePaths, uid: str) -> None:
        self._mark = get_mark(paths, uid)
        self._job = paths.job(uid)
        self._fd: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this process holds the lock."""
        return self._fd is not None

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        while True:
            # Whoever holds the lock may remove the folder at any moment: `mkdir` itself trips over that.
            with contextlib.suppress(FileExistsError):
                self._job.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                fd = os.open(self._job.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
            # Whoever removed the job's folder meanwhile removed the file that is locked here.
            if _is_same_file(fd, self._job.lock):
                self._fd = fd
                return True
            os.close(fd)

    def sign(self, key: ObjectKey) -> None:
        """Say who holds the lock. To be called by the holder, before it does anything else."""
        identity = read_identity(os.getpid())
        assert identity is not None  # noqa: S101 (we are running)
        self._mark.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = msgspec.json.encode(Supervisor(identity, key.namespace, key.name, key.kind))
        _write_whole(self._mark, content)
        _write_whole(self._job.supervisor, content)

    def clear(self) -> None:
        """Say that nothing is left for anybody to report, and keep the lock."""
        if self.is_in_place():
            self._job.supervisor.unlink(missing_ok=True)
            self._mark.unlink(missing_ok=True)

    def release(self) -> None:
        """Give the lock back as one who leaves nothing behind."""
        self.clear()
        self._close()

    def abandon(self) -> None:
        """Give the lock back and leave the mark: what is left is for `runner.supervisor.lost` to report."""
        self._close()

    def is_all_there_is(self) -> bool:
        """Say whether the job's folder holds this lock and nothing else."""
        return self.is_in_place() and list(self._job.root.iterdir()) == [self._job.lock]

    def is_in_place(self) -> bool:
        """Say whether the file that is locked here is the job's lock still."""
        return self._fd is not None and _is_same_file(self._fd, self._job.lock)

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def get_mark(paths: StatePaths, uid: str) -> Path:
    """Return the file that exists while a job has, or should have, a supervisor."""
    return paths.root / "supervised" / uid


def list_marked(paths: StatePaths) -> list[str]:
    """Return the uids of all jobs that have, or should have, a supervisor."""
    try:
        entries = os.scandir(paths.root / "supervised")
        return sorted(entry.name for entry in entries if not entry.name.startswith("."))
    except FileNotFoundError:
        return []


def read_mark(paths: StatePaths, uid: str) -> Supervisor | None:
    """Return whose mark it is; None where there is none that can be read."""
    return _read(get_mark(paths, uid))


def read_supervisor(job: JobPaths) -> Supervisor | None:
    """Return who last signed for this job; None where nobody did, or the file is not readable."""
    return _read(job.supervisor)


def find_live_supervisor(job: JobPaths) -> Supervisor | None:
    """Return the supervisor that works for this job at this moment."""
    supervisor = read_supervisor(job)
    return supervisor if supervisor is not None and is_alive(supervisor.process) else None


@contextlib.contextmanager
def holding(paths: StatePaths, uid: str) -> Iterator[SupervisorLock | None]:
    """Hold the lock of a job for a moment, as no supervisor; None where somebody else has it."""
    lock = SupervisorLock(paths, uid)
    if not lock.try_acquire():
        yield None
        return
    try:
        yield lock
    finally:
        if lock.is_all_there_is():
            # The job was removed just before its lock was taken, and taking it made the folder anew.
            remove_folder(paths, uid)
        lock.abandon()


def remove_folder(paths: StatePaths, uid: str) -> None:
    """Remove a job's folder, and the lock with it. For whoever holds the lock."""
    aside = paths.jobs / f"{REMOVED_PREFIX}{uid}.{uuid.uuid4().hex}"
    try:
        paths.job(uid).root.rename(aside)
    except FileNotFoundError:
        return
    except OSError:
        aside = paths.job(uid).root  # a file system that cannot: piece by piece, then
    for _ in range(_REMOVAL_ATTEMPTS):
        shutil.rmtree(aside, ignore_errors=True)
        # Whoever was about to open the lock may have made it in here: the folder was found before its name
        # changed.
        if not aside.exists():
            return


def _read(file: Path) -> Supervisor | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Supervisor)
    except (OSError, msgspec.DecodeError):
        return None


def _is_same_file(fd: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file that readers see whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(0o600)
    draft.replace(path)
