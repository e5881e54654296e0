"""Takes the progress reports of one TrainJob on a loopback socket, as the status server of a cluster does.

The protocol itself is `control.progress_protocol`. Here are the socket, the token, and HTTP/1.1 as its three
clients speak it (our own, the public SDK's and Hugging Face's through `urllib`, `curl` in scripts). No web
framework: importing one takes 0.3 s of a core in the very moment in which the training starts.

Plain HTTP is safe here: the socket is bound to 127.0.0.1, and the token is in a file that only the user can
read. Reports are handed on newest first and never faster than the receiver takes them, so that a script which
reports every step neither waits nor floods the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from trainwright.api.constants import PROGRESS_TOKEN_ENV, PROGRESS_URL_ENV
from trainwright.api.progress import build_report_path
from trainwright.control import progress_protocol as protocol
from trainwright.control.progress_protocol import Answer, JobProgress, Report
from trainwright.progress.reporter import INTERVAL_ENV
from trainwright.runner.progress.history import ProgressHistory
from trainwright.runner.progress.http_request import (
    LINE_LIMIT_BYTES,
    Malformed,
    Request,
    build_response,
    read_line,
    read_request,
)

_READ_SECONDS = 10.0
_IDLE_SECONDS = 120.0
_LINGER_SECONDS = 2.0
_CHUNK_BYTES = 65_536
_MAX_CONNECTIONS = 64
_DELIVERY_SECONDS = 0.1
_CLIENT_INTERVAL_SECONDS = "0.2"  # a report costs this server about 0.3 ms


class ProgressServer:
    """Serves one TrainJob. The port is taken at once: what connects before `start` waits in the queue."""

    def __init__(
        self,
        namespace: str,
        name: str,
        token_file: Path,
        on_report: Callable[[Report], Awaitable[None]],
        history: ProgressHistory | None = None,
    ) -> None:
        self._job = (namespace, name)
        self._name = name
        self._token_file = token_file
        self._token = _write_token(token_file)
        self._on_report = on_report
        self._history = history
        self._last: datetime | None = None
        self._newest: Report | None = None
        self._arrived = asyncio.Event()
        self._closing = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._server: asyncio.Server | None = None
        self._delivery: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where reports go."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}{build_report_path(*self._job)}"

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that a pod needs in order to report."""
        return {
            PROGRESS_URL_ENV: self.url,
            PROGRESS_TOKEN_ENV: str(self._token_file),
            INTERVAL_ENV: _CLIENT_INTERVAL_SECONDS,
        }

    async def start(self) -> None:
        """Begin to answer."""
        self._delivery = asyncio.create_task(self._deliver(), name=f"progress of {self._name}")
        self._server = await asyncio.start_server(self._serve, sock=self._socket, limit=LINE_LIMIT_BYTES)

    async def close(self) -> None:
        """Stop listening, end open connections, hand on the last report, and void the token."""
        self._closing.set()
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._arrived.set()
        if self._delivery is not None:
            await self._delivery
        self._token_file.unlink(missing_ok=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _answer(self, request: Request) -> Answer:
        """Check the request in the protocol's order; keep the report of one that passes."""
        headers = request.headers
        if refusal := protocol.check_length(headers):
            return refusal
        if protocol.parse_route(request.method, request.target) != self._job:
            return protocol.not_found()
        token = protocol.parse_token(headers.get("authorization", ""))
        if not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token.encode()):
            return protocol.forbidden()
        progress = JobProgress(name=self._name, last=self._last)
        answer = protocol.read_report(request.body, progress, datetime.now(UTC))
        if answer.report is not None:
            self._keep(answer.report)
        return answer

    def _keep(self, report: Report) -> None:
        self._last = report.reported_at
        self._newest = report
        self._arrived.set()
        if self._history is not None:
            try:
                self._history.append(report)
            except OSError as error:  # a full disk costs the picture, not the training
                _log_failure("the history of a progress report was not written", error)

    async def _deliver(self) -> None:
        """Hand on the newest report, one at a time; reports that arrive meanwhile replace each other."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            report, self._newest = self._newest, None
            if report is not None:
                try:
                    await self._on_report(report)
                except Exception as error:  # noqa: BLE001 (the next report may go through)
                    _log_failure("a progress report was not stored", error)
            if self._closing.is_set() and not self._arrived.is_set():
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DELIVERY_SECONDS):
                    await self._closing.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it ends."""
        task = asyncio.current_task()
        if task is None or self._closing.is_set() or len(self._connections) >= _MAX_CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, EOFError):  # the client went away, or says nothing (a TimeoutError is an OSError)
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read and answer one request. Says whether the connection can take another."""
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                start_line = await read_line(reader)
            async with asyncio.timeout(_READ_SECONDS):
                request = await read_request(start_line, reader, writer, protocol.MAX_BODY_BYTES)
        except Malformed as error:
            answer, is_last = protocol.bad_request(str(error)), True
        else:
            answer, is_last = self._answer(request), request.is_last
        writer.write(build_response(answer.code, answer.body, is_last=is_last))
        async with asyncio.timeout(_READ_SECONDS):
            await writer.drain()
        if is_last:
            await _linger(reader, writer)
        return not is_last


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take in what the client still sends: closing at once would reset the connection before it reads."""
    if writer.can_write_eof():
        writer.write_eof()
    async with asyncio.timeout(_LINGER_SECONDS):
        while await reader.read(_CHUNK_BYTES):
            pass


def _write_token(path: Path) -> str:
    """Write a new token to a file that only its owner can read, whole or not at all, and return it."""
    token = os.urandom(32).hex()
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token)
    temporary.replace(path)
    return token


def _log_failure(message: str, error: Exception) -> None:
    import structlog  # 90 ms that a run without failures does without

    structlog.get_logger(__name__).warning(message, error=f"{type(error).__name__}: {error}")
