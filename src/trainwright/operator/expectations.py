"""What was written but is not in the caches yet. Deciding again before it is would write it twice.

A write announces itself before it is sent (`begin`) and says what came of it (`finish`): the resource version
that the object then had. Until a watch has brought that version, the TrainJob that it was written for is not
looked at. Resource versions are opaque: they are compared for equality, so the versions that arrive while a
write is under way are remembered, and a complete list settles everything that was written before it.

A version that never comes (the object was gone before a watch was made) must not keep a job for ever:
after `PATIENCE_SECONDS` the caches count as current, and the worst that can follow is a write that changes
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from trainwright.api.meta import ObjectKey

PATIENCE_SECONDS: Final = 5.0

_ANY: Final = "*"


class _Write:
    """One object with a write under way, or one that was not seen yet."""

    __slots__ = ("awaited", "in_flight", "since", "train_job", "versions")

    def __init__(self, train_job: ObjectKey, now: float) -> None:
        self.train_job = train_job
        self.in_flight = 1
        self.versions: set[str] = set()
        self.awaited = ""
        self.since = now


class Expectations:
    """The writes of this process that the caches have not shown yet, by object and by TrainJob."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or asyncio.get_running_loop().time
        self._writes: dict[ObjectKey, _Write] = {}
        self._open: dict[ObjectKey, set[ObjectKey]] = {}
        self._waiters: dict[ObjectKey, list[asyncio.Future[None]]] = {}
        self.on_met: Callable[[ObjectKey], None] = lambda _: None

    def begin(self, key: ObjectKey, train_job: ObjectKey) -> None:
        """Say that a write of this object, for this TrainJob, is about to be sent."""
        write = self._writes.get(key)
        if write is None:
            self._writes[key] = _Write(train_job, self._clock())
        else:
            write.in_flight += 1
        self._open.setdefault(train_job, set()).add(key)

    def finish(self, key: ObjectKey, version: str, stored_version: str) -> None:
        """Say that the write is done: the object has this version, empty if nothing was stored.

        `stored_version` is the one that the cache has at this moment.
        """
        write = self._writes.get(key)
        if write is None:
            return
        write.in_flight -= 1
        write.since = self._clock()
        if version and version != stored_version and version not in write.versions:
            write.awaited = version
        if write.in_flight == 0 and not write.awaited:
            self._settle(key, write)

    def finish_deletion(self, key: ObjectKey) -> None:
        """Say that the object was deleted: whatever a watch brings of it next shows that."""
        write = self._writes.get(key)
        if write is not None and not write.versions:
            write.awaited = _ANY
        self.finish(key, "", "")

    def see(self, key: ObjectKey, version: str) -> None:
        """Say that a watch brought this version of the object, empty for its end."""
        write = self._writes.get(key)
        if write is None:
            return
        if write.in_flight:
            write.versions.add(version)
        if write.awaited and (version in ("", write.awaited) or write.awaited == _ANY):
            write.awaited = ""
            if write.in_flight == 0:
                self._settle(key, write)

    def see_list(self, kind: str) -> None:
        """Say that all objects of a kind were listed anew: what was written before is in it."""
        for key, write in list(self._writes.items()):
            if key.kind == kind and write.awaited and not write.in_flight:
                write.awaited = ""
                self._settle(key, write)

    def is_current(self, train_job: ObjectKey) -> bool:
        """Say whether the caches show everything that was written for the TrainJob."""
        keys = self._open.get(train_job)
        if not keys:
            return True
        now = self._clock()
        for key in list(keys):
            write = self._writes[key]
            if not write.in_flight and now - write.since >= PATIENCE_SECONDS:
                self._settle(key, write, tell=False)
        return train_job not in self._open

    async def wait(self, train_job: ObjectKey) -> None:
        """Wait until the caches show everything that was written for the TrainJob, or patience ends."""
        if self.is_current(train_job):
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(train_job, []).append(waiter)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await waiter
        except TimeoutError:
            return

    def _settle(self, key: ObjectKey, write: _Write, *, tell: bool = True) -> None:
        del self._writes[key]
        train_job = write.train_job
        keys = self._open[train_job]
        keys.discard(key)
        if keys:
            return
        del self._open[train_job]
        for waiter in self._waiters.pop(train_job, ()):
            if not waiter.done():
                waiter.set_result(None)
        if tell:
            self.on_met(train_job)
