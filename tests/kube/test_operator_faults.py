"""The operator dies, is doubled, is cut off, or takes over: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs

from kube.control_plane import ControlPlane, find_free_ports
from kube.lifetime import DIE_WITH_PARENT
from kube.operating import (
    PATIENCE_SECONDS,
    SILENT,
    Crash,
    People,
    condition,
    eventually,
    operating,
    runtime,
    train_job,
)
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import Connection
from trainwright.cluster.kube.leader import LeaseLost
from trainwright.manifests.names import LEASE
from trainwright.manifests.operator_objects import build_operator_objects
from trainwright.manifests.settings import InstallSettings
from trainwright.operator.configuration import Configuration, LeaderElectionSettings


def electing(namespace: str, *, retry: str = "2s") -> Configuration:
    election = LeaderElectionSettings(
        leader_elect=True,
        resource_namespace=namespace,
        lease_duration="60s",
        renew_deadline="50s",
        retry_period=retry,
    )
    return Configuration(**SILENT, leader_election=election)


def versions(objects: list[Json]) -> dict[str, str]:
    return {f"{obj['kind']}/{obj['metadata']['name']}": obj["metadata"]["resourceVersion"] for obj in objects}


@pytest.mark.parametrize("written", range(4))
async def test_an_operator_that_dies_between_two_writes_is_followed_by_one_that_goes_on(
    people: People, operator_connection: Connection, written: int
) -> None:
    """1. The operator does so many writes and dies. 2. Another starts. 3. The job runs as if it had not."""
    await people.create(runtime())
    await people.create(train_job())
    try:
        async with operating(operator_connection, people.namespace, dies_before=written) as dying:
            await asyncio.wait([dying.task], timeout=PATIENCE_SECONDS)
            assert dying.task.done()
    except* Crash:
        pass
    async with operating(operator_connection, people.namespace) as running:
        await people.set_pods("Running", 1)
        status = await people.until_phase("Running")
        assert status["startTime"]
        assert (
            dying.transport.writes.count("PATCH jobsets/demo")
            + running.transport.writes.count("PATCH jobsets/demo")
            == 1
        )
    assert len(await people.list("JobSet")) == 1
    assert len([found for found in await people.list("ConfigMap") if found.get("immutable")]) == 1


@pytest.mark.parametrize("written", range(3))
async def test_an_operator_that_dies_while_it_suspends_is_followed_by_one_that_goes_on(
    people: People, operator_connection: Connection, written: int
) -> None:
    await people.create(runtime())
    await people.create(train_job())
    async with operating(operator_connection, people.namespace):
        await people.set_pods("Running", 1)
        await people.until_phase("Running")
    job = await people.find("Job", "demo-node-0")
    await people.edit({"spec": {"suspend": True}})
    try:
        async with operating(operator_connection, people.namespace, dies_before=written) as dying:
            await asyncio.wait([dying.task], timeout=PATIENCE_SECONDS)
            assert dying.task.done()
    except* Crash:
        pass
    async with operating(operator_connection, people.namespace):
        await people.until_phase("Suspended")
        await people.until_pods(0)

        async def is_renewed() -> bool:
            fresh = await people.find("Job", "demo-node-0")
            return fresh is not None and fresh["metadata"]["uid"] != job["metadata"]["uid"]

        await eventually(is_renewed)


async def test_an_operator_that_starts_among_jobs_at_rest_writes_nothing(
    people: People, operator_connection: Connection
) -> None:
    await people.create(runtime())
    async with operating(operator_connection, people.namespace):
        for number in range(5):
            await people.create(train_job(f"running-{number}"))
            await people.create(train_job(f"suspended-{number}", suspend=True))
        for number in range(5):
            for pod in await people.until_pods(1, f"running-{number}"):
                await people.set_pod(pod, "Running")
            # Running is said of pods; JobSet counts them a little later.
            await people.until_status(
                lambda status: status.get("phase") == "Running" and status["jobsStatus"][0]["ready"] == 1,
                f"running-{number}",
            )
            await people.until_phase("Suspended", f"suspended-{number}")
    kinds = ("TrainJob", "JobSet", "ConfigMap", "Job")
    before = versions([obj for kind in kinds for obj in await people.list(kind)])
    async with operating(operator_connection, people.namespace) as running:
        # A job that comes last is worked on last: the others have had their turn by then.
        await people.create(train_job("last", suspend=True))
        await people.until_phase("Suspended", "last")
        assert running.transport.writes == ["PATCH trainjobs/last/status"]
        assert running.transport.reads == []
    after = versions([obj for kind in kinds for obj in await people.list(kind)])
    assert {name: after[name] for name in before} == before


async def test_of_two_operators_one_works_and_the_other_takes_over_at_once(
    people: People, operator_connection: Connection
) -> None:
    """1. One leads. 2. The second waits; by its clock it would look at the lease again after 40 s. 3. The
    first is stopped. 4. The second leads at once: sooner than that, which is longer than we wait for pods."""
    assert PATIENCE_SECONDS < 40
    await people.create(runtime())
    configuration = electing(people.namespace, retry="40s")
    async with (
        operating(operator_connection, people.namespace, configuration=configuration) as first,
        operating(operator_connection, people.namespace, configuration=configuration, waits=False) as second,
    ):
        await people.create(train_job("one"))
        await people.until_pods(1, "one")
        assert not second.is_leading()
        first.stop()
        await people.create(train_job("two"))
        await people.until_pods(1, "two")
        assert second.is_leading()
        assert first.transport.writes.count("PATCH jobsets/one") == 1
        assert "PATCH jobsets/one" not in second.transport.writes


async def test_beside_an_operator_that_is_not_ours_nothing_is_done_and_it_is_named(
    people: People, operator_connection: Connection
) -> None:
    """1. Another controller, as the peer's, holds the lease. 2. Ours says who, and writes nothing. 3. The
    other is taken off, and gives the lease back. 4. Ours begins."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {
        "holderIdentity": "kubeflow-trainer-controller-manager-7d9c_1a2b",
        "leaseDurationSeconds": 3600,
        "acquireTime": now,
        "renewTime": now,
    }
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE},
        "spec": spec,
    }
    await people.create(lease)
    await people.create(runtime())
    await people.create(train_job())
    with capture_logs() as logs:
        async with operating(
            operator_connection,
            people.namespace,
            configuration=electing(people.namespace, retry="200ms"),
            waits=False,
        ) as running:

            async def is_told() -> list[Json]:
                return [dict(line) for line in logs if line["event"] == "waiting for the lease"]

            (told,) = await eventually(is_told)
            assert told["held_by"] == spec["holderIdentity"]
            await people.edit({"metadata": {"labels": {"a": "b"}}})
            assert running.transport.writes == []
            await people.edit({"spec": {"holderIdentity": ""}}, "Lease", LEASE)
            await people.until_pods(1)


