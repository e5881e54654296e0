"""Which process, exactly: a pid and when it started. A pid alone may be another process after a crash.

The start time is what the system counts it in: clock ticks since boot on Linux (field 22 of
/proc/PID/stat), microseconds since 1970 elsewhere. It is only ever compared with one that was read on the
same machine; a reboot makes every identity stale, since the boot id is part of it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

_PROC = Path("/proc")


class ProcessIdentity(msgspec.Struct, frozen=True, rename="camel"):
    """One process for all time."""

    pid: int
    start_time: int
    boot: str = ""


def read_identity(pid: int) -> ProcessIdentity | None:
    """Return who has this pid now; None where nobody has, or only a zombie that waits to be collected."""
    if _PROC.joinpath("self", "stat").exists():
        return _read_proc(pid)
    return _read_psutil(pid)


def is_alive(identity: ProcessIdentity) -> bool:
    """Say whether this very process still runs."""
    return read_identity(identity.pid) == identity


def send_signal(identity: ProcessIdentity, number: int) -> bool:
    """Send a signal to this very process; say whether it was there to get it."""
    if not is_alive(identity):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(identity.pid, number)
        return True
    return False


def _read_proc(pid: int) -> ProcessIdentity | None:
    try:
        stat = _PROC.joinpath(str(pid), "stat").read_text(errors="replace")
    except OSError:
        return None
    # The program's name comes second, in parentheses, and may itself hold blanks and parentheses.
    fields = stat[stat.rindex(")") + 2 :].split()
    state, start_time = fields[0], fields[19]
    return None if state in {"Z", "X"} else ProcessIdentity(pid, int(start_time), _read_boot_id())


def _read_boot_id() -> str:
    try:
        return _PROC.joinpath("sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _read_psutil(pid: int) -> ProcessIdentity | None:
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return ProcessIdentity(pid, int(process.create_time() * 1_000_000))
    except psutil.Error:
        return None
