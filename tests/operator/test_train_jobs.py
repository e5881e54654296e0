"""The controller of TrainJobs over caches that are behind: nothing is written twice, nothing is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from cluster.kube.scripted_server import ScriptedServer, settle
from trainwright.api.meta import Json
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.operator.caches import Caches
from trainwright.operator.metrics import Metrics
from trainwright.operator.train_jobs import TrainJobController

START = datetime(2026, 1, 1, tzinfo=UTC)
MOMENT = "2026-01-01T00:00:00Z"


class Clock:
    now = START

    def __call__(self) -> datetime:
        return self.now


class Parts:
    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.clock = Clock()
        self.caches = Caches(server)
        self.controller = TrainJobController(
            self.caches, KubeCluster(server, "trainer"), self.clock, 2, Metrics()
        )


@asynccontextmanager
async def controlling(server: ScriptedServer) -> AsyncIterator[Parts]:
    parts, stopping = Parts(server), asyncio.Event()
    watching = asyncio.create_task(parts.caches.run())
    async with asyncio.timeout(60):
        await parts.caches.wait_until_synced()
    working = asyncio.create_task(parts.controller.run(stopping))
    await settle()
    try:
        yield parts
    finally:
        stopping.set()
        await working
        watching.cancel()
        await asyncio.wait([watching])


def runtime() -> Json:
    pod = {"containers": [{"name": "node", "image": "registry.example/train:1"}]}
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    template = {"metadata": step, "spec": {"template": {"spec": pod}}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "plain", "namespace": "ns"},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}},
        },
    }


def job(name: str = "demo", **spec: object) -> Json:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"runtimeRef": {"name": "plain", "kind": "TrainingRuntime"}, **spec},
    }


def touch(server: ScriptedServer, name: str = "demo") -> None:
    """Wake the job: a Job of it appears, and goes."""
    labels = {"jobset.sigs.k8s.io/jobset-name": name}
    server.put({"kind": "Job", "metadata": {"name": f"{name}-x", "namespace": "ns", "labels": labels}})
    server.delete("Job", f"{name}-x")


async def test_a_new_job_costs_two_writes_and_no_read() -> None:
    server = ScriptedServer()
    server.put(runtime())
    async with controlling(server):
        for name in ("one", "two"):
            server.put(job(name))
        await settle()
    assert sorted(line for line in server.requests if "configmaps" not in line) == [
        "PATCH ns/jobsets/one",
        "PATCH ns/jobsets/two",
        "PATCH ns/trainjobs/one/status",
        "PATCH ns/trainjobs/two/status",
    ]
    assert sum("configmaps" in line for line in server.requests) == 1


async def test_a_job_whose_writes_are_not_seen_yet_is_not_looked_at() -> None:
    """1. Status and JobSet are written. 2. Their watches are behind. 3. Something else wakes the job."""
    server = ScriptedServer()
    server.put(runtime())
    async with controlling(server):
        server.put(job())
        server.hold("TrainJob")
        server.hold("JobSet")
        await settle()
        # What wakes the job: the caches still show neither the JobSet nor the status.
        writes = list(server.writes)
        for _ in range(3):
            touch(server)
            await settle()
        assert server.writes == writes
        server.release("JobSet")
        await settle()
        touch(server)
        await settle()
        assert server.writes == writes
        server.release("TrainJob")
        await settle()
        touch(server)
        await settle()
        assert server.writes == writes


async def test_a_change_that_comes_while_the_caches_are_behind_is_acted_upon_when_they_are_not() -> None:
    server = ScriptedServer()
    server.put(runtime())
    async with controlling(server):
        server.put(job())
        server.hold("JobSet")
        await settle()
        stored = server.objects["trainjobs", "ns", "demo"]
        server.put({**stored, "spec": {**stored["spec"], "suspend": True}})
        await settle()
        assert "PATCH ns/jobsets/demo" in server.writes
        assert server.objects["jobsets", "ns", "demo"]["spec"].get("suspend") is not True
        server.release("JobSet")
        await settle()
        assert server.objects["jobsets", "ns", "demo"]["spec"]["suspend"] is True


async def test_a_runtime_that_was_made_a_moment_before_its_job_is_not_called_missing() -> None:
    """1. The watch of runtimes is behind. 2. A runtime is made, and a job. 3. The job starts at once."""
    server = ScriptedServer()
    async with controlling(server):
        server.hold("TrainingRuntime")
        server.put(runtime())
        server.put(job())
        await settle()
        assert "GET ns/trainingruntimes/plain" in server.requests
        assert "PATCH ns/jobsets/demo" in server.writes
        assert not any("events" in write for write in server.writes)


async def test_a_runtime_that_nobody_has_is_asked_for_once_however_many_jobs_name_it() -> None:
    server = ScriptedServer()
    async with controlling(server):
        for number in range(20):
            server.put(job(f"job-{number}"))
            await settle()
        assert server.requests.count("GET ns/trainingruntimes/plain") == 1
        status = server.objects["trainjobs", "ns", "job-19"]["status"]
        assert status["cause"]["reason"] == "RuntimeNotFound"
        # Its watch brings it, and nothing is asked for.
        server.put(runtime())
        await settle()
        assert server.writes.count("PATCH ns/jobsets/job-19") == 1
        assert server.requests.count("GET ns/trainingruntimes/plain") == 1


def owned_by(begun: Json, kind: str, name: str, **parts: object) -> Json:
    owner = {
        "apiVersion": begun["apiVersion"],
        "kind": "TrainJob",
        "name": begun["metadata"]["name"],
        "uid": begun["metadata"]["uid"],
        "controller": True,
    }
    return {"kind": kind, "metadata": {"name": name, "namespace": "ns", "ownerReferences": [owner]}, **parts}


def peer_snapshot(begun: Json, text: str) -> Json:
    return owned_by(begun, "ConfigMap", "demo-runtime-snapshot", data={"runtime": text})


async def test_a_snapshot_of_the_peer_that_cannot_be_used_is_read_until_it_can() -> None:
    server = ScriptedServer()
    live = server.put(runtime())
    begun = server.put(job() | {"status": {"conditions": []}})
    server.put(owned_by(begun, "JobSet", "demo", spec={"suspend": True}))
    server.put(peer_snapshot(begun, "hello"))
    async with controlling(server):
        await settle()
        cause = server.objects["trainjobs", "ns", "demo"]["status"]["cause"]
        assert (cause["reason"], cause["hint"][:21]) == ("SnapshotUnusable", "restore the ConfigMap")
        server.delete("ConfigMap", "demo-runtime-snapshot")
        server.put(peer_snapshot(begun, yaml.safe_dump(live)))
        touch(server)
        await settle()
        assert "cause" not in server.objects["trainjobs", "ns", "demo"]["status"]


def build_pod(owner: Json, phase: str, state: Json) -> Json:
    """The one pod of a JobSet."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "demo",
        "jobset.sigs.k8s.io/jobset-uid": owner["metadata"]["uid"],
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": "0",
        "batch.kubernetes.io/job-completion-index": "0",
    }
    container = {"name": "node", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    return {
        "kind": "Pod",
        "metadata": {"name": "demo-node-0-0-x", "namespace": "ns", "labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "x"}]},
        "status": {"phase": phase, "containerStatuses": [{**container, "state": state}]},
    }


def fail(job_set: Json) -> Json:
    condition = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "some jobs failed"}
    counters = {"name": "node", "ready": 0, "succeeded": 0, "failed": 1, "active": 0, "suspended": 0}
    status = {
        "conditions": [{**condition, "lastTransitionTime": MOMENT}],
        "replicatedJobsStatus": [counters],
    }
    return {**job_set, "status": status}


@pytest.mark.parametrize("is_late", [True, False], ids=["its watch is behind", "its watch is not behind"])
async def test_a_job_does_not_fail_without_the_words_of_the_pod_that_failed(is_late: bool) -> None:
    """1. A pod fails; its watch is behind, or not. 2. JobSet says that it failed. 3. Failed is final."""
    server = ScriptedServer()
    server.put(runtime())
    async with controlling(server):
        server.put(job())
        await settle()
        job_set = server.objects["jobsets", "ns", "demo"]
        server.put(build_pod(job_set, "Running", {"running": {"startedAt": MOMENT}}))
        await settle()
        if is_late:
            server.hold("Pod")
        ended = {"exitCode": 3, "reason": "Error", "startedAt": MOMENT, "finishedAt": MOMENT}
        server.put(build_pod(job_set, "Failed", {"terminated": {**ended, "message": "no data"}}))
        await settle()
        server.put(fail(job_set))
        await settle()
        status = server.objects["trainjobs", "ns", "demo"]["status"]
        [condition] = [found for found in status["conditions"] if found["type"] == "Failed"]
        assert "code 3" in condition["message"]
        assert "no data" in condition["message"]
        assert status["cause"]["kind"] == "Pod"
        # One read where the caches lack the pod, none else.
        assert server.requests.count("GET ns/pods") == is_late
        touch(server)
        await settle()
        assert server.requests.count("GET ns/pods") == is_late


async def test_of_a_job_set_that_failed_without_a_failed_pod_pods_are_read_once() -> None:
    server = ScriptedServer()
    server.put(runtime())
    async with controlling(server):
        server.put(job())
        await settle()
        server.put(fail(server.objects["jobsets", "ns", "demo"]))
        await settle()
        touch(server)
        await settle()
    assert server.objects["trainjobs", "ns", "demo"]["status"]["phase"] == "Failed"
    assert server.requests.count("GET ns/pods") == 1


async def test_a_snapshot_of_the_peer_is_read_once() -> None:
    server = ScriptedServer()
    live = server.put(runtime())
    begun = server.put(job(suspend=True) | {"status": {"conditions": []}})
    server.put(peer_snapshot(begun, yaml.safe_dump(live)))
    async with controlling(server):
        await settle()
        for _ in range(3):
            touch(server)
            await settle()
    reads = [line for line in server.requests if line.startswith("GET")]
    assert len([line for line in reads if line == "GET ns/configmaps/demo-runtime-snapshot"]) == 1
    assert len(reads) <= 2


async def test_snapshots_that_nobody_names_are_swept_and_others_stay() -> None:
    server = ScriptedServer()
    server.put(runtime())
    async with controlling(server) as parts:
        server.put(job(suspend=True))
        await settle()
        (name,) = [key[2] for key in server.objects if key[0] == "configmaps"]
        parts.clock.now = START + timedelta(hours=1)
        await parts.controller.sweep()
        assert ("configmaps", "ns", name) in server.objects
        server.delete("TrainJob", "demo")
        await settle()
        await parts.controller.sweep()
        assert ("configmaps", "ns", name) not in server.objects


async def test_a_young_snapshot_is_not_swept() -> None:
    server = ScriptedServer()
    server.put(runtime())
    async with controlling(server) as parts:
        server.put(job(suspend=True))
        await settle()
        server.delete("TrainJob", "demo")
        await settle()
        parts.clock.now = START + timedelta(minutes=1)
        await parts.controller.sweep()
        assert any(key[0] == "configmaps" for key in server.objects)
