"""What outlives a supervisor that was killed: processes for a moment, or for ever, and their pods' files.

A supervisor writes down which processes it started. When it is killed they notice (end of file on their
socket, or PR_SET_PDEATHSIG) and end what they started in turn. Whoever reports the job as lost waits for
that, so that "lost" means that nothing runs any more, and kills what does not end, by pid and start time.
Then what the pods had on the host (temporary folders, mount points) goes; logs stay.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from trainwright.cluster.local.paths import JobPaths
from trainwright.runner.executors.pod_folder import remove_leftovers
from trainwright.runner.executors.process_identity import (
    ProcessIdentity,
    is_alive,
    read_identity,
    send_signal,
)

PATIENCE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.01
_FILE: Final = "processes.json"


class ProcessRecord:
    """The processes of one job, in a file for whoever finds its supervisor dead.

    Children that this process has before it begins to supervise are none of the job's.
    """

    def __init__(self, job: JobPaths) -> None:
        self._job = job
        self._others = frozenset(_list_children(os.getpid()))

    def update(self) -> None:
        """Write down the child processes of this process, and theirs.

        A container's child is watched over by one of ours, and ends after it, and with it the container.
        """
        children = [child for child in _list_children(os.getpid()) if child not in self._others]
        theirs = [process for child in children for process in _list_children(child.pid)]
        draft = self._job.root / f".{_FILE}.{os.getpid()}"
        draft.write_bytes(msgspec.json.encode([*children, *theirs]))
        draft.replace(self._job.root / _FILE)


def end_leftovers(job: JobPaths) -> None:
    """Leave nothing of the job but its logs: no process, no temporary file."""
    _end_processes(job)
    if job.pods.is_dir():
        for pod in job.pods.iterdir():
            remove_leftovers(pod)
    shutil.rmtree(job.shared, ignore_errors=True)


def _end_processes(job: JobPaths) -> None:
    """Wait until the recorded processes have ended; kill those that take too long."""
    file = job.root / _FILE
    try:
        recorded = msgspec.json.decode(file.read_bytes(), type=list[ProcessIdentity])
    except (OSError, msgspec.DecodeError):
        return
    for identity in _wait_for_end(recorded):
        with contextlib.suppress(PermissionError):
            send_signal(identity, signal.SIGKILL)
    # What was killed takes a moment to go.
    _wait_for_end(recorded)
    file.unlink(missing_ok=True)


def _wait_for_end(processes: Sequence[ProcessIdentity]) -> list[ProcessIdentity]:
    """Wait until they have ended, for a while; return those that have not."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while living := [identity for identity in processes if is_alive(identity)]:
        if time.monotonic() > deadline:
            return living
        time.sleep(_PAUSE_SECONDS)
    return []


def _list_children(parent: int) -> list[ProcessIdentity]:
    return [identity for pid in _list_child_pids(parent) if (identity := read_identity(pid)) is not None]


def _list_child_pids(parent: int) -> list[int]:
    if not Path("/proc/self/task").is_dir():
        import psutil

        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(parent).children()]
        return []
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{parent}/task").iterdir():
            with contextlib.suppress(OSError):
                children += map(int, (thread / "children").read_text().split())
    return children
