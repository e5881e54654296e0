"""The operator as `install --watch-namespace` sets it up: its account, its rights, its webhooks.

It runs in the process of the test and in no namespace, so its webhooks are called by URL.
"""

from __future__ import annotations

import base64
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from kube.control_plane import ControlPlane, find_free_ports
from kube.installing import wait_until_rights_are_known
from kube.operating import SILENT, People, eventually, operating, runtime, train_job
from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.config import Connection, load_connection
from trainwright.cluster.kube.transport import AiohttpTransport
from trainwright.errors import Forbidden
from trainwright.manifests.access import build_operator_access
from trainwright.manifests.names import CERTIFICATE_SECRET, OPERATOR
from trainwright.manifests.settings import InstallSettings, build_object
from trainwright.manifests.webhook_configurations import build_webhook_configurations
from trainwright.operator.configuration import Configuration, LeaderElectionSettings, WebhookSettings

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")

from kube.admitting import build_url


@pytest.fixture
def settings(control_plane: ControlPlane, namespace: str) -> Iterator[InstallSettings]:
    """An installation that watches the namespace of the test, from another one."""
    home = f"{namespace}-home"
    control_plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": home}})
    yield InstallSettings(namespace=home, watch_namespace=namespace)
    control_plane.call("DELETE", f"/api/v1/namespaces/{home}")


@pytest.fixture
def connection(
    control_plane: ControlPlane, crds: None, settings: InstallSettings, tmp_path: Path
) -> Iterator[Connection]:
    """The connection of the account that such an installation makes, with the rights that it gives."""
    secret = {**build_object("v1", "Secret", CERTIFICATE_SECRET, settings.namespace), "type": "Opaque"}
    objects = [*build_operator_access(settings), secret]
    with installed(control_plane, objects):
        wait_until_rights_are_known(control_plane)
        kubeconfig = control_plane.account_kubeconfig(settings.namespace, OPERATOR)
        found = load_connection({"KUBECONFIG": str(kubeconfig)}, tmp_path)
        yield msgspec.structs.replace(found, namespace=settings.namespace)


class installed:  # noqa: N801 (a context manager)
    """Objects that are there while the block lasts; those of a namespace go with it."""

    def __init__(self, plane: ControlPlane, objects: list[Json]) -> None:
        self._plane = plane
        self._objects = objects

    def __enter__(self) -> None:
        for obj in self._objects:
            self._plane.call("POST", build_url(obj, obj["metadata"].get("namespace", "")), obj)

    def __exit__(self, *error: object) -> None:
        for obj in self._objects:
            if "namespace" not in obj["metadata"]:
                self._plane.call("DELETE", build_url(obj, "", obj["metadata"]["name"]))


def build_local_webhooks(settings: InstallSettings, port: int, ca: bytes) -> list[Json]:
    """Return the configurations of the installation, with a URL of this machine in place of the Service."""

    def localize(hook: Json) -> Json:
        url = f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}"
        return {**hook, "clientConfig": {"url": url, "caBundle": base64.b64encode(ca).decode()}}

    return [
        {**configuration, "webhooks": [localize(hook) for hook in configuration["webhooks"]]}
        for configuration in build_webhook_configurations(settings)
    ]


def electing(settings: InstallSettings, **parts: object) -> Configuration:
    election = LeaderElectionSettings(leader_elect=True, resource_namespace=settings.namespace)
    return Configuration(**{**SILENT, "leader_election": election, **parts})  # type: ignore[arg-type]


async def test_a_job_lives_with_what_is_installed_and_nothing_is_forbidden(
    people: People, connection: Connection, settings: InstallSettings
) -> None:
    name = f"shared-{uuid.uuid4().hex[:8]}"
    shared = {**runtime(name), "kind": CLUSTER_TRAINING_RUNTIME, "metadata": {"name": name}}
    await people.cluster.create(shared)
    with capture_logs() as logs:
        async with operating(connection, people.namespace, configuration=electing(settings)) as running:
            reference = {"name": name, "kind": CLUSTER_TRAINING_RUNTIME}
            await people.create(train_job(runtimeRef=reference))
            await people.set_pods("Running", 1)
            await people.until_phase("Running")
            await people.edit({"spec": {"suspend": True}})
            await people.until_phase("Suspended")
            await people.until_status(lambda status: status["jobsStatus"][0]["active"] == 0)
            await people.edit({"spec": {"suspend": False}})
            await people.set_pods("Succeeded", 1)
            await people.until_phase("Complete")
    await people.cluster.delete(ObjectKey(CLUSTER_TRAINING_RUNTIME, "", name))

    assert [line for line in logs if "forbidden" in str(line).lower()] == []
    # It looks at nothing of other namespaces but its lease; the rest belongs to none.
    places = {
        request.path.partition("/namespaces/")[2].partition("/")[0] for request in running.transport.requests
    }
    assert places == {people.namespace, settings.namespace, ""}


async def test_the_webhooks_are_asked_about_that_namespace_alone(
    control_plane: ControlPlane,
    transport: AiohttpTransport,
    people: People,
    connection: Connection,
    settings: InstallSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(control_plane.folder / "pki/hook", tmp_path / "k8s-webhook-server/serving-certs")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    [port] = find_free_ports(1)
    configuration = electing(settings, webhook=WebhookSettings(host="127.0.0.1", port=port))
    ca = (control_plane.folder / "pki/hook/tls.crt").read_bytes()
    elsewhere = People(transport, settings.namespace)

    async def is_refused() -> bool:
        # The API server takes a moment to know its webhooks.
        try:
            await people.create(train_job("unknown", runtime="none"))
        except Forbidden as refused:
            return "spec.runtimeRef" in str(refused)
        await people.delete("TrainJob", "unknown")
        return False

    async with operating(connection, people.namespace, configuration=configuration):
        with installed(control_plane, build_local_webhooks(settings, port, ca)):
            await eventually(is_refused)
            await elsewhere.create(train_job("unknown", runtime="none"))
    assert await elsewhere.status("unknown") == {}


async def test_the_authority_of_the_certificate_is_put_into_the_webhooks(
    control_plane: ControlPlane, people: People, connection: Connection, settings: InstallSettings
) -> None:
    configuration = electing(settings, cert_management=Configuration().cert_management)

    async def find_authorities() -> set[str | None]:
        return {
            hook["clientConfig"].get("caBundle")
            for obj in build_webhook_configurations(settings)
            for hook in control_plane.call("GET", build_url(obj, "", obj["metadata"]["name"]))["webhooks"]
        }

    async def are_all_the_same() -> str | None:
        found = await find_authorities()
        return found.pop() if len(found) == 1 else None

    with installed(control_plane, build_webhook_configurations(settings)):
        async with operating(connection, people.namespace, configuration=configuration):
            authority = await eventually(are_all_the_same)
    assert base64.b64decode(authority).startswith(b"-----BEGIN CERTIFICATE-----")
