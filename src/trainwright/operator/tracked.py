"""The verbs that write, as a worker uses them: each write is remembered until the caches show it.

A snapshot is shared by many jobs, which may all begin at once: it is written by the first of them, and the
others take what came of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog

from trainwright.api.constants import SNAPSHOT_NAME_PREFIX
from trainwright.api.core import Event
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.port import Writer
from trainwright.operator.expectations import Expectations

log = structlog.get_logger(__name__)

_ENDS: Final = frozenset({"Complete", "Failed"})

# The version of an object that the caches have, empty for none; None for a kind that is not watched.
FindVersion = Callable[[ObjectKey], str | None]


class SharedSnapshots:
    """Snapshots that were written and are not in the caches yet."""

    def __init__(self) -> None:
        self._written: dict[ObjectKey, asyncio.Future[Json]] = {}

    def see(self, key: ObjectKey) -> None:
        """Say that a watch told of the object: from then on the caches know."""
        written = self._written.get(key)
        if written is not None and written.done():
            del self._written[key]

    async def write(self, key: ObjectKey, write: Callable[[], Awaitable[Json]]) -> Json:
        """Return the stored snapshot, written by this call or by an earlier one."""
        written = self._written.get(key)
        if written is not None and not (written.done() and (written.cancelled() or written.exception())):
            return await asyncio.shield(written)
        written = self._written[key] = asyncio.ensure_future(write())
        try:
            return await written
        except BaseException:
            self._written.pop(key, None)
            raise


class Ledger(msgspec.Struct, frozen=True):
    """What all writers of the process share."""

    expectations: Expectations
    snapshots: SharedSnapshots
    find_version: FindVersion


class TrackedWriter:
    """Writes for one TrainJob."""

    def __init__(self, writer: Writer, train_job: ObjectKey, ledger: Ledger) -> None:
        self._writer = writer
        self._train_job = train_job
        self._expectations = ledger.expectations
        self._snapshots = ledger.snapshots
        self._find_version = ledger.find_version

    async def get(self, key: ObjectKey) -> Json:
        """Return the object as the server has it."""
        return await self._writer.get(key)

    async def create(self, obj: Json) -> Json:
        """Store a new object."""
        key = _build_key(obj)
        stored = await self._track(key, self._writer.create(obj))
        log.info("created", kind=key.kind, namespace=key.namespace, name=key.name)
        return stored

    async def apply(self, obj: Json, field_manager: str, *, force: bool = True) -> Json:
        """Server-side apply."""
        key = _build_key(obj)
        if key.kind == "ConfigMap" and key.name.startswith(SNAPSHOT_NAME_PREFIX):
            # Its content is its name: it cannot be written wrongly, nor twice.
            return await self._snapshots.write(
                key, lambda: self._writer.apply(obj, field_manager, force=force)
            )
        stored = await self._track(key, self._writer.apply(obj, field_manager, force=force))
        log.info("applied", kind=key.kind, namespace=key.namespace, name=key.name)
        return stored

    async def patch(self, key: ObjectKey, merge: Json) -> Json:
        """JSON merge patch of everything but the status."""
        stored = await self._track(key, self._writer.patch(key, merge))
        log.info("patched", kind=key.kind, namespace=key.namespace, name=key.name, fields=merge)
        return stored

    async def patch_status(self, key: ObjectKey, merge: Json) -> Json:
        """JSON merge patch of the status."""
        stored = await self._track(key, self._writer.patch_status(key, merge))
        phase = (merge.get("status") or {}).get("phase")
        tell = log.info if phase in _ENDS else log.debug
        tell("status written", kind=key.kind, namespace=key.namespace, name=key.name, phase=phase)
        return stored

    async def delete(self, key: ObjectKey, uid: str | None = None) -> None:
        """Delete the object."""
        if self._find_version(key) is None:
            return await self._writer.delete(key, uid)
        self._expectations.begin(key, self._train_job)
        try:
            await self._writer.delete(key, uid)
        except BaseException:
            self._expectations.finish(key, "", "")
            raise
        self._expectations.finish_deletion(key)
        log.info("deleted", kind=key.kind, namespace=key.namespace, name=key.name)

    async def record_event(self, event: Event) -> None:
        """Record an event."""
        await self._writer.record_event(event)

    async def _track(self, key: ObjectKey, write: Awaitable[Json]) -> Json:
        if self._find_version(key) is None:
            return await write
        self._expectations.begin(key, self._train_job)
        version = ""
        try:
            stored = await write
            version = stored["metadata"].get("resourceVersion", "")
        finally:
            # What was refused, or whose fate is unknown, is not waited for: doing it again changes nothing.
            self._expectations.finish(key, version, self._find_version(key) or "")
        return stored


def _build_key(obj: Json) -> ObjectKey:
    metadata = obj["metadata"]
    return ObjectKey(obj["kind"], metadata.get("namespace", ""), metadata["name"])
