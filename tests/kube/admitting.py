"""Our webhooks, served from the process of the tests, in front of a real API server.

The server has a thread and an event loop of its own, so that it answers whatever a test waits for. It looks
everything up live, so no test has to wait for a cache. `WebhookServer` as a context manager installs the
webhook configurations, with a URL of this machine in place of the Service, and removes them at the end: they
hold for the whole cluster.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import msgspec
from aiohttp import web

from kube.control_plane import ADMIN_TOKEN, START_SECONDS, ControlPlane, find_free_ports
from trainwright.api.constants import TRAIN_JOB
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.runtime import Runtime
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.resources import RESOURCES
from trainwright.cluster.kube.transport import AiohttpTransport
from trainwright.cluster.observe import RUNTIME_KINDS, PortSource
from trainwright.errors import NotFound
from trainwright.manifests.names import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from trainwright.manifests.settings import InstallSettings
from trainwright.manifests.webhook_configurations import build_webhook_configurations
from trainwright.operator.certificates import Certificates, build_certificates
from trainwright.operator.serving import CertificateSlot
from trainwright.operator.webhooks import Webhooks

OUR_KINDS = ("TrainJob", "TrainingRuntime", "ClusterTrainingRuntime")
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PLURALS = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}


ASKED_ABOUT_JOBS = {
    webhook.path for webhook in (*MUTATING_WEBHOOKS, *VALIDATING_WEBHOOKS) if webhook.kind == TRAIN_JOB
}


class LiveLookup(PortSource):
    """Reads everything from the cluster, when it is needed."""

    def __init__(self, cluster: KubeCluster) -> None:
        super().__init__(cluster)
        self._port = cluster
        self.names: dict[str, list[str]] = {}

    def list_runtime_names(self, kind: str, namespace: str) -> Sequence[str]:
        return self.names.get(kind, [])

    async def read_runtime(self, key: ObjectKey) -> Runtime | None:
        try:
            return parse_object(await self._port.get(key), RUNTIME_KINDS[key.kind])
        except NotFound:
            return None


class WebhookServer:
    """The webhooks at a port of loopback. `heard` is every answer: path, code, seconds."""

    def __init__(
        self, plane: ControlPlane, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self.plane = plane
        [self.port] = find_free_ports(1)
        self.certificates: Certificates = build_certificates(("127.0.0.1",), datetime.now(UTC))
        self.slot = CertificateSlot()
        self.slot.swap(self.certificates.serving)
        self.heard: list[tuple[str, int, float]] = []
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._stopping = asyncio.Event()
        self._started = threading.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(START_SECONDS)
        self.install(self.certificates.ca_bundle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.uninstall()
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(START_SECONDS)
        self._loop.close()

    def install(self, ca_bundle: bytes | None) -> None:
        """Install the configurations, and wait until the API server asks us."""
        self.uninstall()
        for configuration in build_local_configurations(self.port, ca_bundle):
            self.plane.call("POST", f"{ADMISSION}/{PLURALS[configuration['kind']]}", configuration)
        if ca_bundle is not None:
            self.wait_until_asked()

    def uninstall(self) -> None:
        """Remove the configurations, and wait until the API server asks nobody any more."""
        for configuration in build_local_configurations(self.port, None):
            path = f"{ADMISSION}/{PLURALS[configuration['kind']]}/{configuration['metadata']['name']}"
            with contextlib.suppress(urllib.error.HTTPError):
                self.plane.call("DELETE", path)
        self.plane.wait_for("webhooks to be forgotten", self._is_nobody_asked)

    def wait_until_asked(self) -> None:
        """Wait until the API server knows both configurations: it learns of each by a watch of its own."""
        self.plane.wait_for("webhooks", lambda: self._ask()[1] == ASKED_ABOUT_JOBS)

    def _is_nobody_asked(self) -> bool:
        return self._ask() == (HTTPStatus.CREATED, set())

    def _ask(self) -> tuple[int, set[str]]:
        """Return the answer to a TrainJob that only a webhook of ours refuses, and which paths were asked."""
        before = len(self.heard)
        code = self._try_dry_run()
        return code, {path for path, _, _ in self.heard[before:]}

    def _try_dry_run(self) -> int:
        job = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "probe", "namespace": "default"},
            "spec": {"runtimeRef": {"name": "nobody-has-this-runtime"}},
        }
        return request(self.plane, "POST", build_url(job, "default") + "?dryRun=All", job)[0]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        connection = load_connection({"KUBECONFIG": str(self.plane.kubeconfig())}, Path("/"))
        async with AiohttpTransport(connection) as transport:
            lookup = LiveLookup(KubeCluster(transport, "webhooks"))
            self._webhooks = Webhooks(
                lookup,
                lookup.read_runtime,
                self._clock,
                lambda path, code, seconds: self.heard.append((path, code, seconds)),
            )
            self._runner = await self._listen()
            self._started.set()
            await self._stopping.wait()
            await self._runner.cleanup()

    async def _listen(self) -> web.AppRunner:
        runner = web.AppRunner(self._webhooks.build_app(), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=self.slot.context).start()
        return runner

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Let nobody listen for a while, and end the connections that the API server keeps."""

        async def listen_again() -> None:
            self._runner = await self._listen()

        self._call(self._runner.cleanup())
        try:
            yield
        finally:
            self._call(listen_again())

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)


