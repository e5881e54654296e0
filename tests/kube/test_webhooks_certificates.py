"""Certificates on a real API server: made, shared by replicas, trusted, put back, renewed while serving.

The keepers run as a user who has the rights that are shipped for the operator, and no others.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import urllib.error
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kube.control_plane import ControlPlane, find_free_ports
from kube.installing import wait_until_rights_are_known
from kube.operating import eventually
from reviews import build_job, build_runtime
from trainwright.api.meta import Json
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.errors import ServerTroubleError
from trainwright.cluster.kube.transport import AiohttpTransport

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")

from kube.admitting import ADMISSION, PLURALS, LiveLookup, build_local_configurations, build_url, send
from trainwright.manifests.access import build_operator_access
from trainwright.manifests.names import CERTIFICATE_SECRET, OPERATOR
from trainwright.manifests.settings import InstallSettings
from trainwright.operator.certificates import (
    build_certificates,
    build_secret_data,
    find_fault,
    parse_secret,
)
from trainwright.operator.certificates_keeper import (
    CONFIGURATIONS,
    CertificateKeeper,
    CertificateSettings,
)
from trainwright.operator.serving import CertificateSlot
from trainwright.operator.webhooks import Webhooks

USER = "operator"


class Replica:
    """One replica of the operator, as far as certificates go."""

    def __init__(self, transport: AiohttpTransport, settings: CertificateSettings) -> None:
        self.slot = CertificateSlot()
        self.now = datetime.now(UTC)
        self.keeper = CertificateKeeper(transport, settings, self.slot, lambda: self.now)


class World:
    """A namespace of an operator, with its Secret, configurations and rights."""

    def __init__(self, plane: ControlPlane, namespace: str, transport: AiohttpTransport) -> None:
        self.plane = plane
        self.namespace = namespace
        self.settings = CertificateSettings(
            namespace=namespace,
            service_name=OPERATOR,
            secret_name=CERTIFICATE_SECRET,
            more_hosts=("127.0.0.1",),
        )
        self.transport = transport
        [self.port] = find_free_ports(1)
        self.secret_path = f"/api/v1/namespaces/{namespace}/secrets/{CERTIFICATE_SECRET}"
        self.create_configurations()

    def create_configurations(self) -> None:
        self.delete_configurations()
        for configuration in build_local_configurations(self.port, None):
            self.plane.call("POST", f"{ADMISSION}/{PLURALS[configuration['kind']]}", configuration)

    def delete_configurations(self) -> None:
        for place in CONFIGURATIONS:
            with contextlib.suppress(urllib.error.HTTPError):
                self.plane.call("DELETE", place.path)

    def write_secret(self, data: dict[str, str]) -> None:
        reply = send(self.plane, "PATCH", self.secret_path, {"data": data}, "application/merge-patch+json")
        assert reply.code == 200

    def read_secret(self) -> Json:
        found: Json = self.plane.call("GET", self.secret_path)
        return found

    def read_bundles(self) -> list[bytes | None]:
        """The CA of every webhook in both configurations."""
        bundles: list[bytes | None] = []
        for place in CONFIGURATIONS:
            for webhook in self.plane.call("GET", place.path)["webhooks"]:
                encoded = webhook["clientConfig"].get("caBundle")
                bundles.append(base64.b64decode(encoded) if encoded else None)
        return bundles

    @contextlib.asynccontextmanager
    async def run(self, *replicas: Replica) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(replica.keeper.run()) for replica in replicas]
        try:
            async with asyncio.timeout(30):
                await asyncio.gather(*(replica.keeper.ready.wait() for replica in replicas))
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def build_replica(self) -> Replica:
        return Replica(self.transport, self.settings)


@pytest.fixture
async def world(
    control_plane: ControlPlane, crds: None, namespace: str, tmp_path: Path
) -> AsyncIterator[World]:
    objects = [_bind_to_user(obj) for obj in build_operator_access(InstallSettings(namespace=namespace))]
    for obj in objects:
        assert send(control_plane, "POST", build_url(obj, namespace), obj).code == 201
    wait_until_rights_are_known(control_plane)
    secret = {"metadata": {"name": CERTIFICATE_SECRET}, "type": "Opaque"}
    control_plane.call("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
    connection = load_connection({"KUBECONFIG": str(control_plane.kubeconfig(USER))}, tmp_path)
    async with AiohttpTransport(connection) as transport:
        world = World(control_plane, namespace, transport)
        yield world
    world.delete_configurations()
    for obj in objects:
        if obj["kind"].startswith("Cluster"):
            control_plane.call("DELETE", build_url(obj, "", obj["metadata"]["name"]))


def _bind_to_user(obj: Json) -> Json:
    if not obj["kind"].endswith("Binding"):
        return obj
    return {**obj, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]}


async def until(condition: Callable[[], Any], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (the world is elsewhere)
            await asyncio.sleep(0.05)


async def test_of_two_replicas_that_start_at_once_one_wins_and_both_serve_its_certificate(
    world: World,
) -> None:
    replicas = [world.build_replica() for _ in range(2)]
    async with world.run(*replicas):
        stored = parse_secret(world.read_secret())
        assert stored is not None
        await until(lambda: all(replica.slot.certificate == stored.serving for replica in replicas))

    assert find_fault(stored, world.settings.hosts, datetime.now(UTC)) is None
    assert set(world.read_bundles()) == {stored.ca_bundle}
    assert len(world.read_bundles()) == 4


async def test_a_replica_that_comes_later_takes_what_is_there_and_writes_nothing(world: World) -> None:
    async with world.run(world.build_replica()):
        versions = [
            world.plane.call("GET", place.path)["metadata"]["resourceVersion"] for place in CONFIGURATIONS
        ]
        secret = world.read_secret()
        late = world.build_replica()
        async with world.run(late):
            assert late.slot.certificate is not None

    assert world.read_secret() == secret
    assert versions == [
        world.plane.call("GET", place.path)["metadata"]["resourceVersion"] for place in CONFIGURATIONS
    ]


async def test_a_ca_that_is_lost_from_a_configuration_is_put_back(world: World) -> None:
    async with world.run(world.build_replica()):
        [bundle] = set(world.read_bundles())
        for place in CONFIGURATIONS:
            configuration = world.plane.call("GET", place.path)
            for webhook in configuration["webhooks"]:
                webhook["clientConfig"].pop("caBundle")
            world.plane.call("PUT", place.path, configuration)
        await until(lambda: set(world.read_bundles()) == {bundle})


async def test_a_configuration_that_is_made_anew_gets_the_ca(world: World) -> None:
    async with world.run(world.build_replica()):
        [bundle] = set(world.read_bundles())
        world.create_configurations()
        await until(lambda: set(world.read_bundles()) == {bundle})


async def test_who_starts_before_the_configurations_is_not_ready_until_they_are_there(world: World) -> None:
    world.delete_configurations()
    replica = world.build_replica()
    task = asyncio.create_task(replica.keeper.run())
    try:
        await until(lambda: replica.slot.certificate is not None)
        assert not replica.keeper.ready.is_set()
        world.create_configurations()
        async with asyncio.timeout(20):
            await replica.keeper.ready.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert None not in world.read_bundles()


async def test_a_certificate_near_its_end_is_renewed_while_it_serves(world: World) -> None:
    """1. A certificate was made 280 days ago and is served. 2. The keeper looks today: it is 85 days from its
    end, and renewed. 3. Jobs are created all the while, and not one is refused.
    """
    replica = world.build_replica()
    replica.now = datetime.now(UTC) - timedelta(days=280)
    people = KubeCluster(world.transport, "test")
    lookup = LiveLookup(people)
    webhooks = Webhooks(lookup, lookup.read_runtime, lambda: datetime.now(UTC))
    admin = load_connection({"KUBECONFIG": str(world.plane.kubeconfig())}, Path("/"))
    async with _serving(webhooks, world.port, replica.slot), world.run(replica):
        first = replica.slot.certificate
        async with AiohttpTransport(admin) as transport:
            cluster = KubeCluster(transport, "people")
            # The API server learns of the CA by a watch of its own, a moment after it was written down.
            await eventually(lambda: _is_created(cluster, world.namespace, build_runtime()))
            for i in range(10):
                await _create(cluster, world.namespace, build_job(f"before-{i}"))
            replica.now = datetime.now(UTC)
            replica.keeper.check()
            i = 0
            while replica.slot.certificate == first:
                await _create(cluster, world.namespace, build_job(f"while-{i}"))
                i += 1
            for i in range(10):
                await _create(cluster, world.namespace, build_job(f"after-{i}"))
    stored = parse_secret(world.read_secret())

    assert stored is not None
    assert replica.slot.certificate == stored.serving
    assert find_fault(stored, world.settings.hosts, datetime.now(UTC)) is None


async def _is_created(cluster: KubeCluster, namespace: str, obj: Json) -> bool:
    try:
        await _create(cluster, namespace, obj)
    except ServerTroubleError:  # "failed calling webhook": its certificate is not trusted
        return False
    return True


async def _create(cluster: KubeCluster, namespace: str, obj: Json) -> None:
    metadata = {"name": obj["metadata"]["name"], "namespace": namespace}
    await cluster.create({**obj, "metadata": metadata})


@contextlib.asynccontextmanager
async def _serving(webhooks: Webhooks, port: int, slot: CertificateSlot) -> AsyncIterator[None]:
    runner = web.AppRunner(webhooks.build_app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=slot.context).start()
        yield
    finally:
        await runner.cleanup()


async def test_all_replicas_take_over_what_one_of_them_renewed(world: World) -> None:
    replicas = [world.build_replica() for _ in range(2)]
    for replica in replicas:
        replica.now = datetime.now(UTC) - timedelta(days=280)
    async with world.run(*replicas):
        old = parse_secret(world.read_secret())
        for replica in replicas:
            replica.now = datetime.now(UTC)
            replica.keeper.check()
        await until(lambda: parse_secret(world.read_secret()) != old)
        await until(
            lambda: all(
                (stored := parse_secret(world.read_secret())) and replica.slot.certificate == stored.serving
                for replica in replicas
            )
        )
    assert old is not None
    assert set(world.read_bundles()) == {old.ca_bundle}


async def test_who_empties_the_secret_gets_everything_new(world: World) -> None:
    replica = world.build_replica()
    async with world.run(replica):
        old = parse_secret(world.read_secret())
        secret = world.read_secret()
        world.plane.call("PUT", world.secret_path, {**secret, "data": {}})
        await until(lambda: parse_secret(world.read_secret()) not in (None, old))
        stored = parse_secret(world.read_secret())
        assert old is not None
        assert stored is not None
        assert old.ca_bundle not in stored.ca_bundle
        await until(lambda: replica.slot.certificate == stored.serving)
        assert set(world.read_bundles()) == {stored.ca_bundle}


async def test_certificates_of_the_peer_are_taken_over_with_their_ca(world: World) -> None:
    """The peer's certificate has one name; what it lacks is added, and its CA goes on being trusted."""
    peers = build_certificates((world.settings.hosts[0],), datetime.now(UTC))
    world.write_secret(build_secret_data(peers))
    async with world.run(world.build_replica()):
        stored = parse_secret(world.read_secret())

    assert stored is not None
    assert (stored.ca_bundle, stored.ca_key) == (peers.ca_bundle, peers.ca_key)
    assert stored.certificate != peers.certificate
    assert find_fault(stored, world.settings.hosts, datetime.now(UTC)) is None


async def test_other_keys_of_the_secret_stay(world: World) -> None:
    world.write_secret({"more": base64.b64encode(b"mine").decode()})
    async with world.run(world.build_replica()):
        pass

    assert base64.b64decode(world.read_secret()["data"]["more"]) == b"mine"


async def test_replicas_whose_clocks_differ_by_years_do_not_renew_for_ever(world: World) -> None:
    right, wrong = world.build_replica(), world.build_replica()
    async with world.run(right):
        wrong.now = datetime.now(UTC) + timedelta(days=700)
        versions: set[str] = set()
        async with world.run(wrong):
            for _ in range(10):
                versions.add(world.read_secret()["metadata"]["resourceVersion"])
                await asyncio.sleep(0.1)
    # What was there, what the wrong one made, what the right one made of that.
    assert len(versions) <= 3
