"""Waking watches: at once for writes of this process, by a cheap poll for those of others.

SQLite cannot notify another process, but `PRAGMA data_version` tells, from shared memory, whether any other
connection has committed. One timer per store asks it, and only while somebody waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# Polls follow each other this closely after a change, and ever more slowly while nothing happens: changes
# come in bursts, and a supervisor that waits for hours should cost nothing. A suspend typed in one terminal
# reaches an idle supervisor in another within the longer time. benchmarks/bench_list.py measures the idle
# cost.
SHORTEST_POLL_SECONDS: Final = 0.01
LONGEST_POLL_SECONDS: Final = 0.1
_SLOWDOWN: Final = 1.3


class ChangeSignal:
    """Lets tasks wait until the store may have changed.

    `probe` returns a number that differs after another process has written.
    """

    def __init__(self, probe: Callable[[], int]) -> None:
        self._probe = probe
        self._pause = SHORTEST_POLL_SECONDS
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def notify(self) -> None:
        """Wake everybody: this process has written, or is closing the store."""
        self._pause = SHORTEST_POLL_SECONDS
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, seen: int) -> None:
        """Return when somebody has written since the probe gave `seen`; take it before reading, not after."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting[future] = seen
        if self._timer is None:
            self._timer = loop.call_later(self._pause, self._poll, loop)
        try:
            await future
        finally:
            del self._waiting[future]
            if not self._waiting and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        try:
            now = self._probe()
        except Exception as error:  # noqa: BLE001 (whoever waits gets it; a timer has nobody to raise it to)
            for future in self._waiting:
                if not future.done():
                    future.set_exception(error)
            return
        self._pause = min(self._pause * _SLOWDOWN, LONGEST_POLL_SECONDS)
        for future, seen in self._waiting.items():
            if seen != now:
                self._pause = SHORTEST_POLL_SECONDS
                if not future.done():
                    future.set_result(None)
        self._timer = loop.call_later(self._pause, self._poll, loop)
