"""What TLS costs the operator."""

from __future__ import annotations

import asyncio
import gc
import ssl
import tracemalloc
from asyncio import sslproto
from datetime import UTC, datetime

import pytest

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")

from trainwright.cluster.kube.sockets import OneSidedClose
from trainwright.operator.certificates import build_certificates
from trainwright.operator.serving import CertificateSlot, bound_tls_buffers

CONNECTIONS = 20


async def test_an_open_connection_keeps_less_than_100_kib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sslproto.SSLProtocol, "max_size", sslproto.SSLProtocol.max_size
    )  # put back at the end
    bound_tls_buffers()
    made = build_certificates(("localhost",), datetime.now(UTC))
    slot = CertificateSlot()
    slot.swap(made.serving)
    trusting = ssl.create_default_context(cadata=made.ca_bundle.decode())
    trusting.sslobject_class = OneSidedClose
    served: list[asyncio.StreamWriter] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        writer.write(await reader.readexactly(100_000))
        await writer.drain()

    async def exchange(port: int) -> asyncio.StreamWriter:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting, server_hostname="localhost"
        )
        writer.write(b"x" * 100_000)
        assert await reader.readexactly(100_000) == b"x" * 100_000
        return writer

    async def end(writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(echo, "127.0.0.1", 0, ssl=slot.context) as server:
        port = server.sockets[0].getsockname()[1]
        await end(await exchange(port))  # what is made once is not counted
        gc.collect()
        tracemalloc.start()
        writers = [await exchange(port) for _ in range(CONNECTIONS)]
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        for writer in (*writers, *served):
            await end(writer)
    # Both ends of a connection are here.
    assert kept / (2 * CONNECTIONS) < 100 * 1024
