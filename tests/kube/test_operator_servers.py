"""The servers of the process with the real API server as their client: webhooks, probes, metrics."""

from __future__ import annotations

import base64
import io
import json
import shutil
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from kube.control_plane import ADMIN_TOKEN, ControlPlane, find_free_ports
from kube.operating import SILENT, People, Running, eventually, operating, runtime, train_job
from trainwright.cluster.kube.config import Connection
from trainwright.cluster.kube.sockets import OneSidedClose
from trainwright.errors import Forbidden, InvalidObject
from trainwright.manifests.settings import InstallSettings
from trainwright.manifests.webhook_configurations import build_webhook_configurations
from trainwright.operator.configuration import (
    Configuration,
    HealthSettings,
    MetricsAuth,
    MetricsSettings,
    WebhookSettings,
)

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")


@pytest.fixture
def ports() -> dict[str, int]:
    return dict(zip(("webhook", "health", "metrics"), find_free_ports(3), strict=True))


@pytest.fixture
def webhooks(control_plane: ControlPlane, namespace: str, ports: dict[str, int]) -> Iterator[None]:
    """The webhook configurations of an installation, for the namespace of the test, by URL."""
    made = []
    ca = base64.b64encode((control_plane.folder / "pki/hook/tls.crt").read_bytes()).decode()
    for configuration in build_webhook_configurations(InstallSettings()):
        name = f"{configuration['metadata']['name']}.{namespace}"
        hooks = [
            {
                **hook,
                "clientConfig": {
                    "url": f"https://127.0.0.1:{ports['webhook']}{hook['clientConfig']['service']['path']}",
                    "caBundle": ca,
                },
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            }
            for hook in configuration["webhooks"]
        ]
        control_plane.create_all([{**configuration, "metadata": {"name": name}, "webhooks": hooks}])
        plural = f"{configuration['kind'].lower()}s"
        made.append(f"/apis/admissionregistration.k8s.io/v1/{plural}/{name}")
    yield
    for path in made:
        control_plane.call("DELETE", path)


@pytest.fixture
async def operator(
    control_plane: ControlPlane,
    operator_connection: Connection,
    namespace: str,
    ports: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Running]:
    shutil.copytree(control_plane.folder / "pki/hook", tmp_path / "k8s-webhook-server/serving-certs")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    parts = {
        "webhook": WebhookSettings(host="127.0.0.1", port=ports["webhook"]),
        "health": HealthSettings(health_probe_bind_address=f"127.0.0.1:{ports['health']}"),
        "metrics": MetricsSettings(
            bind_address=f"127.0.0.1:{ports['metrics']}", auth=MetricsAuth(enabled=True)
        ),
    }
    configuration = Configuration(**{**SILENT, **parts})
    async with operating(operator_connection, namespace, configuration=configuration) as running:
        await eventually(lambda: is_ready(ports["health"]))
        yield running


async def get(url: str, token: str = "", **options: object) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url, **options) as answer:
        return answer.status, await answer.text()


def build_trusting_context(plane: ControlPlane) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(plane.folder / "pki/hook/tls.crt"))
    context.sslobject_class = OneSidedClose
    return context


async def is_ready(port: int) -> bool:
    return (await get(f"http://127.0.0.1:{port}/readyz"))[0] == 200


async def test_jobs_are_defaulted_and_refused_by_the_process_itself(
    webhooks: None, people: People, operator: Running
) -> None:
    await people.create(runtime())

    async def find_refusal() -> str:
        # The API server takes a moment to know its webhooks.
        try:
            await people.create(train_job("unknown", runtime="none"))
        except Forbidden as refused:
            return str(refused)
        await people.delete("TrainJob", "unknown")
        return ""

    refusal = await eventually(find_refusal)
    assert "spec.runtimeRef" in refusal
    assert "none" in refusal
    patch = {"manager": "example.com/me", "trainingRuntimeSpec": {"template": {"metadata": {}}}}

    async def is_stamped() -> bool:
        # It learns of the two configurations in any order.
        created = await people.create(train_job("patched", runtimePatches=[patch]))
        await people.delete("TrainJob", "patched")
        return "time" in created["spec"]["runtimePatches"][0]

    assert await eventually(is_stamped)
    await people.create(train_job())
    await people.until_pods(1)
    with pytest.raises((Forbidden, InvalidObject)):
        await people.edit({"spec": {"runtimeRef": {"name": "other"}}})


async def test_every_check_of_a_probe_can_be_asked(ports: dict[str, int], operator: Running) -> None:
    base = f"http://127.0.0.1:{ports['health']}"
    for path in (
        "/readyz",
        "/readyz/definitions",
        "/readyz/caches",
        "/readyz/webhooks",
        "/healthz",
        "/healthz/healthz",
    ):
        assert await get(base + path) == (200, "ok")


async def test_metrics_are_for_those_who_may_get_them(
    control_plane: ControlPlane, ports: dict[str, int], people: People, operator: Running
) -> None:
    await people.create(runtime())
    await people.create(train_job())
    await people.until_phase("Created")
    url = f"https://127.0.0.1:{ports['metrics']}/metrics"
    trusted = build_trusting_context(control_plane)
    assert (await get(url, ssl=trusted))[0] == 401
    assert (await get(url, "nonsense", ssl=trusted))[0] == 401
    # The operator itself may do a lot, but not this.
    assert (await get(url, "test-operator", ssl=trusted))[0] == 403
    lines = (
        'controller_runtime_reconcile_total{controller="trainjob_controller",result="success"}',
        'workqueue_depth{controller="trainjob_controller",name="trainjob_controller"} 0.0',
        'rest_client_requests_total{code="200"',
        'trainwright_jobs{phase="Created"} 1.0',
    )

    async def are_there() -> bool:
        # What the operator counts it learns by its watches, a moment after who asked the API server.
        status, text = await get(url, ADMIN_TOKEN, ssl=trusted)
        assert status == 200
        return all(line in text for line in lines)

    assert await eventually(are_there)


async def test_garbage_to_a_webhook_is_refused_and_hurts_nobody(
    control_plane: ControlPlane, ports: dict[str, int], people: People, operator: Running
) -> None:
    trusted = build_trusting_context(control_plane)
    (configuration, *_) = build_webhook_configurations(InstallSettings())
    path = configuration["webhooks"][0]["clientConfig"]["service"]["path"]
    url = f"https://127.0.0.1:{ports['webhook']}{path}"
    async with aiohttp.ClientSession() as session:
        for body in (b"", b"{", b"[]", json.dumps({"kind": "AdmissionReview"}).encode(), b"x" * 10_000_000):
            headers = {"Content-Type": "application/json"}
            try:
                async with session.post(url, data=io.BytesIO(body), headers=headers, ssl=trusted) as answer:
                    assert 400 <= answer.status < 500
            except aiohttp.ClientConnectionError:
                assert len(body) > 1_000_000  # refused before it was all sent
    await people.create(runtime())
    await people.create(train_job())
    await people.until_pods(1)


async def test_without_its_webhooks_nothing_is_half_made(webhooks: None, people: People) -> None:
    """The process is down: the API server refuses the job, and nothing of it is there."""

    async def is_refused() -> bool:
        try:
            await people.create(train_job())
        except Exception as error:  # noqa: BLE001 (whatever the server calls it)
            return "webhook" in str(error)
        await people.delete("TrainJob")
        return False

    await eventually(is_refused)
    assert await people.find("TrainJob") is None
