"""Probes and metrics over real connections."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter

from trainwright.errors import UsageError
from trainwright.operator.servers import Server, build_health_app, build_metrics_app


async def get(server: Server, path: str, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{server.port}{path}", headers=headers) as answer,
    ):
        return answer.status, await answer.text()


class Parts:
    """Two checks, of which the second may fail."""

    def __init__(self) -> None:
        self.problem: str | None = None

    async def fine(self) -> str | None:
        return None

    async def other(self) -> str | None:
        return self.problem

    def build(self) -> web.Application:
        return build_health_app(
            {"readyz": {"fine": self.fine, "caches": self.other}, "healthz": {"healthz": self.fine}}
        )


async def test_a_probe_is_ok_when_every_check_is() -> None:
    async with Server(Parts().build(), "127.0.0.1", 0) as server:
        assert await get(server, "/readyz") == (200, "ok")
        assert await get(server, "/healthz") == (200, "ok")
        status, text = await get(server, "/readyz?verbose")
        assert (status, text) == (200, "[+]fine ok\n[+]caches ok\nreadyz check passed\n")


async def test_a_probe_says_which_check_failed_and_why() -> None:
    parts = Parts()
    parts.problem = "waiting for Pod"
    async with Server(parts.build(), "127.0.0.1", 0) as server:
        status, text = await get(server, "/readyz")
        assert (status, text) == (
            500,
            "[+]fine ok\n[-]caches failed: waiting for Pod\nreadyz check failed\n",
        )
        assert await get(server, "/healthz") == (200, "ok")


async def test_each_check_has_a_path_of_its_own() -> None:
    parts = Parts()
    parts.problem = "not yet"
    async with Server(parts.build(), "127.0.0.1", 0) as server:
        assert (await get(server, "/readyz/fine"))[0] == 200
        assert (await get(server, "/readyz/caches"))[0] == 500
        assert (await get(server, "/readyz/other"))[0] == 404


def build_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("jobs", "Jobs.", registry=registry).inc()
    return registry


async def test_metrics_are_served() -> None:
    async with Server(build_metrics_app(build_registry(), None), "127.0.0.1", 0) as server:
        status, text = await get(server, "/metrics")
    assert status == 200
    assert "jobs_total 1.0" in text


async def test_metrics_are_refused_to_who_may_not_read_them() -> None:
    async def authorize(request: web.Request) -> web.Response | None:
        allowed = request.headers.get("Authorization") == "Bearer good"
        return None if allowed else web.Response(status=403)

    async with Server(build_metrics_app(build_registry(), authorize), "127.0.0.1", 0) as server:
        assert (await get(server, "/metrics"))[0] == 403
        assert (await get(server, "/metrics", Authorization="Bearer good"))[0] == 200


async def test_an_address_in_use_is_an_error() -> None:
    async with Server(web.Application(), "127.0.0.1", 0) as first:
        with pytest.raises(UsageError, match=rf"cannot listen on 127\.0\.0\.1:{first.port}: .*in use"):
            await Server(web.Application(), "127.0.0.1", first.port).__aenter__()
