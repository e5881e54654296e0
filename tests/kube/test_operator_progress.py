"""Progress on a real API server: tokens that it issues and reviews, pods that its controllers make.

Nothing runs in the pods here; the test plays them, with the client that is shipped for code inside a job.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from structlog.testing import capture_logs

from kube.control_plane import ControlPlane, find_free_ports
from kube.installing import grant_operator_role
from kube.operating import People, eventually, operating, runtime, train_job
from kube.reporting import (
    ACCOUNT,
    PATIENT,
    Playground,
    ask,
    build_secret,
    configure,
    reporting_to,
    start,
)
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json
from trainwright.api.runtime import TrainingRuntime
from trainwright.api.trainjob import TrainJob
from trainwright.cluster.kube.config import Connection, load_connection
from trainwright.manifests.names import CERTIFICATE_SECRET
from trainwright.operator.configuration import LeaderElectionSettings
from trainwright.progress.endpoint import Refused, Unavailable
from trainwright.render import ProgressServer, render


@pytest.fixture
async def ground(
    control_plane: ControlPlane, people: People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Playground:
    """All but the operator."""
    shutil.copytree(control_plane.folder / "pki/hook", tmp_path / "k8s-webhook-server/serving-certs")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    [port] = find_free_ports(1)
    ground = Playground(control_plane, people, port, tmp_path)
    await people.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}})
    await people.create(build_secret(ground.authority.read_text()))
    node = runtime()
    node["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
        "serviceAccountName"
    ] = ACCOUNT
    await people.create(node)
    return ground


@pytest.fixture
async def playground(ground: Playground, operator_connection: Connection) -> AsyncIterator[Playground]:
    async with reporting_to(ground, operator_connection):
        yield ground


async def test_a_pod_reports_with_what_it_was_given(playground: Playground) -> None:
    people = playground.people
    pod = await start(playground)
    [container] = pod["spec"]["containers"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    host = f"kubeflow-trainer-controller-manager.{people.namespace}.svc:{playground.port}"
    assert env["KUBEFLOW_TRAINER_SERVER_URL"] == f"https://{host}/apis/{playground.audience()}"
    authority = await people.find("ConfigMap", "demo-tls-config")
    assert authority is not None
    assert authority["data"]["ca.crt"] == playground.authority.read_text()
    [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == "kubeflow-trainer-token"]
    [token, _] = volume["projected"]["sources"]
    assert token["serviceAccountToken"]["audience"] == playground.audience()
    await playground.report(
        playground.issue(pod, token["serviceAccountToken"]["audience"]),
        42,
        estimatedRemainingSeconds=120,
        metrics=[{"name": "loss", "value": "0.123"}, {"name": "accuracy", "value": "0.95"}],
    )
    reported = await playground.is_reported(42)
    assert reported["estimatedRemainingSeconds"] == 120
    assert reported["metrics"] == [
        {"name": "loss", "value": "0.123"},
        {"name": "accuracy", "value": "0.95"},
    ]
    job = await people.find("TrainJob")
    assert job is not None
    managers = {
        entry["manager"]: entry["operation"]
        for entry in job["metadata"]["managedFields"]
        if "f:trainerStatus" in str(entry["fieldsV1"])
    }
    assert managers == {"trainer-status": "Apply"}


async def test_a_job_is_rendered_offline_as_the_operator_does_it(playground: Playground) -> None:
    people = playground.people
    await start(playground)
    found = {kind: await people.find(kind, name) for kind, name in (("TrainJob", "demo"), ("JobSet", "demo"))}
    template = await people.find("TrainingRuntime", "plain")
    assert template is not None
    host = f"kubeflow-trainer-controller-manager.{people.namespace}.svc:{playground.port}"
    [offline] = render(
        parse_object(found["TrainJob"] or {}, TrainJob),
        parse_object(template, TrainingRuntime),
        progress=ProgressServer(url=f"https://{host}"),
    )
    applied = (found["JobSet"] or {})["metadata"]["annotations"]
    assert offline["metadata"]["annotations"] == applied


@pytest.mark.e2e
async def test_the_public_sdk_reports(playground: Playground) -> None:
    program = (
        "from kubeflow.trainer import update_trainjob_status\n"
        "print(update_trainjob_status(42, 120, {'loss': 0.123, 'step': 7}))"
    )
    await report_with("TRAINWRIGHT_SDK_ENV", program, playground, "True")
    reported = await playground.is_reported(42)
    assert reported["estimatedRemainingSeconds"] == 120
    assert reported["metrics"] == [{"name": "loss", "value": "0.123"}, {"name": "step", "value": "7"}]


@pytest.mark.e2e
async def test_hugging_faces_own_callback_reports(playground: Playground) -> None:
    program = (
        "from transformers import TrainerState\n"
        "from transformers.integrations import KubeflowCallback\n"
        "callback, state = KubeflowCallback(), TrainerState(max_steps=50)\n"
        "callback.on_train_begin(None, state, None)\n"
        "callback.on_log(None, state, None, logs={'loss': 0.25})\n"
        "callback.on_train_end(None, state, None)\n"
        "print('done')"
    )
    await report_with("TRAINWRIGHT_TRAIN_ENV", program, playground, "done")
    reported = await playground.is_reported(100)
    assert reported["metrics"] == [{"name": "loss", "value": "0.25"}]


async def report_with(environment: str, program: str, ground: Playground, said: str) -> None:
    """Run a program of another Python environment as a pod of a job."""
    chosen = os.environ.get(environment)
    if not chosen:
        pytest.skip(f"NOT TESTED: `make test-full` sets {environment} and installs it")
    token = ground.issue(await start(ground))
    process = await asyncio.create_subprocess_exec(
        *(Path(chosen) / "bin/python", "-c", program),
        env={"PATH": "/usr/bin:/bin", "HOME": str(ground.folder), **ground.build_environment(token)},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENT * 2):
        stdout, _ = await process.communicate()
    assert stdout.decode().split() == [said]


async def test_a_report_replaces_the_one_before_as_a_whole(playground: Playground) -> None:
    token = playground.issue(await start(playground))
    await playground.report(token, 30, estimatedRemainingSeconds=9)
    await playground.is_reported(30)
    await playground.report(token, 31)
    assert "estimatedRemainingSeconds" not in await playground.is_reported(31)


async def test_a_job_that_reports_every_step_costs_few_writes(playground: Playground) -> None:
    """100 in a row: one TokenReview, no more writes than the time allows, and the last one is the newest."""
    token = playground.issue(await start(playground))
    began = asyncio.get_running_loop().time()
    answers = [await ask_to_store(playground, token, percent) for percent in range(1, 101)]
    taken = [percent for percent, code in answers if code == 200]
    assert {code for _, code in answers} <= {200, 429}
    assert len(taken) >= 30
    await playground.is_reported(taken[-1])
    seconds = asyncio.get_running_loop().time() - began
    sent = playground.sent
    assert sent.count("TokenReview") == 1
    assert 2 <= sent.count("status") <= 2 + seconds / 2.0


async def ask_to_store(ground: Playground, token: str, percent: int) -> tuple[int, int]:
    moment = datetime.now(UTC).isoformat()
    body = {"trainerStatus": {"progressPercentage": percent, "lastUpdatedTime": moment}}
    reply = await ask(ground, "POST", ground.url(), token, json.dumps(body))
    if reply.code == 429:
        assert reply.headers["Retry-After"] == "1"
        assert reply.body["reason"] == "TooManyRequests"
    return percent, reply.code


async def test_who_may_not_report_is_told_so(playground: Playground) -> None:
    people = playground.people
    pod = await start(playground)
    other = await start(playground, "other")
    stranger = await people.create(build_pod("stranger"))
    # Labels alone make no pod of the job: the JobSet's uid is one of them.
    labels = {"jobset.sigs.k8s.io/jobset-name": "demo", "jobset.sigs.k8s.io/jobset-uid": "another"}
    liar = await people.create(build_pod("liar", labels))
    good = playground.issue(pod)
    header, claims, signature = good.split(".")
    tokens = {
        "none": "",
        "no token": "nonsense",
        "a token with another signature": f"{header}.{claims}.{signature[::-1]}",
        "a token for an API server": playground.issue(pod, "https://kubernetes.default.svc"),
        "a token for another job": playground.issue(pod, playground.audience("other")),
        "a token of another job's pod": playground.issue(other),
        "a token of no job's pod": playground.issue(stranger),
        "a token of a pod that claims to be one": playground.issue(liar),
        "a token of no pod": playground.issue(None),
    }
    body = json.dumps({"trainerStatus": {"lastUpdatedTime": datetime.now(UTC).isoformat()}})
    replies = {
        why: await ask(playground, "POST", playground.url(), token, body) for why, token in tokens.items()
    }
    assert {why: (reply.code, reply.body["message"]) for why, reply in replies.items()} == dict.fromkeys(
        tokens, (403, "Forbidden")
    )
    assert "trainerStatus" not in await people.status()
    assert (await ask(playground, "POST", playground.url(), good, body)).code == 200


async def test_an_operator_with_a_role_alone_says_that_it_may_not_ask_who_reports(
    control_plane: ControlPlane, ground: Playground, tmp_path: Path
) -> None:
    """Reviews of tokens belong to no namespace, so no Role gives the right to them."""
    grant_operator_role(control_plane, ground.people.namespace)
    kubeconfig = str(control_plane.kubeconfig("operator-of-one-namespace"))
    connection = load_connection({"KUBECONFIG": kubeconfig}, tmp_path)
    with capture_logs() as logs:
        async with reporting_to(ground, connection):
            token = ground.issue(await start(ground))
            reply = await ask(ground, "POST", ground.url(), token, b"{}")
            assert (reply.code, reply.headers["Retry-After"]) == (503, "60")
            with pytest.raises(Unavailable, match="may not create tokenreviews"):
                await ground.report(token, 1)
            assert ground.sent == ["TokenReview"]
    [told] = [line for line in logs if line["log_level"] == "error"]
    assert "by a ClusterRole" in told["remedy"]
    assert "tokenreviews" in told["error"]


def build_pod(name: str, labels: Json | None = None) -> Json:
    spec = {"serviceAccountName": ACCOUNT, "containers": [{"name": "main", "image": "registry.example/x:1"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
    }


async def test_a_token_dies_with_its_pod(playground: Playground) -> None:
    people = playground.people
    pod = await start(playground)
    token = playground.issue(pod)
    await playground.report(token, 10)
    await people.cluster.delete(people.key("Pod", pod["metadata"]["name"]))

    async def is_refused() -> bool:
        try:
            await playground.report(token, 11)
        except Refused as refused:
            return "403" in str(refused)
        except Unavailable:  # it reports more often than a job may
            return False
        return False

    assert await eventually(is_refused)


async def test_other_paths_and_methods_do_not_exist(playground: Playground) -> None:
    token = playground.issue(await start(playground))
    for method, path in (
        ("GET", playground.url()),
        ("PUT", playground.url()),
        ("POST", playground.url() + "/more"),
        ("POST", "/metrics"),
    ):
        reply = await ask(playground, method, path, token)
        assert (reply.code, reply.body["message"]) == (404, "Not found")


async def test_bodies_that_are_wrong_are_refused_and_store_nothing(playground: Playground) -> None:
    token = playground.issue(await start(playground))
    moment = datetime.now(UTC).isoformat()

    async def send(body: Any) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body)
        reply = await ask(playground, "POST", playground.url(), token, data)
        return reply.code, reply.body.get("message", "")

    async def drip() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * 30_000

    assert await send(b"{nonsense") == (422, "Invalid payload")
    code, message = await send({"trainerStatus": {"progressPercentage": 150, "lastUpdatedTime": moment}})
    assert code == 422
    assert '"demo"' in message
    assert "progressPercentage" in message
    assert await send(b"x" * 70_000) == (413, "Payload too large")
    undeclared = await ask(playground, "POST", playground.url(), token, drip())
    assert (undeclared.code, undeclared.body["message"]) == (422, "Invalid payload")
    assert await send({}) == (200, "")
    assert "trainerStatus" not in await playground.people.status()


async def test_a_job_that_does_not_exist_takes_no_report_and_does_not_come_to_be(
    playground: Playground,
) -> None:
    pod = await start(playground)
    token = playground.issue(pod, playground.audience("nobody"))
    reply = await ask(playground, "POST", playground.url("nobody"), token, b"{}")
    assert (reply.code, reply.body["message"]) == (404, "Train job not found")
    assert await playground.people.find("TrainJob", "nobody") is None


async def test_the_last_report_of_a_job_is_written_though_it_ends_at_once(playground: Playground) -> None:
    """1. A report is written. 2. The last one comes at once after it, and has to wait. 3. The job ends."""
    people = playground.people
    token = playground.issue(await start(playground))
    await playground.report(token, 99)
    await playground.is_reported(99)
    await playground.report(token, 100)
    await people.set_pods("Succeeded", 1)
    await people.until_phase("Complete")
    await playground.is_reported(100)
    # The operator wrote that it is complete, and knows it by its watch: which also brings what comes later.
    await people.create(train_job("later", suspend=True))
    await people.until_phase("Suspended", "later")
    with pytest.raises(Refused, match="409"):
        await playground.report(token, 50)
    assert (await people.status())["trainerStatus"]["progressPercentage"] == 100


async def test_what_waits_is_written_before_the_operator_ends(playground: Playground) -> None:
    token = playground.issue(await start(playground))
    await playground.report(token, 1)
    await playground.is_reported(1)
    await playground.report(token, 2)
    playground.running.stop()
    await asyncio.wait([playground.running.task], timeout=PATIENT)
    await playground.is_reported(2)


async def test_an_older_report_of_another_replica_is_dropped(playground: Playground) -> None:
    token = playground.issue(await start(playground))
    await playground.report(token, 20)
    await playground.is_reported(20)
    moment = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    late = {"trainerStatus": {"progressPercentage": 19, "lastUpdatedTime": moment}}
    assert (await ask(playground, "POST", playground.url(), token, json.dumps(late))).code == 200
    await playground.report(token, 21)
    await playground.is_reported(21)
    assert playground.sent.count("status") == 2


async def test_every_replica_takes_reports_whoever_leads(playground: Playground) -> None:
    people = playground.people
    token = playground.issue(await start(playground))
    await playground.report(token, 1)
    await playground.is_reported(1)
    [port] = find_free_ports(1)
    lease = LeaderElectionSettings(leader_elect=True, resource_namespace=people.namespace)
    follower = msgspec.structs.replace(configure(port), leader_election=lease)
    await people.create(build_lease_of_another())
    async with operating(
        playground.connection, people.namespace, configuration=follower, waits=False
    ) as replica:
        playground.port = port
        await eventually(lambda: is_taken(playground, token, 2))
        await playground.is_reported(2)
        assert not replica.is_leading()
        assert set(replica.transport.writes) == {
            "POST apis/authentication.k8s.io/v1/tokenreviews",
            "PATCH trainjobs/demo/status",
        }


def build_lease_of_another() -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {
        "holderIdentity": "another",
        "leaseDurationSeconds": 600,
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": 0,
    }
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "trainer.kubeflow.org"},
        "spec": spec,
    }


async def is_taken(ground: Playground, token: str, percent: int) -> bool:
    """Report to a server that may only just start."""
    try:
        await ground.report(token, percent)
    except (Refused, Unavailable):
        return False
    return True


async def test_another_authority_and_a_lost_config_map_reach_the_jobs_that_run(
    playground: Playground,
) -> None:
    people = playground.people
    await start(playground)
    await people.create(train_job("waiting", suspend=True))
    await people.delete("ConfigMap", "demo-tls-config")
    await people.until_found("ConfigMap", "demo-tls-config")
    both = f"{playground.authority.read_text()}{playground.authority.read_text()}"
    await people.edit({"stringData": {"ca.crt": both}}, "Secret", CERTIFICATE_SECRET)

    async def is_renewed() -> bool:
        found = await people.find("ConfigMap", "demo-tls-config")
        return found is not None and found["data"]["ca.crt"] == both

    assert await eventually(is_renewed)
    assert await people.find("ConfigMap", "waiting-tls-config") is None


async def test_a_restart_writes_no_config_map_that_is_there(playground: Playground) -> None:
    people = playground.people
    await start(playground)
    playground.running.stop()
    await asyncio.wait([playground.running.task], timeout=PATIENT)
    [port] = find_free_ports(1)
    async with operating(playground.connection, people.namespace, configuration=configure(port)) as again:
        await people.create(train_job("next"))
        await people.until_pods(1, "next")
        written = [write for write in again.transport.writes if "configmaps/demo" in write]
    assert written == []


async def test_jobs_wait_for_an_authority_and_say_so(playground: Playground) -> None:
    people = playground.people
    await people.edit({"data": {"ca.crt": None}}, "Secret", CERTIFICATE_SECRET)
    await eventually(lambda: is_unknown(playground))
    await people.create(train_job())
    status = await people.until_status(lambda status: status.get("cause"))
    assert status["cause"]["reason"] == "ProgressAuthorityUnknown"
    assert f"Secret {people.namespace}/{CERTIFICATE_SECRET}" in status["cause"]["message"]
    authority = playground.authority.read_text()
    await people.edit({"stringData": {"ca.crt": authority}}, "Secret", CERTIFICATE_SECRET)
    await people.until_pods(1)


async def is_unknown(ground: Playground) -> bool:
    """Say whether a job that is made now lacks the authority: the operator saw what became of the Secret."""
    name = "probe"
    await ground.people.create(train_job(name))
    status = await ground.people.until_status(
        lambda status: status.get("cause") or status.get("jobsStatus"), name
    )
    await ground.people.delete("TrainJob", name)
    await ground.people.until_gone("TrainJob", name)
    await ground.people.until_gone("JobSet", name)
    return (status.get("cause") or {}).get("reason") == "ProgressAuthorityUnknown"


async def test_switching_the_gate_leaves_a_suspended_job_as_it_is(playground: Playground) -> None:
    people = playground.people
    await start(playground)
    job_set = await people.until_found("JobSet")
    await people.edit({"spec": {"suspend": True}})
    await people.until_pods(0)
    await people.until_phase("Suspended")
    playground.running.stop()
    await asyncio.wait([playground.running.task], timeout=PATIENT)
    off = configure(playground.port, is_on=False)
    async with operating(playground.connection, people.namespace, configuration=off):
        await people.edit({"spec": {"suspend": False}})
        await people.until_pods(1)
        kept = await people.until_found("JobSet")
        assert kept["metadata"]["uid"] == job_set["metadata"]["uid"]
        await people.create(train_job("plain"))
        [pod] = await people.until_pods(1, "plain")
        assert "kubeflow-trainer-token" not in json.dumps(pod["spec"])
        with pytest.raises(aiohttp.ClientConnectionError):
            await ask(playground, "POST", playground.url(), "")
