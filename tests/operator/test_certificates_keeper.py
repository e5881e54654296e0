"""The keeper of certificates where answers and watches overtake each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

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
    """Three objects, each followed by one watch.

    `other` is what another replica writes right after us. `heard` is told of each write.
    """

    def __init__(
        self,
        secret: Certificates | None = None,
        other: Certificates | None = None,
        heard: Callable[[str, Json], None] = lambda *_: None,
    ) -> None:
        self._other = other
        self._heard = heard
        self._version = 1
        self._objects: dict[str, Json] = {}
        self._changes: dict[str, asyncio.Queue[bytes]] = {}
        for place in (SETTINGS.secret, *CONFIGURATIONS):
            self._changes[place.collection] = asyncio.Queue()
            webhooks = [] if place == SETTINGS.secret else [{"clientConfig": {}}]
            self._objects[place.path] = {"metadata": {"name": place.name}, "webhooks": webhooks}
        if secret is not None:
            self._objects[SETTINGS.secret.path]["data"] = build_secret_data(secret)

    async def request(self, request: Request) -> bytes:
        if request.method == "PUT":
            written = self._write(request.path, msgspec.json.decode(request.body or b""))
            self._heard(request.path, written)
            if request.path == SETTINGS.secret.path and self._other is not None:
                # Another replica was faster than our answer: the watch brings what it wrote before that.
                self.change_secret(self._other)
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

    def change_secret(self, certificates: Certificates) -> None:
        """Let another replica write the Secret."""
        place = SETTINGS.secret
        self._write(place.path, {**self._objects[place.path], "data": build_secret_data(certificates)})
        self._tell(place)

    def _tell(self, place: Place) -> None:
        event = {"type": "MODIFIED", "object": self._objects[place.path]}
        self._changes[place.collection].put_nowait(msgspec.json.encode(event) + b"\n")


async def test_what_another_replica_wrote_is_served_though_our_own_answer_comes_after_it() -> None:
    """1. We write new certificates. 2. Another replica writes others, and the watch brings them. 3. The
    answer to our write arrives. 4. What is in the Secret is served, not what we wrote."""
    other = build_certificates(SETTINGS.hosts, NOW)
    slot = CertificateSlot()
    keeper = CertificateKeeper(Server(other=other), SETTINGS, slot, lambda: NOW)
    async with keeping(keeper):
        await until(lambda: slot.certificate == other.serving)


@asynccontextmanager
async def keeping(keeper: CertificateKeeper) -> AsyncIterator[None]:
    running = asyncio.create_task(keeper.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (a slot tells nobody)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_first", [True, False], ids=["who replaces it", "another replica"])
async def test_a_certificate_of_a_new_ca_is_served_only_when_api_servers_had_time_to_learn_of_it(
    is_first: bool,
) -> None:
    """1. A certificate is served. 2. Years later its CA is replaced, by us or by another replica. 3. The
    webhook configurations name the new CA, and the old one; later something that it signed is served."""
    old, clock = build_certificates(SETTINGS.hosts, NOW), [NOW]
    told: list[float] = []
    loop = asyncio.get_running_loop()
    paths = {place.path for place in CONFIGURATIONS}
    server = Server(old, heard=lambda path, _: told.append(loop.time()) if path in paths else None)
    slot = CertificateSlot()
    keeper = CertificateKeeper(server, SETTINGS, slot, lambda: clock[0], settle_seconds=0.5)
    async with keeping(keeper):
        await until(keeper.ready.is_set)
        assert slot.certificate == old.serving
        told.clear()
        clock[0] = NOW + timedelta(days=10 * 365 - 60)
        if is_first:
            keeper.check()
        else:
            server.change_secret(build_certificates(SETTINGS.hosts, clock[0], old))
        await until(lambda: slot.certificate != old.serving)
    assert len(told) == 2
    assert loop.time() - max(told) >= 0.5