def build_local_configurations(port: int, ca_bundle: bytes | None) -> list[Json]:
    """Return the shipped configurations with a URL of this machine in place of the Service."""

    def localize(webhook: Json) -> Json:
        client: Json = {"url": f"https://127.0.0.1:{port}{webhook['clientConfig']['service']['path']}"}
        if ca_bundle is not None:
            client["caBundle"] = base64.b64encode(ca_bundle).decode()
        return {**webhook, "clientConfig": client}

    return [
        {**configuration, "webhooks": [localize(webhook) for webhook in configuration["webhooks"]]}
        for configuration in build_webhook_configurations(InstallSettings())
    ]


class Reply(msgspec.Struct, frozen=True):
    """What an API server answers: the code, the body, and warnings for people."""

    code: int
    body: Json
    warnings: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a refusal, each once."""
        causes = (self.body.get("details") or {}).get("causes") or ()
        return tuple(dict.fromkeys(cause.get("field", "") for cause in causes))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


def request(
    plane: ControlPlane, method: str, path: str, body: object = None, content_type: str = "application/json"
) -> tuple[int, Json, tuple[str, ...]]:
    """Send one request as administrator; refusals are answers like others."""
    sent = urllib.request.Request(
        plane.server + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": content_type},
    )
    context = ssl.create_default_context(cafile=str(plane.folder / "pki/apiserver.crt"))
    try:
        with urllib.request.urlopen(sent, timeout=30, context=context) as answer:
            return answer.status, json.load(answer), _read_warnings(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error), _read_warnings(error.headers)


def send(
    plane: ControlPlane, method: str, path: str, body: object = None, content_type: str = "application/json"
) -> Reply:
    return Reply(*request(plane, method, path, body, content_type))


def build_url(obj: Json, namespace: str, name: str = "") -> str:
    """The path of the collection of an object of any kind, or of one object in it."""
    resource = RESOURCES.get(obj["kind"])
    assert resource is not None, obj["kind"]
    here = f"/namespaces/{namespace}" if resource.namespaced else ""
    return f"{resource.prefix}{here}/{resource.plural}" + (f"/{quote(name)}" if name else "")


def _read_warnings(headers: Any) -> tuple[str, ...]:
    found = [re.fullmatch(r'299 - "(.*)"', value) for value in headers.get_all("Warning") or ()]
    return tuple(match[1].replace('\\"', '"') for match in found if match)


@contextlib.contextmanager
def jobset_with_active(
    plane: ControlPlane, namespace: str, name: str, active: Sequence[str]
) -> Iterator[None]:
    """Let there be a JobSet whose status counts active Jobs; nobody else writes it."""
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets"
    template = {"spec": {"template": {"spec": {"containers": [{"name": "node", "image": "img:1"}]}}}}
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "managedBy": "example.com/nobody",
            "replicatedJobs": [{"name": job, "template": template} for job in active],
        },
    }
    plane.call("POST", path, job_set)
    counter = {"ready": 0, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    status = {"replicatedJobsStatus": [{"name": job, **counter} for job in active]}
    plane.call(
        "PATCH", f"{path}/{name}/status", {"status": status}, content_type="application/merge-patch+json"
    )
    try:
        yield
    finally:
        plane.call("DELETE", f"{path}/{name}")
