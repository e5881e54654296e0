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
from trainwright.operator.certificates import build_certificates

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


@contextmanager
def deaf_server(folder: Path) -> Iterator[tuple[int, bytes]]:
    """A TLS server that begins an answer and never reads again, nor says good-bye; its port and CA."""
    certificates = build_certificates(("127.0.0.1",), datetime.now(UTC))
    pem = folder / "server.pem"
    pem.write_bytes(certificates.serving.certificate_pem + certificates.serving.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as raw, context.wrap_socket(raw, server_side=True) as connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
            over.wait(30)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1], certificates.ca_bundle
        finally:
            over.set()
            thread.join()


def count_connections(port: int) -> int:
    found = psutil.Process().net_connections("tcp")
    return sum(1 for one in found if one.raddr and one.raddr.port == port)


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_a_stream_that_is_given_up_takes_its_connection_with_it(tmp_path: Path, how: str) -> None:
    """1. A stream is open. 2. Nobody wants the rest. 3. The connection is gone, without the server's word."""
    with deaf_server(tmp_path) as (port, ca_pem):
        connection = Connection(server=f"https://127.0.0.1:{port}", ca_pem=ca_pem)
        begun = asyncio.Event()

        async def read(transport: AiohttpTransport) -> None:
            async with aclosing(transport.stream(REQUEST, 10)) as pieces:
                async for _ in pieces:
                    begun.set()
                    if how == "closed":
                        return

        async with AiohttpTransport(connection) as transport:
            reading = asyncio.create_task(read(transport))
            await begun.wait()
            if how == "cancelled":
                assert count_connections(port) == 1
                reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert count_connections(port) == 0
