"""A status server that answers what it is told to, and remembers what it was sent."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from trainwright.runner.progress.http_request import Request, read_line, read_request


class ScriptedServer:
    """Gives the answers of its script in order, then 200 to all that follow."""

    def __init__(self, answers: Sequence[str]) -> None:
        self.requests: list[Request] = []
        self.url = ""
        self._answers = list(answers)
        self._arrived = asyncio.Condition()

    @property
    def statuses(self) -> list[dict[str, Any]]:
        """The `trainerStatus` of every request, without its time."""
        found = [json.loads(request.body)["trainerStatus"] for request in self.requests]
        return [{name: value for name, value in s.items() if name != "lastUpdatedTime"} for s in found]

    async def wait_for_requests(self, count: int) -> None:
        async with asyncio.timeout(10), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await read_request(await read_line(reader), reader, writer, 1_000_000)
            head = self._answers.pop(0) if self._answers else "200 OK"
            writer.write(f"HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
            async with self._arrived:
                self.requests.append(request)
                self._arrived.notify_all()
        except (EOFError, OSError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def run_scripted_server(
    *answers: str, tls: ssl.SSLContext | None = None
) -> AsyncIterator[ScriptedServer]:
    """Serve on loopback. An answer is a status line, and headers after it: "503 Busy\\r\\nRetry-After: 1"."""
    scripted = ScriptedServer(answers)
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0, ssl=tls)
    scheme = "https" if tls else "http"
    scripted.url = f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}/status"
    try:
        yield scripted
    finally:
        server.close()
        await server.wait_closed()
