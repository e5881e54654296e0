"""Jobs that finished and want to be looked at later: their time to live ends when no supervisor is there.

Each has a file, `<root>/expiring/<uid>`, whose time of last change is when it is due. So the question that
every command asks, whether anything is due, costs one `scandir`; no process stays behind to wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import StatePaths


class Expiring(msgspec.Struct, frozen=True):
    """A job that is due."""

    uid: str
    key: ObjectKey


def note_expiry(paths: StatePaths, uid: str, key: ObjectKey, due: datetime) -> None:
    """Remember to look at a finished job at that time."""
    note = _get_note(paths, uid)
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = note.with_name(f".{uid}.{os.getpid()}")
    draft.write_bytes(msgspec.json.encode(key))
    os.utime(draft, (due.timestamp(), due.timestamp()))
    draft.replace(note)


def forget_expiry(paths: StatePaths, uid: str) -> None:
    """Forget a job."""
    _get_note(paths, uid).unlink(missing_ok=True)


def list_due(paths: StatePaths, now: datetime) -> Iterator[Expiring]:
    """Yield the jobs that are due."""
    try:
        entries = sorted(os.scandir(paths.root / "expiring"), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    for entry in entries:
        try:
            if entry.name.startswith(".") or entry.stat().st_mtime > now.timestamp():
                continue
            yield Expiring(entry.name, msgspec.json.decode(Path(entry.path).read_bytes(), type=ObjectKey))
        except FileNotFoundError:
            continue  # another command was faster
        except msgspec.DecodeError:
            Path(entry.path).unlink(missing_ok=True)


def _get_note(paths: StatePaths, uid: str) -> Path:
    return paths.root / "expiring" / uid
