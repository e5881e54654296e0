"""The folders that stand for PersistentVolumeClaims.

A claim that a pod names gets its folder when the pod starts, whether or not there is an object for it: on one
machine there is nobody to provision anything. A folder is removed only where a JobSet made the claim with
retention Delete and is gone; what a user named is never removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
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
    folder.mkdir(parents=True, exist_ok=True)
    references = ((claim_object or {}).get("metadata") or {}).get("ownerReferences") or ()
    for owner in references:
        if owner.get("kind") == "JobSet":
            note = _get_notes(paths) / f"{namespace}.{claim}.json"
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_bytes(msgspec.json.encode(_Owner(namespace, claim, owner["uid"])))
    return folder


def remove_claim_folders(paths: StatePaths, living: Collection[str]) -> None:
    """Remove the folders that belong to JobSets of which none of the uids in `living` is."""
    for note, owner in _read_notes(paths):
        if owner.uid not in living:
            shutil.rmtree(paths.volume(owner.namespace, owner.claim), ignore_errors=True)
            note.unlink(missing_ok=True)


def list_claim_owners(paths: StatePaths) -> set[str]:
    """Return the uids of the JobSets that folders belong to."""
    return {owner.uid for _, owner in _read_notes(paths)}


def _read_notes(paths: StatePaths) -> list[tuple[Path, _Owner]]:
    result: list[tuple[Path, _Owner]] = []
    folder = _get_notes(paths)
    for note in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            result.append((note, msgspec.json.decode(note.read_bytes(), type=_Owner)))
        except (OSError, msgspec.DecodeError):
            note.unlink(missing_ok=True)
    return result


def _get_notes(paths: StatePaths) -> Path:
    return paths.root / "volumes" / ".owned"
