"""The webhook server over TLS on loopback: what is looked up, what is answered, and what nonsense gets."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")

from reviews import build_job, build_patch, build_runtime, encode_review, read_patch
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet, JobSetStatus, ReplicatedJobStatus
from trainwright.api.meta import Json, ObjectKey, ObjectMeta
from trainwright.api.runtime import MLPolicy, Runtime, TrainingRuntime
from trainwright.api.trainjob import TrainJob
from trainwright.cluster.kube.sockets import OneSidedClose
from trainwright.control.snapshot import build_snapshot, hash_runtime
from trainwright.errors import TargetUnreachable
from trainwright.field_errors import FieldError
from trainwright.frameworks.plain import Plain
from trainwright.manifests.names import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from trainwright.operator.certificates import Certificates, build_certificates
from trainwright.operator.configuration import TlsSettings
from trainwright.operator.serving import CertificateSlot, read_tls_settings
from trainwright.operator.webhooks import LARGE_REVIEW_BYTES, MAX_REVIEW_BYTES, Webhooks
from trainwright.template.layout import JobLayout

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DEFAULTER = MUTATING_WEBHOOKS[0].path
PATHS = {webhook.kind: webhook.path for webhook in VALIDATING_WEBHOOKS}
VALIDATOR = PATHS["TrainJob"]
RUNTIME = parse_object(build_runtime(), TrainingRuntime)
NODE = {"nodeSelector": {"a": "b"}}


class World:
    """What the caches hold (`runtimes`, `snapshots`, `job_sets`) and the cluster itself (`live`)."""

    def __init__(self) -> None:
        self.runtimes: dict[str, Runtime] = {"rt": RUNTIME}
        self.live: dict[str, Runtime] = {}
        self.snapshots: dict[str, Json] = {}
        self.job_sets: dict[str, JobSet] = {}
        self.live_reads: list[ObjectKey] = []
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_reachable = True
        self.heard: list[tuple[str, int]] = []

    async def find_runtime(self, key: ObjectKey) -> Runtime | None:
        return self.runtimes.get(key.name)

    async def find_snapshot(self, train_job: TrainJob, name: str) -> Json | None:
        return self.snapshots.get(name)

    async def find_job_set(self, namespace: str, name: str) -> JobSet | None:
        return self.job_sets.get(name)

    def list_runtime_names(self, kind: str, namespace: str) -> Sequence[str]:
        return sorted(self.runtimes)

    async def read_runtime(self, key: ObjectKey) -> Runtime | None:
        self.live_reads.append(key)
        await self.answers.wait()
        if not self.is_reachable:
            raise TargetUnreachable("the API server does not answer")
        return self.live.get(key.name)


class Client:
    """Posts to one server, with a new connection for each request where `fresh`."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._base = f"https://127.0.0.1:{port}"

    async def post(self, path: str, body: Any, content_type: str = "application/json") -> tuple[int, bytes]:
        headers = {"Content-Type": content_type}
        async with self._session.post(self._base + path, data=body, headers=headers) as answer:
            return answer.status, await answer.read()

    async def ask(self, path: str, obj: Json, old: Json | None = None) -> Json:
        """Return the response to a review."""
        code, body = await self.post(path, encode_review(obj, old))
        assert code == 200
        response: Json = json.loads(body)["response"]
        assert response["uid"] == "review-1"
        return response


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return build_certificates(("127.0.0.1",), datetime.now(UTC))


@pytest.fixture
def world() -> World:
    return World()


@asynccontextmanager
async def serve(app: web.Application, context: ssl.SSLContext) -> AsyncIterator[int]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connect(certificates: Certificates, port: int) -> AsyncIterator[Client]:
    context = ssl.create_default_context(cadata=certificates.ca_bundle.decode())
    context.sslobject_class = OneSidedClose
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=20)) as session:
        yield Client(session, port)


@pytest.fixture
async def client(world: World, certificates: Certificates) -> AsyncIterator[Client]:
    slot = CertificateSlot()
    slot.swap(certificates.serving)

    def hear(path: str, code: int, seconds: float) -> None:
        assert seconds >= 0
        world.heard.append((path, code))

    webhooks = Webhooks(world, world.read_runtime, lambda: NOW, hear)
    async with serve(webhooks.build_app(), slot.context) as port, connect(certificates, port) as client:
        yield client


# -- answers -------------------------------------------------------------------------------------------------


