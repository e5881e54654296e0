"""A network link on loopback that can be made slow, or be held: bytes arrive complete, in order, but late.

In: the port of a server. Out: a port that leads there. It runs in a thread of its own, so that it works while
the test waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Self


class SlowLink:
    """One link; `delay_seconds` may be changed at any time. Use as a context manager."""

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.delay_seconds = 0.0
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"slow-link-{port}")
        self._pumps: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen()).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._end()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold(self) -> None:
        """Let nothing through until `release`; connections stay."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def release(self) -> None:
        """Let everything through that waits, and what follows."""
        self._loop.call_soon_threadsafe(self._open.set)

    def _run(self, work: Coroutine[None, None, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _listen(self) -> None:
        self._open.set()
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)

    async def _end(self) -> None:
        self._server.close()
        for task in self._pumps:
            task.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join two connections until either ends."""
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pump(reader, far_writer))
                    group.create_task(self._pump(far_reader, writer))
            except* OSError:
                pass
            finally:
                far_writer.transport.abort()
                writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes over, each piece as much later as the link is slow at the time; then end both ways."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=1000)

        async def read() -> None:
            while piece := await reader.read(65536):
                await pieces.put((self._loop.time() + self.delay_seconds, piece))
            await pieces.put((self._loop.time() + self.delay_seconds, b""))

        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(due - self._loop.time())
                await self._open.wait()
                if not piece:
                    raise ConnectionResetError
                writer.write(piece)
                await writer.drain()
