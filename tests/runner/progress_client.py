"""A client of the progress server that sends exactly the bytes it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any
from urllib.parse import urlsplit

import msgspec

from trainwright.runner.progress.server import ProgressServer


class Response(msgspec.Struct, frozen=True):
    code: int
    headers: dict[str, str]
    body: Any


def build_report(**fields: object) -> dict[str, object]:
    return {"trainerStatus": {"lastUpdatedTime": "2026-03-01T12:00:00Z", **fields}}


class RawClient:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: ProgressServer):
        self.reader = reader
        self.writer = writer
        self._server = server

    @classmethod
    async def connect(cls, server: ProgressServer) -> RawClient:
        url = urlsplit(server.url)
        return cls(*await asyncio.open_connection(url.hostname, url.port), server)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, body: object, token: str, *, path: str | None = None, method: str = "POST") -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send(
            f"{method} {path or urlsplit(self._server.url).path} HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {token}\r\nContent-Length: {len(raw)}\r\n\r\n".encode()
            + raw
        )

    async def read_response(self) -> Response:
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])
            }
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Response(int(head[0].split(" ")[1]), headers, json.loads(body) if body else None)

    async def is_closed(self) -> bool:
        async with asyncio.timeout(10):
            return await self.reader.read() == b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):  # the server may have been faster
            await self.writer.wait_closed()
