"""Requests and streams against servers of a few lines, for what a real API server does not do on request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from aiohttp import web

from trainwright.cluster.kube.config import Connection
from trainwright.cluster.kube.errors import TooManyRequestsError
from trainwright.cluster.kube.requests import Request
from trainwright.cluster.kube.transport import MAX_THROTTLED_ATTEMPTS, AiohttpTransport
from trainwright.operator.certificates import Certificates, build_certificates

REQUEST = Request(method="GET", path="/anything")


class BusyServer:
    """Says 429 so many times, then answers."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.asked = 0

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        if self.asked <= self.refusals:
            return web.Response(status=429, headers={"Retry-After": "0"})
        return web.Response(body=b"here")


@asynccontextmanager
async def serving(server: BusyServer) -> AsyncIterator[AiohttpTransport]:
    app = web.Application()
    app.router.add_get("/anything", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        async with AiohttpTransport(Connection(server=f"http://127.0.0.1:{port}")) as transport:
            yield transport
    finally:
        await runner.cleanup()


async def read_stream(transport: AiohttpTransport) -> bytes:
    async with aclosing(transport.stream(REQUEST, 10)) as pieces:
        return b"".join([piece async for piece in pieces])


async def read_request(transport: AiohttpTransport) -> bytes:
    return await transport.request(REQUEST)


@pytest.mark.parametrize("read", [read_request, read_stream])
async def test_what_the_server_has_no_time_for_is_asked_again(read) -> None:
    server = BusyServer(refusals=3)
    async with serving(server) as transport:
        assert await read(transport) == b"here"
    assert server.asked == 4


@pytest.mark.parametrize("read", [read_request, read_stream])
async def test_a_server_that_never_has_time_is_left_alone_in_the_end(read) -> None:
    server = BusyServer(refusals=100)
    async with serving(server) as transport:
        with pytest.raises(TooManyRequestsError):
            await read(transport)
    assert server.asked == MAX_THROTTLED_ATTEMPTS


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return build_certificates(("127.0.0.1",), datetime.now(UTC))


@pytest.fixture
def serving_context(certificates: Certificates, tmp_path: Path) -> ssl.SSLContext:
    pem = tmp_path / "server.pem"
    pem.write_bytes(certificates.serving.certificate_pem + certificates.serving.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    return context


@contextmanager
def deaf_server(context: ssl.SSLContext) -> Iterator[int]:
    """A TLS server that begins an answer and never reads again, nor says good-bye; its port."""
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        # An OSError is the end of the listener to which nobody came, or of a client in its greeting.
        with (
            contextlib.suppress(OSError),
            listener.accept()[0] as raw,
            context.wrap_socket(raw, server_side=True) as connection,
        ):
            connection.recv(100)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
            over.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # of its connections
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def count_connections(port: int) -> int:
    found = psutil.Process().net_connections("tcp")
    return sum(1 for one in found if one.raddr and one.raddr.port == port)


def connect(port: int, certificates: Certificates) -> AiohttpTransport:
    return AiohttpTransport(Connection(server=f"https://127.0.0.1:{port}", ca_pem=certificates.ca_bundle))


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_a_stream_that_is_given_up_takes_its_connection_with_it(
    certificates: Certificates, serving_context: ssl.SSLContext, how: str
) -> None:
    """1. A stream is open. 2. Nobody wants the rest. 3. The connection is gone, without the server's word."""
    with deaf_server(serving_context) as port:
        begun = asyncio.Event()

        async def read(transport: AiohttpTransport) -> None:
            async with aclosing(transport.stream(REQUEST, 10)) as pieces:
                async for _ in pieces:
                    begun.set()
                    if how == "closed":
                        return

        async with connect(port, certificates) as transport:
            reading = asyncio.create_task(read(transport))
            await begun.wait()
            if how == "cancelled":
                assert count_connections(port) == 1
                reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            # The loop closes it in its next turns; a server's word would be waited for for 30 s.
            async with asyncio.timeout(10):
                while count_connections(port):  # noqa: ASYNC110 (sockets tell nobody)
                    await asyncio.sleep(0)


LARGE = Request(method="PUT", path="/anything", body=b"x" * 1_000_000)


@pytest.mark.parametrize("request_", [REQUEST, LARGE], ids=["to be answered", "to be read"])
async def test_no_socket_is_left_of_a_request_that_the_server_was_busy_with(
    certificates: Certificates, serving_context: ssl.SSLContext, request_: Request
) -> None:
    """1. A request is sent to a server that reads no more. 2. It is cancelled. 3. The transport is closed."""
    with deaf_server(serving_context) as port:
        async with connect(port, certificates) as transport:
            asking = asyncio.create_task(transport.request(request_))
            async with asyncio.timeout(10):
                while not count_connections(port):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await asyncio.wait([asking], timeout=0.05)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert count_connections(port) == 0


async def answer_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer in two pieces, a few turns of the loop apart, and hold the connection."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        for piece in (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", b"hello"):
            for _ in range(5):
                await asyncio.sleep(0)
            writer.write(piece)
        await reader.read()
    writer.close()


@pytest.mark.parametrize("read", [read_request, read_stream])
async def test_no_socket_is_left_whenever_a_request_is_cancelled(
    certificates: Certificates, serving_context: ssl.SSLContext, read
) -> None:
    """Cancelled after each number of turns of the loop: while it connects, greets, sends, waits, reads."""
    server = await asyncio.start_server(answer_slowly, "127.0.0.1", 0, ssl=serving_context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        answered = False
        turns = 0
        while not answered:
            async with connect(port, certificates) as transport:
                asking = asyncio.create_task(read(transport))
                for _ in range(turns):
                    await asyncio.sleep(0)
                asking.cancel()
                answered = (await asyncio.gather(asking, return_exceptions=True)) == [b"hellohello"]
            assert count_connections(port) == 0, f"cancelled after {turns} turns"
            turns += 1