async def test_a_lost_lease_ends_the_operator(people: People, operator_connection: Connection) -> None:
    lost = False
    try:
        async with operating(
            operator_connection, people.namespace, configuration=electing(people.namespace)
        ) as running:
            await people.edit({"spec": {"holderIdentity": "thief"}}, "Lease", "trainer.kubeflow.org")
            await asyncio.wait([running.task], timeout=PATIENCE_SECONDS)
            assert running.task.done()
    except* LeaseLost:
        lost = True
    assert lost


async def test_a_running_job_of_the_peer_is_taken_over_without_touching_it(
    people: People, operator_connection: Connection
) -> None:
    """What the peer leaves: its snapshot, a JobSet without our hash, a status without our fields."""
    plain = await people.create(runtime())
    job = await people.create(train_job())
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": "TrainJob",
        "name": "demo",
        "uid": job["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    await people.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "demo-runtime-snapshot", "ownerReferences": [owner]},
            "data": {"runtime": yaml.safe_dump(plain)},
        }
    )
    spec = plain["spec"]["template"]["spec"]
    job_set = await people.create(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "demo", "ownerReferences": [owner]},
            "spec": {**spec, "suspend": False},
        }
    )
    await people.set_pods("Running", 1)
    counters = {"ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
    await people.cluster.patch_status(
        people.key("TrainJob"), {"status": {"jobsStatus": [{"name": "node", **counters}]}}
    )
    # The live runtime goes on without the job.
    await people.edit({"spec": {"mlPolicy": {"numNodes": 7}}}, "TrainingRuntime", "plain")
    async with operating(operator_connection, people.namespace) as running:
        await people.until_phase("Running")
        assert (await people.find("JobSet"))["metadata"]["generation"] == job_set["metadata"]["generation"]
        assert set(running.transport.writes) <= {"PATCH trainjobs/demo/status"}
        await people.set_pods("Succeeded", 1)
        await people.until_phase("Complete")


async def test_jobs_go_on_when_the_api_server_goes_away_under_load(
    control_plane: ControlPlane, people: People, operator_connection: Connection
) -> None:
    """1. One job waits, ten are just made. 2. The server goes away and comes back. 3. All run, each once."""
    await people.create(runtime())
    names = [f"job-{number}" for number in range(10)]
    async with operating(operator_connection, people.namespace):
        await people.create(train_job(suspend=True))
        await people.until_phase("Suspended")
        for name in names:
            await people.create(train_job(name))
        control_plane.stop_apiserver()
        await asyncio.to_thread(control_plane.start_apiserver)
        await people.edit({"spec": {"suspend": False}})
        for name in ("demo", *names):
            for pod in await people.until_pods(1, name):
                await people.set_pod(pod, "Running")
            status = await people.until_phase("Running", name)
            assert condition(status, "ResourcesCreated") is None
    assert len(await people.list("JobSet")) == 11


@asynccontextmanager
async def process(
    control_plane: ControlPlane, folder: Path, namespace: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """The operator as a process of its own; yields it and the port of its probes once it is ready."""
    health, webhook = find_free_ports(2)
    certificates = folder / "k8s-webhook-server" / "serving-certs"
    if not certificates.exists():
        shutil.copytree(control_plane.folder / "pki" / "hook", certificates)
    configuration = {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook},
        "certManagement": {"enable": False},
        "leaderElection": {"leaderElect": True, "resourceNamespace": namespace, "leaseDuration": "12s"},
    }
    configuration["leaderElection"] |= {"renewDeadline": "10s", "retryPeriod": "500ms"}
    (folder / "config.yaml").write_text(yaml.safe_dump(configuration))
    log = (folder / "operator.log").open("ab")
    running = await asyncio.create_subprocess_exec(
        *DIE_WITH_PARENT,
        *(sys.executable, "-m", "trainwright", "controller", "--namespace", namespace),
        *("--config", str(folder / "config.yaml"), "--kubeconfig", str(control_plane.kubeconfig("operator"))),
        stderr=log,
        env={**os.environ, "PYTHONWARNINGS": "error", "TMPDIR": str(folder)},
    )
    log.close()
    try:
        await eventually(lambda: _answers(health))
        yield running, health
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


async def _answers(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        return b" 200 " in await reader.readline()
    finally:
        writer.close()


async def test_a_killed_process_is_followed_by_another_and_a_stopped_one_leaves_at_once(
    control_plane: ControlPlane, operator_rights: None, people: People, tmp_path: Path
) -> None:
    """1. A process leads and is killed (-9). 2. Another leads once the lease of 12 s is over, and does what
    is to do. 3. SIGTERM ends it before Kubernetes would kill it, with exit code 0 and its lease given back.
    """
    [deployment] = [obj for obj in build_operator_objects(InstallSettings()) if obj["kind"] == "Deployment"]
    grace_seconds = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    await people.create(runtime())
    async with process(control_plane, tmp_path, people.namespace) as (first, _):
        await people.create(train_job("one"))
        await people.until_pods(1, "one")
        first.kill()
        await first.wait()
    await people.create(train_job("two"))
    before = await people.find("JobSet", "one")
    async with process(control_plane, tmp_path, people.namespace) as (second, _):
        await people.until_pods(1, "two")
        assert (await people.find("JobSet", "one"))["metadata"]["uid"] == before["metadata"]["uid"]
        second.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(second.wait(), grace_seconds) == 0
    lease = await people.find("Lease", "trainer.kubeflow.org")
    assert not lease["spec"].get("holderIdentity")
    log = (tmp_path / "operator.log").read_text()
    assert '"msg":"became leader"' in log
    assert "Traceback" not in log


async def test_an_event_is_told_once_however_often_the_operator_starts(
    people: People, operator_connection: Connection
) -> None:
    await people.create(train_job())

    async def list_told() -> list[Json]:
        return [event for event in await people.list("Event") if event["involvedObject"]["name"] == "demo"]

    for _ in range(2):
        async with operating(operator_connection, people.namespace):
            await people.until_status(lambda status: condition(status, "ResourcesCreated"))
            await people.create(train_job(f"marker-{_}", suspend=True))
            await people.until_phase("Suspended", f"marker-{_}")
            # The event follows the status.
            told = await eventually(list_told)
    assert [(event["reason"], event["count"]) for event in told] == [("TrainJobResourcesCreationFailed", 1)]
