"""Sends requests. Two methods; what is sent is a value (`requests.py`), what comes back is bytes.

Retries live here and only for what the server itself asks to repeat: 429 with Retry-After, for plain requests
and streams alike, and one repetition with fresh credentials after a 401. Everything else is the caller's
decision (work queue, watch loop).
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import aiohttp
from yarl import URL

from trainwright.cluster.kube.config import Connection
from trainwright.cluster.kube.credentials import Credential, CredentialSource
from trainwright.cluster.kube.errors import TooManyRequestsError, UnauthorizedError, parse_error
from trainwright.cluster.kube.requests import Request
from trainwright.cluster.kube.sockets import OneSidedClose, Sockets
from trainwright.errors import TargetUnreachable

POOL_SIZE = 64
CONNECT_TIMEOUT_SECONDS = 10.0
REQUEST_TIMEOUT_SECONDS = 60.0
MAX_THROTTLED_ATTEMPTS = 6
USER_AGENT = "trainwright"


class Transport(Protocol):
    """Sends requests to one API server."""

    async def request(self, request: Request) -> bytes:
        """Return the body of the answer. Raises ApiError, TargetUnreachable."""
        ...

    def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        """Yield the body in the pieces that arrive; TargetUnreachable after so long without any.

        Whoever stops before the end closes it (`contextlib.aclosing`), and with it the connection.
        """
        ...


# Hears of every answer: method and status code, 0 where there was none. For metrics; must be quick.
AnswerListener = Callable[[str, int], None]


class AiohttpTransport:
    """One pool of connections. Plain requests share it; each stream has a connection of its own."""

    def __init__(self, connection: Connection, listener: AnswerListener | None = None) -> None:
        self._connection = connection
        self._listener = listener
        loop = asyncio.get_running_loop()
        self._credentials = CredentialSource(connection, loop.time, lambda: datetime.now(UTC))
        self._sessions: dict[tuple[bytes | None, bytes | None], aiohttp.ClientSession] = {}
        self._sockets = Sockets()

    async def __aenter__(self) -> Self:
        """Enter; connections are made when they are needed."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await self.close()

    async def close(self) -> None:
        """Close every connection, also those of requests that were cancelled: no socket is left."""
        sessions, self._sessions = self._sessions, {}
        try:
            for session in sessions.values():
                await session.close()
        finally:
            await self._sockets.close()

    async def request(self, request: Request) -> bytes:
        """Return the body of the answer. Raises ApiError, TargetUnreachable."""
        limits = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS, sock_connect=CONNECT_TIMEOUT_SECONDS)
        async with self._answer(request, limits) as answer:
            return await answer.read()

    async def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        """Yield the body in the pieces that arrive; TargetUnreachable after so long without any."""
        limits = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_TIMEOUT_SECONDS, sock_read=inactivity_seconds
        )
        async with self._answer(request, limits) as answer:
            async for piece in answer.content.iter_any():
                yield piece

    @asynccontextmanager
    async def _answer(
        self, request: Request, limits: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send until the server lets it in; HTTP errors become ours."""
        try:
            async with await self._send_until_admitted(request, limits) as answer:
                yield answer
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            said = str(error) or type(error).__name__
            raise TargetUnreachable(
                f"the API server {self._connection.server} does not answer: {said}"
            ) from error

    async def _send_until_admitted(
        self, request: Request, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Send, and again after each pause that the server asks for."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._send_with_credential(request, limits)
            except TooManyRequestsError as error:
                if attempt >= MAX_THROTTLED_ATTEMPTS:
                    raise
                # Priority and fairness names the pause; a proxy without Retry-After gets a second.
                await asyncio.sleep(error.retry_after if error.retry_after is not None else 1.0)

    async def _send_with_credential(
        self, request: Request, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """Send, with fresh credentials once more after a 401."""
        credential = await self._credentials.get_credential()
        try:
            return await self._send(request, credential, limits)
        except UnauthorizedError:
            self._credentials.expire(credential)
            renewed = await self._credentials.get_credential()
            if renewed == credential:
                raise
            return await self._send(request, renewed, limits)

    async def _send(
        self, request: Request, credential: Credential, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if credential.authorization:
            headers["Authorization"] = credential.authorization
        try:
            answer = await self._session(credential).request(
                request.method,
                _build_url(self._connection.server, request),
                data=request.body,
                headers=headers,
                timeout=limits,
                proxy=self._connection.proxy_url,
                server_hostname=self._connection.tls_server_name,
            )
        except (aiohttp.ClientError, TimeoutError, OSError):
            self._tell(request, 0)
            raise
        self._tell(request, answer.status)
        if answer.status >= 400:
            async with answer:
                raise parse_error(answer.status, await answer.read(), answer.headers.get("Retry-After"))
        return answer

    def _tell(self, request: Request, status: int) -> None:
        if self._listener is not None:
            self._listener(request.method, status)

    def _session(self, credential: Credential) -> aiohttp.ClientSession:
        """Return the pool for this client certificate; a new certificate needs new connections."""
        key = (credential.client_certificate_pem, credential.client_key_pem)
        if key not in self._sessions:
            context = build_ssl_context(self._connection, credential)
            connector = aiohttp.TCPConnector(
                limit=POOL_SIZE, ssl=context, keepalive_timeout=60, socket_factory=self._sockets.open
            )
            self._sessions[key] = aiohttp.ClientSession(connector=connector, auto_decompress=True)
        return self._sessions[key]


def build_ssl_context(connection: Connection, credential: Credential) -> ssl.SSLContext:
    """Return the TLS settings: the cluster's CA alone where one is given, our certificate if we have one."""
    if connection.insecure_skip_tls_verify:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context = ssl.create_default_context(cadata=connection.ca_pem.decode() if connection.ca_pem else None)
    if credential.client_certificate_pem and credential.client_key_pem:
        # The ssl module takes a certificate only from a file: ours is private and gone at once.
        with tempfile.TemporaryDirectory(prefix="trainwright-") as folder:
            path = Path(folder) / "client.pem"
            path.touch(mode=0o600)
            path.write_bytes(credential.client_certificate_pem + b"\n" + credential.client_key_pem)
            context.load_cert_chain(path)
    context.sslobject_class = OneSidedClose
    return context


def _build_url(server: str, request: Request) -> URL:
    # Already encoded: yarl would otherwise decode what is escaped in label selectors.
    return URL(server + request.target, encoded=True)