async def test_the_defaulter_patches(client: Client, world: World) -> None:
    code, body = await client.post(DEFAULTER, encode_review(build_job(runtimePatches=[build_patch()])))

    assert code == 200
    assert read_patch(body) == [
        {"op": "add", "path": "/spec/runtimePatches/0/time", "value": "2026-03-01T00:00:00Z"}
    ]
    assert world.heard == [(DEFAULTER, 200)]


async def test_the_validators_answer_at_their_paths(client: Client, world: World) -> None:
    assert (await client.ask(VALIDATOR, build_job()))["allowed"] is True
    for kind in ("TrainingRuntime", "ClusterTrainingRuntime"):
        assert (await client.ask(PATHS[kind], build_runtime(kind=kind)))["allowed"] is True
    assert world.live_reads == []


async def test_the_code_of_a_refusal_is_heard(client: Client, world: World) -> None:
    job = build_job(trainer={"env": [{"name": "PET_NNODES"}]})

    assert (await client.ask(VALIDATOR, job))["status"]["code"] == 403
    assert world.heard == [(VALIDATOR, 403)]


async def test_a_delete_is_allowed(client: Client) -> None:
    code, body = await client.post(VALIDATOR, encode_review(None, build_job(), "DELETE"))

    assert (code, json.loads(body)["response"]) == (200, {"uid": "review-1", "allowed": True})


# -- what is looked up ---------------------------------------------------------------------------------------


async def test_a_runtime_made_a_moment_ago_is_read_from_the_cluster_once(
    client: Client, world: World
) -> None:
    world.live = world.runtimes
    world.runtimes = {}

    assert (await client.ask(VALIDATOR, build_job()))["allowed"] is True
    assert world.live_reads == [ObjectKey("TrainingRuntime", "ns", "rt")]


async def test_a_runtime_that_nobody_has_is_missing_and_the_others_are_named(
    client: Client, world: World
) -> None:
    world.runtimes = {"torch": RUNTIME}
    response = await client.ask(VALIDATOR, build_job())

    assert response["status"]["code"] == 403
    assert "known are torch" in response["status"]["message"]


async def test_a_cluster_out_of_reach_is_told_as_such(client: Client, world: World) -> None:
    world.runtimes, world.is_reachable = {}, False
    response = await client.ask(VALIDATOR, build_job())

    assert response["status"]["code"] == 503
    assert "the API server does not answer); try again" in response["status"]["message"]


async def test_a_cluster_that_is_slow_is_not_waited_for(world: World, certificates: Certificates) -> None:
    world.runtimes = {}
    world.answers.clear()
    slot = CertificateSlot()
    slot.swap(certificates.serving)
    webhooks = Webhooks(world, world.read_runtime, lambda: NOW, live_read_seconds=0.05)
    async with serve(webhooks.build_app(), slot.context) as port, connect(certificates, port) as client:
        response = await client.ask(VALIDATOR, build_job())

    assert response["status"]["code"] == 503
    assert "(no answer in 0.05 s); try again" in response["status"]["message"]


class Slow(Plain):
    """Has not made up its mind about a job until another is answered."""

    name = "torch"

    def __init__(self) -> None:
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def is_active(self, policy: MLPolicy | None) -> bool:
        return True

    def validate(self, layout: JobLayout) -> list[FieldError]:
        if layout.trainer.args:
            self.asked.set()
            assert self.goes_on.wait(20)
        return []


async def test_a_large_object_holds_up_nobody(world: World, certificates: Certificates) -> None:
    """1. A large job is being looked at. 2. A small one is answered. 3. So is the large one."""
    slow, slot = Slow(), CertificateSlot()
    slot.swap(certificates.serving)
    webhooks = Webhooks(world, world.read_runtime, lambda: NOW, frameworks=(slow,))
    large = build_job(trainer={"args": ["x" * LARGE_REVIEW_BYTES]})
    async with serve(webhooks.build_app(), slot.context) as port, connect(certificates, port) as client:
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            asking = group.create_task(client.ask(VALIDATOR, large))
            try:
                assert await asyncio.to_thread(slow.asked.wait, 10)
                assert (await client.ask(VALIDATOR, build_job()))["allowed"] is True
                assert not asking.done()
            finally:
                slow.goes_on.set()
        assert asking.result()["allowed"] is True


