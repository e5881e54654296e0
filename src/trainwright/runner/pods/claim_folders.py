"""The folders that stand for PersistentVolumeClaims.

A claim that a pod names gets its folder when the pod starts, whether or not there is an object for it: on one
machine there is nobody to provision anything. A folder is removed only where a JobSet made the claim with
retention Delete and is gone; what a user named is never removed.

Supervisors and commands do all of this at the same time, so they take turns by a lock: nobody removes what a
JobSet of the same name has just begun to use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from trainwright.api.meta import Json
from trainwright.cluster.local.paths import StatePaths


class _Owner(msgspec.Struct, frozen=True):
    """Whose end is the end of a claim's folder."""

    namespace: str
    claim: str
    uid: str


def make_claim_folder(paths: StatePaths, namespace: str, claim: str, claim_object: Json | None) -> Path:
    """Return the folder of a claim, made if need be; one that a JobSet owns is remembered as its own."""
    folder = paths.volume(namespace, claim)
    references = ((claim_object or {}).get("metadata") or {}).get("ownerReferences") or ()
    uid = next((owner["uid"] for owner in references if owner.get("kind") == "JobSet"), None)
    if uid is None:
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    with _taking_turns(paths):
        folder.mkdir(parents=True, exist_ok=True)
        note = _get_notes(paths) / f"{namespace}.{claim}.json"
        note.write_bytes(msgspec.json.encode(_Owner(namespace, claim, uid)))
    return folder


def remove_claim_folders(paths: StatePaths, gone: Collection[str]) -> None:
    """Remove the folders that belong to JobSets with these uids, which are gone."""
    with _taking_turns(paths):
        for note, owner in _read_notes(paths):
            if owner.uid in gone:
                shutil.rmtree(paths.volume(owner.namespace, owner.claim), ignore_errors=True)
                note.unlink(missing_ok=True)


def list_claim_owners(paths: StatePaths) -> set[str]:
    """Return the uids of the JobSets that folders belong to."""
    if not _get_notes(paths).is_dir():
        return set()
    with _taking_turns(paths):
        return {owner.uid for _, owner in _read_notes(paths)}


@contextlib.contextmanager
def _taking_turns(paths: StatePaths) -> Iterator[None]:
    notes = _get_notes(paths)
    notes.mkdir(parents=True, exist_ok=True)
    fd = os.open(notes / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _read_notes(paths: StatePaths) -> list[tuple[Path, _Owner]]:
    notes = sorted(_get_notes(paths).glob("*.json"))
    return [(note, owner) for note in notes if (owner := _read_note(note)) is not None]


def _read_note(note: Path) -> _Owner | None:
    """Return what a note says; one that a crash cut off says nothing, and goes."""
    try:
        return msgspec.json.decode(note.read_bytes(), type=_Owner)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError:
        note.unlink(missing_ok=True)
        return None


def _get_notes(paths: StatePaths) -> Path:
    return paths.root / "volumes" / ".owned"
