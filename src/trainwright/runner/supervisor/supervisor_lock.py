"""Who supervises a job: one process at most, told by a lock that the system takes back when it dies.

    <root>/supervised/<uid>      from before a supervisor works until after it ended in good order
    <job>/lock                   flock; held as long as the supervisor lives
    <job>/supervisor.json        who holds it: pid, start time, and which TrainJob; so says the mark

What is left behind says how it ended: no mark, no supervisor was needed; a mark and a held lock, one is at
work; a mark and a free lock, it died. The marks are a folder of their own so that looking for dead
supervisors, which every command does, costs one `listdir` and not one per job that ever ran.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import JobPaths, StatePaths
from trainwright.runner.executors.process_identity import ProcessIdentity, is_alive, read_identity


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

    def release(self) -> None:
        """Give the lock back as one who leaves nothing behind."""
        self._job.supervisor.unlink(missing_ok=True)
        self._mark.unlink(missing_ok=True)
        self._close()

    def abandon(self) -> None:
        """Give the lock back and leave the mark: what is left is for `runner.supervisor.lost` to report."""
        self._close()

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
        if lock.is_held:
            lock.abandon()


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
