"""The work queue: which key to look at next. Each key is in at most one pair of hands.

A key added while it waits is one entry; a key added while it is worked on comes again when that is done.
Failed keys come back after a pause that doubles per key. What users wait for (an event) goes before what can
wait (a resync). Source: the work queue that controllers share since client-go; delays as there.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Hashable
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)

BASE_DELAY_SECONDS = 0.005
MAX_DELAY_SECONDS = 1000.0


class Priority(IntEnum):
    """Lower goes first."""

    EVENT = 0
    RESYNC = 1


class QueueObserver(Protocol):
    """Hears what happens to a queue, for metrics; must be quick."""

    def added(self, depth: int) -> None:
        """A key came in; so many wait now."""
        ...

    def taken(self, depth: int, waited_seconds: float) -> None:
        """A key was taken that had waited so long; so many still wait."""
        ...

    def retried(self) -> None:
        """A key failed and comes back after a pause."""
        ...


class WorkQueue(Generic[K]):
    """Keys to look at. All methods belong to one event loop."""

    def __init__(
        self, clock: Callable[[], float] | None = None, observer: QueueObserver | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock or self._loop.time
        self._observer = observer
        self._ready: dict[Priority, deque[K]] = {priority: deque() for priority in Priority}
        self._waiting: dict[K, tuple[Priority, float]] = {}  # since when
        self._working: set[K] = set()
        self._again: dict[K, Priority] = {}
        self._delayed: list[tuple[float, int, K, Priority]] = []
        self._due: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._counter = 0
        self._closed = False
        self._takers: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """How many keys wait to be taken, delayed ones not counted."""
        return len(self._waiting)

    def add(self, key: K, priority: Priority = Priority.EVENT) -> None:
        """Put a key in; nothing if it waits already, except that a higher priority counts."""
        if self._closed:
            return
        if key in self._working:
            self._again[key] = min(priority, self._again.get(key, priority))
            return
        present = self._waiting.get(key)
        if present is not None and present[0] <= priority:
            return
        # A key that moves up stays in its old line too; `_take` skips it there.
        self._waiting[key] = (priority, present[1] if present else self._clock())
        self._ready[priority].append(key)
        if self._observer is not None and present is None:
            self._observer.added(len(self._waiting))
        self._wake_one()

    def add_after(self, key: K, seconds: float, priority: Priority = Priority.EVENT) -> None:
        """Put a key in after a while; of several delays of one key the shortest counts."""
        if seconds <= 0:
            self.add(key, priority)
            return
        due = self._clock() + seconds
        if self._closed or self._due.get(key, float("inf")) <= due:
            return
        self._due[key] = due
        self._counter += 1
        heapq.heappush(self._delayed, (due, self._counter, key, priority))
        self._set_timer()

    def add_failed(self, key: K) -> float:
        """Put a key in after its pause, which doubles with every failure; return the pause in seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = min(BASE_DELAY_SECONDS * 2.0 ** min(failures, 60), MAX_DELAY_SECONDS)
        if self._observer is not None:
            self._observer.retried()
        self.add_after(key, pause)
        return pause

    def forget(self, key: K) -> None:
        """Say that the key went well: its next failure pauses shortly again."""
        self._failures.pop(key, None)

    async def take(self) -> K | None:
        """Wait for a key and take it; `done` must follow. None once the queue is closed."""
        while True:
            self._release_due()
            key = self._take()
            if key is not None:
                return key
            if self._closed:
                return None
            taker = self._loop.create_future()
            self._takers.append(taker)
            try:
                await taker
            except asyncio.CancelledError:
                # Woken and cancelled at once: the key that it was woken for is for another one.
                if taker.done() and not taker.cancelled():
                    self._wake_one()
                raise

    def done(self, key: K) -> None:
        """Hand a key back; if it was added meanwhile it waits again."""
        self._working.discard(key)
        priority = self._again.pop(key, None)
        if priority is not None:
            self.add(key, priority)

    def close(self) -> None:
        """Let every `take` return None. What waits is dropped: who looks next, looks at everything."""
        self._closed = True
        self._waiting.clear()
        self._again.clear()
        self._delayed.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
        while self._takers:
            self._wake_one()

    def _wake_one(self) -> None:
        while self._takers:
            taker = self._takers.popleft()
            if not taker.done():
                taker.set_result(None)
                return

    def _take(self) -> K | None:
        for priority, line in self._ready.items():
            while line:
                key = line.popleft()
                present = self._waiting.get(key)
                if present is not None and present[0] == priority:
                    del self._waiting[key]
                    self._working.add(key)
                    if self._observer is not None:
                        self._observer.taken(len(self._waiting), self._clock() - present[1])
                    return key
        return None

    def _release_due(self) -> None:
        now = self._clock()
        while self._delayed and self._delayed[0][0] <= now:
            due, _, key, priority = heapq.heappop(self._delayed)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key, priority)

    def _set_timer(self) -> None:
        """See to it that the next delayed key is added in time, whether anybody waits for it or not."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._delayed and not self._closed:
            pause = max(self._delayed[0][0] - self._clock(), 0.0)
            self._timer = self._loop.call_later(pause, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._release_due()
        self._set_timer()
