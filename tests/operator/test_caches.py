"""Which TrainJobs hear of which change, and what is watched and kept at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from cluster.kube.scripted_server import ScriptedServer, settle
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.queue import Priority
from trainwright.operator.caches import MANY_PODS, MANY_PODS_SECONDS, Caches

HASH = "0123456789abcdef0123456789abcdef"


class Woken:
    """The names of the TrainJobs that were woken since the last look."""

    def __init__(self) -> None:
        self._keys: list[tuple[ObjectKey, float]] = []

    def __call__(self, key: ObjectKey, priority: Priority, delay_seconds: float) -> None:
        self._keys.append((key, delay_seconds))

    async def take(self) -> set[str]:
        return {name for name, _ in await self.take_with_delays()}

    async def take_with_delays(self) -> set[tuple[str, float]]:
        await settle()
        taken = {(key.name, delay) for key, delay in self._keys}
        self._keys.clear()
        return taken


@asynccontextmanager
async def caching(
    server: ScriptedServer, namespace: str | None = None
) -> AsyncIterator[tuple[Caches, Woken]]:
    caches, woken = Caches(server, namespace), Woken()
    caches.add_wake(woken)
    task = asyncio.create_task(caches.run())
    try:
        async with asyncio.timeout(60):
            await caches.wait_until_synced()
        await woken.take()
        yield caches, woken
    finally:
        task.cancel()
        await asyncio.wait([task])


def job(name: str = "demo", runtime: str = "plain", kind: str = "TrainingRuntime", **status: object) -> Json:
    return {
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"runtimeRef": {"name": runtime, "kind": kind}},
        "status": status,
    }


def child(kind: str, name: str, job_set: str = "demo", **body: object) -> Json:
    labels = {"jobset.sigs.k8s.io/jobset-name": job_set}
    return {"kind": kind, "metadata": {"name": name, "namespace": "ns", "labels": labels}, **body}


def runtime(kind: str = "TrainingRuntime", name: str = "plain") -> Json:
    where = {"namespace": "ns"} if kind == "TrainingRuntime" else {}
    return {"kind": kind, "metadata": {"name": name, **where}, "spec": {"mlPolicy": {"numNodes": 1}}}


def warning(about: str, kind: str = "Job", uid: str = "u", name: str = "w") -> Json:
    return {
        "kind": "Event",
        "metadata": {"name": name, "namespace": "ns"},
        "involvedObject": {"kind": kind, "namespace": "ns", "name": about, "uid": uid},
        "type": "Warning",
        "reason": "FailedCreate",
    }


def job_set(owner: Json | None = None, **status: object) -> Json:
    owners = [
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "name": "demo",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ] if owner else []  # fmt: skip
    return {
        "kind": "JobSet",
        "metadata": {"name": "demo", "namespace": "ns", "ownerReferences": owners},
        "spec": {"replicatedJobs": []},
        "status": status,
    }


COMPLETED = {
    "conditions": [
        {
            "type": "Completed",
            "status": "True",
            "reason": "AllJobsCompleted",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
}


async def test_only_snapshots_and_warnings_are_asked_for() -> None:
    server = ScriptedServer()
    async with caching(server):
        assert server.queries["configmaps"]["labelSelector"] == "trainer.kubeflow.org/runtime-snapshot=true"
        assert server.queries["events"]["fieldSelector"] == "type=Warning"
        assert "secrets" not in server.queries
    assert server.requests == []


@pytest.mark.parametrize("kind", ["JobSet", "Job", "Pod"])
async def test_a_change_of_a_child_wakes_its_job(kind: str) -> None:
    server = ScriptedServer()
    server.put(job())
    server.put(job("other"))
    async with caching(server) as (_, woken):
        name = "demo" if kind == "JobSet" else "demo-node-0"
        server.put(child(kind, name))
        assert await woken.take() == {"demo"}
        server.delete(kind, name)
        assert await woken.take() == {"demo"}


async def test_the_pods_of_a_large_job_are_looked_at_together() -> None:
    server = ScriptedServer()
    server.put(job())
    for number in range(MANY_PODS):
        server.put(child("Pod", f"demo-node-0-{number}"))
    async with caching(server) as (_, woken):
        server.put(child("Pod", "demo-node-0-0"))
        assert await woken.take_with_delays() == {("demo", 0.0)}
        server.put(child("Pod", "demo-node-0-one-more"))
        assert await woken.take_with_delays() == {("demo", MANY_PODS_SECONDS)}
        server.put(child("Job", "demo-node-0"))
        assert await woken.take_with_delays() == {("demo", 0.0)}


async def test_a_change_of_a_job_wakes_itself() -> None:
    server = ScriptedServer()
    async with caching(server) as (caches, woken):
        server.put(job())
        assert await woken.take() == {"demo"}
        server.delete("TrainJob", "demo")
        assert await woken.take() == {"demo"}
        assert caches.list_train_job_keys() == []


async def test_an_edited_runtime_wakes_those_who_wait_for_it_alone() -> None:
    server = ScriptedServer()
    snapshot = {"runtimeSnapshot": {"name": "plain", "hash": HASH}}
    refused = [{"type": "ResourcesCreated", "status": "False"}]
    server.put(job("fresh"))
    server.put(job("begun", **snapshot))
    server.put(job("refused", **snapshot, conditions=refused))
    server.put(job("ended", conditions=[{"type": "Failed", "status": "True"}]))
    server.put(job("of-the-cluster", kind="ClusterTrainingRuntime"))
    async with caching(server) as (_, woken):
        server.put(runtime())
        assert await woken.take() == {"fresh", "refused"}
        server.put(runtime("ClusterTrainingRuntime"))
        assert await woken.take() == {"of-the-cluster"}
        server.put(runtime(name="another"))
        assert await woken.take() == set()


async def test_who_waits_in_a_queue_hears_that_a_runtime_comes_and_goes_but_not_of_edits() -> None:
    server = ScriptedServer()
    queued = job("queued", runtimeSnapshot={"name": "plain", "hash": HASH})
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    server.put(queued)
    server.put(runtime())
    async with caching(server) as (_, woken):
        await woken.take()
        server.put({**runtime(), "spec": {"mlPolicy": {"numNodes": 2}}})
        assert await woken.take() == set()
        server.delete("TrainingRuntime", "plain")
        assert await woken.take() == {"queued"}
        server.put(runtime())
        assert await woken.take() == {"queued"}


async def test_a_snapshot_that_goes_away_wakes_those_who_began_with_it() -> None:
    server = ScriptedServer()
    server.put(job(runtimeSnapshot={"name": "plain", "hash": HASH}))
    server.put(job("other", runtimeSnapshot={"name": "plain", "hash": HASH[::-1]}))
    name = f"trainer-runtime-{HASH}"
    async with caching(server) as (caches, woken):
        labels = {"trainer.kubeflow.org/runtime-snapshot": "true"}
        server.put({"kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns", "labels": labels}})
        assert await woken.take() == set()
        (kept,) = caches.snapshots.store
        assert caches.has_users(kept)
        server.delete("ConfigMap", name)
        assert await woken.take() == {"demo"}


async def test_a_warning_about_a_child_wakes_its_job_even_before_the_child_is_known() -> None:
    server = ScriptedServer()
    server.put(job())
    server.put(job("demo-2"))
    async with caching(server) as (caches, woken):
        for number, about in enumerate(("demo-node-0", "demo-node-0-0-x7k2p", "demo")):
            server.put(warning(about, uid=f"u{number}", name=f"w{number}"))
            assert await woken.take() == {"demo"}
        server.put(warning("demo-2-node-0", name="w3"))
        assert await woken.take() == {"demo-2"}
        assert [event.involved_object.name for event in caches.list_warnings("ns", ["u0", "u2"])] == [
            "demo-node-0",
            "demo",
        ]


async def test_warnings_about_others_are_not_kept() -> None:
    server = ScriptedServer()
    server.put(job())
    server.put(warning("demo-node-0", kind="Node", name="w0"))
    async with caching(server) as (caches, woken):
        server.put(warning("demonstration-1", name="w1"))
        server.put(warning("stranger", name="w2"))
        assert await woken.take() == set()
        assert len(caches.warnings.store) == 0


async def test_the_last_state_of_a_job_set_that_ended_and_went_is_kept() -> None:
    server = ScriptedServer()
    owner = server.put(job())
    async with caching(server) as (caches, _):
        server.put(job_set(owner, **COMPLETED))
        server.delete("JobSet", "demo")
        await settle()
        kept = caches.get_deleted_job_set("ns", "demo")
        assert kept is not None
        assert kept.status is not None
        assert kept.status.conditions is not None
        assert kept.status.conditions[0].type == "Completed"


async def test_the_end_of_a_job_forgets_the_job_set_that_it_had() -> None:
    server = ScriptedServer()
    owner = server.put(job())
    async with caching(server) as (caches, _):
        server.put(job_set(owner, **COMPLETED))
        server.delete("JobSet", "demo")
        server.delete("TrainJob", "demo")
        await settle()
        assert caches.get_deleted_job_set("ns", "demo") is None


FORGOTTEN = {
    "it had not ended": (True, {}),
    "it was somebody else's": (False, COMPLETED),
}


@pytest.mark.parametrize(("is_owned", "status"), FORGOTTEN.values(), ids=FORGOTTEN)
async def test_a_job_set_that_tells_nothing_is_not_kept(is_owned: bool, status: dict[str, object]) -> None:
    server = ScriptedServer()
    owner = server.put(job())
    async with caching(server) as (caches, _):
        server.put(job_set(owner if is_owned else None, **status))
        server.delete("JobSet", "demo")
        await settle()
        assert caches.get_deleted_job_set("ns", "demo") is None


async def test_versions_are_known_of_the_kinds_that_are_written() -> None:
    server = ScriptedServer()
    stored = server.put(job())
    async with caching(server) as (caches, _):
        version = stored["metadata"]["resourceVersion"]
        assert caches.find_version(ObjectKey("TrainJob", "ns", "demo")) == version
        assert caches.find_version(ObjectKey("JobSet", "ns", "demo")) == ""
        assert caches.find_version(ObjectKey("Secret", "ns", "demo")) is None
        assert caches.find_version(ObjectKey("ConfigMap", "ns", "demo-mpi-hostfile")) is None


async def test_in_one_namespace_nothing_else_is_watched() -> None:
    server = ScriptedServer()
    server.put(runtime("ClusterTrainingRuntime"))
    async with caching(server, "ns") as (caches, _):
        assert caches.list_runtime_names("ClusterTrainingRuntime", "ns") == ["plain"]
        assert caches.list_runtime_names("TrainingRuntime", "ns") == []


async def test_what_is_not_filled_yet_is_named() -> None:
    caches = Caches(ScriptedServer())
    assert "TrainJob" in caches.list_unsynced()
