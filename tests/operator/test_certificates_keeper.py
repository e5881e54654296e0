"""The keeper of certificates where answers and watches overtake each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import msgspec
import pytest

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")

from cluster.kube.scripted_server import settle
from trainwright.api.meta import Json
from trainwright.cluster.kube.requests import Request
from trainwright.operator.certificates import Certificates, build_certificates, build_secret_data
from trainwright.operator.certificates_keeper import CONFIGURATIONS, CertificateKeeper, CertificateSettings
from trainwright.operator.followed_object import Place
from trainwright.operator.serving import CertificateSlot

SETTINGS = CertificateSettings(namespace="ns", service_name="operator", secret_name="certificate")
NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Server:
    """Three objects, each followed by one watch; `other` is what another replica writes after us."""

    def __init__(self, other: Certificates) -> None:
        self._other = other
        self._version = 1
        self._objects: dict[str, Json] = {}
        self._changes: dict[str, asyncio.Queue[bytes]] = {}
        for place in (SETTINGS.secret, *CONFIGURATIONS):
            self._changes[place.collection] = asyncio.Queue()
            webhooks = [] if place == SETTINGS.secret else [{"clientConfig": {}}]
            self._objects[place.path] = {"metadata": {"name": place.name}, "webhooks": webhooks}

    async def request(self, request: Request) -> bytes:
        if request.method == "PUT":
            written = self._write(request.path, msgspec.json.decode(request.body or b""))
            if request.path == SETTINGS.secret.path:
                # Another replica was faster than our answer: the watch brings what it wrote before that.
                self._write(request.path, {**written, "data": build_secret_data(self._other)})
                self._tell(SETTINGS.secret)
                await settle()
            return msgspec.json.encode(written)
        items = [obj for path, obj in self._objects.items() if path.startswith(request.path)]
        return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items})

    async def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        while True:
            yield await self._changes[request.path].get()

    def _write(self, path: str, obj: Json) -> Json:
        self._version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self._version)}
        self._objects[path] = {**obj, "metadata": metadata}
        return self._objects[path]

    def _tell(self, place: Place) -> None:
        event = {"type": "MODIFIED", "object": self._objects[place.path]}
        self._changes[place.collection].put_nowait(msgspec.json.encode(event) + b"\n")


async def test_what_another_replica_wrote_is_served_though_our_own_answer_comes_after_it() -> None:
    """1. We write new certificates. 2. Another replica writes others, and the watch brings them. 3. The
    answer to our write arrives. 4. What is in the Secret is served, not what we wrote."""
    other = build_certificates(SETTINGS.hosts, NOW)
    slot = CertificateSlot()
    keeper = CertificateKeeper(Server(other), SETTINGS, slot, lambda: NOW)
    running = asyncio.create_task(keeper.run())
    try:
        async with asyncio.timeout(60):
            while slot.certificate != other.serving:  # noqa: ASYNC110 (a slot tells nobody)
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.wait([running])