async def test_updates_that_the_runtime_has_no_say_in_never_ask_the_cluster(
    client: Client, world: World
) -> None:
    world.runtimes, world.is_reachable = {}, False

    assert (await client.ask(VALIDATOR, build_job(suspend=True), build_job()))["allowed"] is True
    labelled = build_job(metadata={"labels": {"a": "b"}})
    assert (await client.ask(VALIDATOR, labelled, build_job()))["allowed"] is True
    assert world.live_reads == []


async def test_a_job_that_began_is_held_to_its_own_runtime(client: Client, world: World) -> None:
    began = parse_object(build_runtime(), TrainingRuntime)
    snapshot = build_snapshot(began, "ns")
    world.snapshots[snapshot["metadata"]["name"]] = snapshot
    edited = build_runtime()
    edited["spec"]["template"]["spec"]["replicatedJobs"][0]["name"] = "renamed"
    world.runtimes["rt"] = parse_object(edited, TrainingRuntime)
    status = {"runtimeSnapshot": {"name": "rt", "hash": hash_runtime(began)}}
    old = build_job(suspend=True) | {"status": status}
    new = build_job(suspend=True, runtimePatches=[build_patch(pod=NODE)]) | {"status": status}

    assert (await client.ask(VALIDATOR, new, old))["allowed"] is True
    # A job that has not begun is held to the runtime as it is.
    fresh = build_job(suspend=True)
    answer = await client.ask(VALIDATOR, {**new, "status": None}, fresh)
    assert answer["status"]["code"] == 403
    assert "renamed" in answer["status"]["message"]


async def test_a_snapshot_that_cannot_be_read_gives_way_to_the_runtime(client: Client, world: World) -> None:
    name = f"trainer-runtime-{hash_runtime(RUNTIME)}"
    world.snapshots[name] = {"metadata": {"name": name, "namespace": "ns"}, "data": {"runtime": "changed"}}
    old = build_job(suspend=True) | {
        "status": {"runtimeSnapshot": {"name": "rt", "hash": hash_runtime(RUNTIME)}}
    }
    new = {**old, "spec": build_job(suspend=True, runtimePatches=[build_patch(pod=NODE)])["spec"]}

    assert (await client.ask(VALIDATOR, new, old))["allowed"] is True


async def test_patches_wait_for_the_pods_of_the_jobset(client: Client, world: World) -> None:
    counter = ReplicatedJobStatus(name="node", ready=0, succeeded=0, failed=0, active=1, suspended=0)
    world.job_sets["demo"] = JobSet(
        metadata=ObjectMeta(name="demo"), status=JobSetStatus(replicated_jobs_status=[counter])
    )
    new = build_job(suspend=True, runtimePatches=[build_patch(pod=NODE)])
    response = await client.ask(VALIDATOR, new, build_job(suspend=True))

    assert response["status"]["code"] == 403
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == ["spec.runtimePatches"]


# -- nonsense ------------------------------------------------------------------------------------------------


async def test_garbage_gets_a_400_and_one_line_in_the_log(client: Client, world: World) -> None:
    with capture_logs() as logs:
        code, body = await client.post(VALIDATOR, b"\x00\x01garbage" * 1000)

    assert code == 400
    assert body.startswith(b"not an AdmissionReview")
    assert [(line["event"], line["code"]) for line in logs] == [("refused a request to a webhook", 400)]
    assert world.heard == [(VALIDATOR, 400)]


async def test_ten_megabytes_of_garbage_are_not_read(client: Client, world: World) -> None:
    with capture_logs() as logs:
        try:
            code, _ = await client.post(VALIDATOR, io.BytesIO(b"{" * 10_000_000))
        except aiohttp.ClientConnectionError:
            code = 413  # the server closed before everything was sent
    assert code == 413
    assert [line["code"] for line in logs] == [413]
    assert (await client.ask(VALIDATOR, build_job()))["allowed"] is True


async def test_a_body_that_grows_beyond_the_limit_is_cut_off(client: Client, world: World) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAX_REVIEW_BYTES // 2**20 + 2):
            yield b"[" * 2**20

    try:
        code, _ = await client.post(VALIDATOR, endless())
    except aiohttp.ClientConnectionError:
        code = 413
    assert code == 413
    assert world.heard == [(VALIDATOR, 413)]


@pytest.mark.parametrize("content_type", ["text/plain", "application/yaml", "multipart/form-data"])
async def test_another_content_type_is_refused(client: Client, content_type: str) -> None:
    code, _ = await client.post(VALIDATOR, encode_review(build_job()), content_type)

    assert code == 415


