"""The verbs that write, as a worker uses them: each write is remembered until the caches show it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from trainwright.api.core import Event
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.port import Writer
from trainwright.operator.expectations import Expectations

# The version of an object that the caches have, empty for none; None for a kind that is not watched.
FindVersion = Callable[[ObjectKey], str | None]


class TrackedWriter:
    """Writes for one TrainJob."""

    def __init__(
        self, writer: Writer, train_job: ObjectKey, expectations: Expectations, find_version: FindVersion
    ) -> None:
        self._writer = writer
        self._train_job = train_job
        self._expectations = expectations
        self._find_version = find_version

    async def apply(self, obj: Json, field_manager: str, *, force: bool = True) -> Json:
        """Server-side apply."""
        metadata = obj["metadata"]
        key = ObjectKey(obj["kind"], metadata.get("namespace", ""), metadata["name"])
        return await self._track(key, self._writer.apply(obj, field_manager, force=force))

    async def patch(self, key: ObjectKey, merge: Json) -> Json:
        """JSON merge patch of everything but the status."""
        return await self._track(key, self._writer.patch(key, merge))

    async def patch_status(self, key: ObjectKey, merge: Json) -> Json:
        """JSON merge patch of the status."""
        return await self._track(key, self._writer.patch_status(key, merge))

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
