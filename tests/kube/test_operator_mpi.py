"""MPI jobs on a real API server with the real JobSet: what it takes of ours, and that keys are made once."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import yaml

from kube.operating import PATIENCE_SECONDS, Crash, People, Running, condition, operating, train_job
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json
from trainwright.api.runtime import TrainingRuntime
from trainwright.api.trainjob import TrainJob
from trainwright.cluster.kube.config import Connection
from trainwright.render import render

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")

OPEN_MPI = Path(__file__).resolve().parent.parent / "data/mpi/open-mpi-4.yaml"
SECRET, HOSTFILE = "demo-mpi-ssh-auth", "demo-mpi-hostfile"
COMMAND = ["mpirun", "app"]


def runtime() -> Json:
    """The runtime of Open MPI, for one namespace."""
    given = yaml.safe_load(OPEN_MPI.read_text())
    return {**given, "kind": "TrainingRuntime", "metadata": {"name": "mpi"}}


def mpi_job(nodes: int, name: str = "demo", **spec: object) -> Json:
    return train_job(name, "mpi", trainer={"numNodes": nodes, "command": COMMAND}, **spec)


@pytest.fixture
async def operator(operator_connection: Connection, namespace: str) -> AsyncIterator[Running]:
    async with operating(operator_connection, namespace) as running:
        yield running


async def test_a_job_gets_keys_and_hosts_before_its_job_set_and_ends_with_its_launcher(
    people: People, operator: Running
) -> None:
    await people.create(runtime())
    await people.create(mpi_job(3))
    # The nodes alone: the launcher waits until they are ready.
    await people.set_pods("Running", 2)
    pods = await people.until_pods(3)
    [launcher] = [pod for pod in pods if "-launcher-" in pod["metadata"]["name"]]
    await people.set_pod(launcher, "Running")
    await people.until_phase("Running")
    await people.set_pod(launcher, "Succeeded")
    status = await people.until_phase("Complete")
    assert condition(status, "Complete")["reason"] == "AllJobsCompleted"
    await people.until_pods(1)  # sshd does not end by itself: JobSet ends it
    assert operator.transport.writes[2:5] == [
        "POST secrets",
        f"PATCH configmaps/{HOSTFILE}",
        "PATCH jobsets/demo",
    ]
    assert not any("secrets" in read for read in operator.transport.reads)


async def test_a_job_of_no_nodes_launches_nothing_and_is_complete(people: People, operator: Running) -> None:
    await people.create(runtime())
    await people.create(mpi_job(0))
    status = await people.until_phase("Complete")
    assert {entry["name"]: entry["succeeded"] for entry in status["jobsStatus"]} == {"node": 1, "launcher": 1}
    await people.until_pods(0)


async def test_the_keys_are_a_pair_that_belongs_to_the_job_and_can_never_change(
    people: People, operator: Running
) -> None:
    await people.create(runtime())
    job = await people.create(mpi_job(2))
    secret = await people.until_found("Secret", SECRET)
    assert (secret["type"], secret["immutable"]) == ("kubernetes.io/ssh-auth", True)
    assert base64.b64decode(secret["data"]["ssh-privatekey"]).startswith(b"-----BEGIN EC PRIVATE KEY-----")
    assert base64.b64decode(secret["data"]["ssh-publickey"]).startswith(b"ecdsa-sha2-nistp521 ")
    for child in (secret, await people.until_found("ConfigMap", HOSTFILE)):
        [owner] = child["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == (
            "TrainJob",
            job["metadata"]["uid"],
            True,
        )


async def test_keys_stay_over_a_suspension_in_which_the_job_grows(people: People, operator: Running) -> None:
    await people.create(runtime())
    await people.create(mpi_job(2))
    await people.until_pods(1)
    secret = await people.find("Secret", SECRET)
    await people.edit({"spec": {"suspend": True}})
    await people.until_phase("Suspended")
    await people.until_pods(0)
    await people.edit({"spec": {"suspend": False, "trainer": {"numNodes": 4}}})
    await people.until_pods(3)
    assert await people.find("Secret", SECRET) == secret
    hostfile = await people.find("ConfigMap", HOSTFILE)
    assert hostfile is not None
    assert hostfile["data"]["hostfile"].split()[::2] == [
        "demo-launcher-0-0.demo",
        *(f"demo-node-0-{i}.demo" for i in range(3)),
    ]


@pytest.mark.parametrize("written", [3, 4], ids=["before the hostfile", "before the JobSet"])
async def test_an_operator_that_dies_after_making_keys_is_followed_by_one_that_uses_them(
    people: People, operator_connection: Connection, written: int
) -> None:
    """1. snapshot  2. status  3. keys  4. hostfile  5. JobSet"""
    await people.create(runtime())
    await people.create(mpi_job(2))
    try:
        async with operating(operator_connection, people.namespace, dies_before=written) as dying:
            await asyncio.wait([dying.task], timeout=PATIENCE_SECONDS)
            assert dying.task.done()
    except* Crash:
        pass
    secret = await people.until_found("Secret", SECRET)
    async with operating(operator_connection, people.namespace):
        await people.until_pods(1)
    assert await people.find("Secret", SECRET) == secret


async def test_one_node_is_the_launcher_alone(people: People, operator: Running) -> None:
    """JobSet takes a replicated job of no pods, and holds it for ready."""
    await people.create(runtime())
    await people.create(mpi_job(1))
    [launcher] = await people.until_pods(1)
    assert "-launcher-" in launcher["metadata"]["name"]
    await people.set_pod(launcher, "Running")
    await people.until_phase("Running")
    await people.set_pod(launcher, "Succeeded")
    await people.until_phase("Complete")


async def test_keys_of_another_owner_are_not_used_and_the_status_says_whose_they_are(
    people: People, operator: Running
) -> None:
    other = await people.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}, "data": {}}
    )
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "other",
        "uid": other["metadata"]["uid"],
        "controller": True,
    }
    await people.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "ownerReferences": [owner]},
            "data": {},
        }
    )
    await people.create(runtime())
    await people.create(mpi_job(2))
    status = await people.until_status(lambda status: condition(status, "ResourcesCreated") is not None)
    refused = condition(status, "ResourcesCreated")
    assert refused["reason"] == "AlreadyExists"
    assert f"ConfigMap 'other' with the uid {other['metadata']['uid']}" in refused["message"]
    assert await people.find("JobSet") is None
    await people.delete("Secret", SECRET)
    await people.until_pods(1)
    await people.until_status(lambda status: condition(status, "ResourcesCreated") is None)


async def test_r04_objects_of_ten_thousand_nodes_with_the_longest_name_are_taken(people: People) -> None:
    """Suspended: nobody wants the pods."""
    given = parse_object(runtime(), TrainingRuntime)
    document = mpi_job(10_000, "a" * 44, suspend=True)
    document["metadata"]["namespace"] = people.namespace
    objects = render(parse_object(document, TrainJob), given)
    assert sum(obj["kind"] == "ConfigMap" for obj in objects) > 1
    for obj in objects:
        if obj["kind"] != "Secret":
            stored = await people.cluster.apply(obj, "trainer")
            assert len(msgspec.json.encode(stored)) < 1024 * 1024