async def test_another_path_or_method_is_refused(client: Client) -> None:
    assert (await client.post("/", encode_review(build_job())))[0] == 404
    async with client._session.get(client._base + VALIDATOR) as answer:
        assert answer.status == 405


async def test_an_object_of_another_kind_is_refused(client: Client) -> None:
    code, body = await client.post(VALIDATOR, encode_review(build_runtime()))

    assert code == 400
    assert b"found one of trainer.kubeflow.org/v1alpha1 TrainingRuntime" in body


async def test_deeply_nested_values_are_answered(client: Client) -> None:
    deep: Json = {}
    here = deep
    for _ in range(300):
        here["a"] = {}
        here = here["a"]
    runtime = build_runtime()
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["affinity"] = deep
    code, _ = await client.post(PATHS["TrainingRuntime"], encode_review(runtime))

    assert code in (200, 400)


# -- TLS -----------------------------------------------------------------------------------------------------


async def test_a_certificate_is_exchanged_while_the_server_listens(world: World) -> None:
    """1. The server listens without a certificate: connecting fails. 2. It gets one and answers. 3. It gets
    another, of another CA: a new connection trusts that one alone, and one that is open goes on.
    """
    first, second = (build_certificates(("127.0.0.1",), datetime.now(UTC)) for _ in range(2))
    slot = CertificateSlot()
    app = Webhooks(world, world.read_runtime, lambda: NOW).build_app()
    async with serve(app, slot.context) as port:
        async with connect(first, port) as client:
            with pytest.raises(aiohttp.ClientConnectorError):
                await client.ask(VALIDATOR, build_job())
            slot.swap(first.serving)
            assert (await client.ask(VALIDATOR, build_job()))["allowed"] is True
        context = ssl.create_default_context(cadata=first.ca_bundle.decode())
        connector = aiohttp.TCPConnector(ssl=context, limit=1)
        async with aiohttp.ClientSession(connector=connector) as session:
            kept = Client(session, port)
            assert (await kept.ask(VALIDATOR, build_job()))["allowed"] is True
            slot.swap(second.serving)
            assert (await kept.ask(VALIDATOR, build_job()))["allowed"] is True
        async with connect(second, port) as client:
            assert (await client.ask(VALIDATOR, build_job()))["allowed"] is True
        async with connect(first, port) as client:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await client.ask(VALIDATOR, build_job())


async def test_a_client_that_names_no_server_gets_the_certificate_too(
    world: World, certificates: Certificates
) -> None:
    slot = CertificateSlot()
    slot.swap(certificates.serving)
    app = Webhooks(world, world.read_runtime, lambda: NOW).build_app()
    context = ssl.create_default_context(cadata=certificates.ca_bundle.decode())
    context.check_hostname = False
    async with serve(app, slot.context) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="")
        pem = ssl.DER_cert_to_PEM_cert(writer.get_extra_info("ssl_object").getpeercert(True))
        writer.close()
        await writer.wait_closed()
    assert pem.strip() == certificates.certificate.decode().strip()


async def test_a_client_below_the_least_version_is_refused(world: World, certificates: Certificates) -> None:
    options, warnings = read_tls_settings(TlsSettings(min_version="1.3"))
    slot = CertificateSlot(options)
    slot.swap(certificates.serving)
    context = ssl.create_default_context(cadata=certificates.ca_bundle.decode())
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    app = Webhooks(world, world.read_runtime, lambda: NOW).build_app()
    async with serve(app, slot.context) as port:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context)
    assert warnings == []


def test_settings_that_cannot_be_had_are_warned_about_and_left_out() -> None:
    settings = TlsSettings(
        min_version="1.4",
        cipher_suites=[
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_RSA_WITH_AES_128_CBC_SHA",
            "TLS_AES_128_GCM_SHA256",
            "TLS_NOPE",
        ],
        next_protos=["h2", "http/1.1"],
    )
    options, warnings = read_tls_settings(settings)

    assert (options.minimum_version, options.suites) == (None, "ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA")
    assert [warning.partition(":")[0] for warning in warnings] == [
        "tls.minVersion",
        "tls.cipherSuites",
        "tls.cipherSuites",
        "tls.cipherSuites",
        "tls.nextProtos",
    ]
    CertificateSlot(options)


def test_no_settings_are_the_librarys_own() -> None:
    options, warnings = read_tls_settings(TlsSettings())

    assert (options.minimum_version, options.suites, warnings) == (None, None, [])
    assert CertificateSlot(options).context.minimum_version is ssl.TLSVersion.TLSv1_2
