"""The small servers of the process: probes and metrics, and how any of them is started.

A probe asks all checks of its kind, or one by name (`/readyz/caches`), and says which failed and why, as an
API server does it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping

import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from trainwright.errors import UsageError

log = structlog.get_logger(__name__)

# Returns None where all is well, else what is not.
Check = Callable[[], Awaitable[str | None]]

SHUTDOWN_SECONDS = 1.0
# API servers keep connections to webhooks open for later, and are better not the ones to find them closed.
IDLE_SECONDS = 3630.0


class Server:
    """One listening server. Use as an async context manager; `port` is the real one of port 0.

    A connection without a request is closed after `idle_seconds`.
    """

    def __init__(
        self,
        app: web.Application,
        host: str | None,
        port: int,
        context: ssl.SSLContext | None = None,
        *,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS, keepalive_timeout=idle_seconds
        )
        self._host = host
        self._port = port
        self._context = context

    @property
    def port(self) -> int:
        """The port that it listens on."""
        addresses = self._runner.addresses
        return int(addresses[0][1]) if addresses else self._port

    async def __aenter__(self) -> Server:
        """Listen. Raises UsageError where the address cannot be had."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._context).start()
        except OSError as error:
            await self._runner.cleanup()
            where = f"{self._host or '*'}:{self._port}"
            raise UsageError(
                f"cannot listen on {where}: {error.strerror}; choose another address in the configuration"
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening, finish what is being answered, and end every connection."""
        handlers = self._runner.server.connections if self._runner.server is not None else ()
        transports = [handler.transport for handler in handlers]
        await self._runner.cleanup()
        for transport in transports:
            if isinstance(transport, asyncio.Transport):
                # A TLS connection would wait for the word of a client that keeps it open for later.
                transport.abort()
        await asyncio.sleep(0)


def build_health_app(probes: Mapping[str, Mapping[str, Check]]) -> web.Application:
    """Return the app of the probes; `{"readyz": {"caches": check}}` is served at /readyz, /readyz/caches."""
    app = web.Application()
    for endpoint, checks in probes.items():
        app.router.add_get(f"/{endpoint}", _build_probe(endpoint, checks))
        for name, check in checks.items():
            app.router.add_get(f"/{endpoint}/{name}", _build_probe(endpoint, {name: check}))
    return app


def build_metrics_app(
    registry: CollectorRegistry, authorize: Callable[[web.Request], Awaitable[web.Response | None]] | None
) -> web.Application:
    """Return the app that serves metrics; `authorize` returns the refusal of a request, None to serve it."""

    async def serve(request: web.Request) -> web.Response:
        if authorize is not None and (refusal := await authorize(request)) is not None:
            return refusal
        body = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/metrics", serve)
    return app


def _build_probe(
    endpoint: str, checks: Mapping[str, Check]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def probe(request: web.Request) -> web.Response:
        lines, failed = [], []
        for name, check in checks.items():
            problem = await check()
            if problem is None:
                lines.append(f"[+]{name} ok")
            else:
                failed.append(name)
                lines.append(f"[-]{name} failed: {problem}")
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok")
        if failed:
            log.info("probe failed", probe=endpoint, checks=failed)
        lines.append(f"{endpoint} check {'failed' if failed else 'passed'}")
        return web.Response(text="\n".join(lines) + "\n", status=500 if failed else 200)

    return probe
