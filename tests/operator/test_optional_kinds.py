"""Objects of others are asked for where somebody needs them, and never where nobody does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from cluster.kube.scripted_server import ScriptedServer, settle
from trainwright.api.constants import SNAPSHOT_KEY
from trainwright.api.kueue import WORKLOAD_KINDS
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.errors import ForbiddenError, NotFoundError, ServerTroubleError, Status
from trainwright.cluster.kube.queue import Priority
from trainwright.cluster.kube.requests import Request
from trainwright.operator.caches import Caches
from trainwright.operator.optional_kinds import PATIENCE_SECONDS, RETRY_SECONDS
from virtual_time import on_virtual_time

V1BETA2 = "/apis/kueue.x-k8s.io/v1beta2/workloads"
V1BETA1 = "/apis/kueue.x-k8s.io/v1beta1/workloads"
COSCHEDULING = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
NOT_FOUND = NotFoundError(Status(code=404, reason="NotFound", message="404 page not found"))
FORBIDDEN = ForbiddenError(Status(code=403, reason="Forbidden", message="cannot list workloads"))


class Server(ScriptedServer):
    """One that answers for the kinds of others as it is told: each is not found until it is `served`."""

    def __init__(self, *served: str) -> None:
        super().__init__()
        self.served = set(served)
        self.refusal: Exception = NOT_FOUND
        self.asked: list[str] = []
        self._gone: dict[str, asyncio.Event] = {}

    async def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        if "kueue" not in request.path and "scheduling" not in request.path:
            async for line in super().stream(request, inactivity_seconds):
                yield line
            return
        self.asked.append(request.path)
        if request.path not in self.served:
            raise self.refusal
        lines = super().stream(request, inactivity_seconds)
        gone = self._gone.setdefault(request.path, asyncio.Event())
        ended = asyncio.ensure_future(gone.wait())
        try:
            while True:
                following = asyncio.ensure_future(anext(lines))
                await asyncio.wait([following, ended], return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    following.cancel()
                    raise NOT_FOUND
                yield following.result()
        finally:
            ended.cancel()

    def uninstall(self, path: str) -> None:
        self.served.discard(path)
        self._gone[path].set()


@asynccontextmanager
async def caching(server: Server) -> AsyncIterator[tuple[Caches, list[str]]]:
    """Run the caches until they are filled; yields the names of the jobs that are woken from then on."""
    caches, woken = Caches(server), list[str]()

    def wake(key: ObjectKey, priority: Priority, delay_seconds: float) -> None:
        woken.append(key.name)

    task = asyncio.create_task(caches.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS - 1):  # nobody is waited for in vain
            await caches.wait_until_synced()
        await settle()
        caches.add_wake(wake)
        yield caches, woken
    finally:
        task.cancel()
        await asyncio.wait([task])


def queued(name: str = "demo", **status: object) -> Json:
    metadata = {"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    return {
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {"runtimeRef": {"name": "plain"}, "suspend": True},
        "status": status,
    }


def owned(kind: str, owner: Json, name: str = "", **body: object) -> Json:
    meta = owner["metadata"]
    reference = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    metadata = {"name": name or meta["name"], "namespace": "ns", "ownerReferences": [reference]}
    return {"kind": kind, "metadata": metadata, **body}


async def test_where_no_job_goes_through_a_queue_nothing_is_asked() -> None:
    server = Server()
    server.put({**queued(), "metadata": {"name": "demo", "namespace": "ns"}})
    server.put(queued("ended", conditions=[{"type": "Complete", "status": "True"}]))
    async with caching(server):
        assert server.asked == []


async def test_workloads_are_there_before_the_first_decision() -> None:
    server = Server(V1BETA2)
    job = server.put(queued())
    server.put(owned("Workload", job, "trainjob-demo-1"))
    async with caching(server) as (caches, _):
        found = caches.find_workload(job["metadata"]["uid"])
        assert found is not None
        assert found.metadata.name == "trainjob-demo-1"
        assert server.asked == [V1BETA2]


async def test_the_first_job_in_a_queue_makes_them_asked_for() -> None:
    server = Server(V1BETA2)
    async with caching(server) as (caches, woken):
        job = server.put(queued())
        await settle()
        assert server.asked == [V1BETA2]
        server.put(queued("other"))
        await settle()
        woken.clear()
        server.put(owned("Workload", job, "trainjob-demo-1"))
        await settle()
        assert woken == ["demo"]
        assert caches.find_workload(job["metadata"]["uid"]) is not None
        assert server.asked == [V1BETA2]


async def test_an_older_kueue_is_asked_in_its_own_version() -> None:
    server = Server(V1BETA1)
    job = server.put(queued())
    server.put(owned("Workload", job))
    async with caching(server) as (caches, _):
        assert server.asked == [V1BETA2, V1BETA1]
        assert caches.find_workload(job["metadata"]["uid"]) is not None


async def test_workloads_of_others_are_not_kept_and_wake_nobody() -> None:
    server = Server(V1BETA2)
    server.put(queued())
    other = server.put({"kind": "Job", "metadata": {"name": "batch", "namespace": "ns"}})
    async with caching(server) as (caches, woken):
        server.put(owned("Workload", other, "job-batch-1"))
        await settle()
        assert woken == []
        assert len(caches.workloads.informer.store) == 0


async def test_of_two_workloads_the_newest_that_stays_counts() -> None:
    server = Server(V1BETA2)
    job = server.put(queued())
    for name, made, is_going in (("old", "01", False), ("new", "02", False), ("going", "03", True)):
        workload = owned("Workload", job, name)
        workload["metadata"]["creationTimestamp"] = f"2026-01-{made}T00:00:00Z"
        if is_going:
            workload["metadata"]["deletionTimestamp"] = "2026-01-04T00:00:00Z"
        server.put(workload)
    async with caching(server) as (caches, _):
        found = caches.find_workload(job["metadata"]["uid"])
        assert found is not None
        assert found.metadata.name == "new"


@pytest.mark.parametrize("refusal", [NOT_FOUND, FORBIDDEN], ids=["not served", "not to be read"])
@on_virtual_time
async def test_what_nobody_serves_keeps_nobody_waiting_and_is_asked_for_again_later(
    refusal: Exception,
) -> None:
    server = Server()
    server.refusal = refusal
    server.put(queued())
    async with caching(server) as (caches, _):
        assert caches.list_unsynced() == []
        assert server.asked == [V1BETA2, V1BETA1]
        server.served.add(V1BETA2)
        await asyncio.sleep(RETRY_SECONDS - 1)
        assert server.asked == [V1BETA2, V1BETA1]
        await asyncio.sleep(2)
        assert server.asked == [V1BETA2, V1BETA1, V1BETA2]


@on_virtual_time
async def test_what_may_not_be_read_is_told_once() -> None:
    server = Server()
    server.refusal = FORBIDDEN
    server.put(queued())
    with capture_logs() as logs:
        async with caching(server):
            await asyncio.sleep(5 * RETRY_SECONDS)
    assert len(server.asked) > 6
    told = [line["kind"] for line in logs if line["log_level"] == "warning"]
    assert told == list(WORKLOAD_KINDS)


@on_virtual_time
async def test_a_kueue_that_is_out_of_order_holds_up_nobody_for_long() -> None:
    server = Server()
    server.refusal = ServerTroubleError(Status(code=500, message="conversion webhook failed"))
    job = server.put(queued())
    server.put(owned("Workload", job))
    caches = Caches(server)
    task = asyncio.create_task(caches.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS + 1):
            await caches.wait_until_synced()
        assert set(server.asked) == {V1BETA2}
        server.served.add(V1BETA2)
        await asyncio.sleep(RETRY_SECONDS)
        assert caches.find_workload(job["metadata"]["uid"]) is not None
    finally:
        task.cancel()
        await asyncio.wait([task])


@on_virtual_time
async def test_once_the_last_job_left_its_queue_nobody_asks_again() -> None:
    server = Server()
    server.put(queued())
    async with caching(server):
        server.delete("TrainJob", "demo")
        await asyncio.sleep(10 * RETRY_SECONDS)
        assert server.asked == [V1BETA2, V1BETA1]


@on_virtual_time
async def test_when_kueue_goes_its_words_are_forgotten() -> None:
    server = Server(V1BETA2)
    job = server.put(queued())
    server.put(owned("Workload", job))
    async with caching(server) as (caches, woken):
        server.uninstall(V1BETA2)
        await asyncio.sleep(5)
        assert caches.find_workload(job["metadata"]["uid"]) is None
        assert woken == ["demo"]


GANGS = {
    "a runtime": {"kind": "TrainingRuntime", "metadata": {"name": "plain", "namespace": "ns"}},
    "a cluster runtime": {"kind": "ClusterTrainingRuntime", "metadata": {"name": "plain"}},
}


@pytest.mark.parametrize(
    ("policy", "path"),
    [("coscheduling", COSCHEDULING), ("volcano", VOLCANO)],
    ids=["coscheduling", "volcano"],
)
@pytest.mark.parametrize("runtime", GANGS.values(), ids=list(GANGS))
async def test_pod_groups_are_asked_for_where_a_gang_may_be_in(runtime: Json, policy: str, path: str) -> None:
    server = Server(path)
    server.put({**runtime, "spec": {"podGroupPolicy": {policy: {}}}})
    job = server.put(queued())
    server.put(owned("PodGroup", job))
    async with caching(server) as (caches, woken):
        assert path in server.asked
        assert not {COSCHEDULING, VOLCANO} - {path} & set(server.asked)
        [kind] = [kind for kind, optional in caches.pod_groups.items() if len(optional.informer.store)]
        assert caches.pod_groups[kind].informer.store.get("ns", "demo") is not None
        server.put(owned("PodGroup", job, status={"phase": "Pending"}))
        await settle()
        assert woken == ["demo"]


async def test_a_job_that_began_under_a_policy_keeps_its_gang_in_view() -> None:
    server = Server(COSCHEDULING)
    text = (
        '{"kind":"TrainingRuntime","metadata":{"name":"plain"},"spec":{"podGroupPolicy":{"coscheduling":{}}}}'
    )
    labels = {"trainer.kubeflow.org/runtime-snapshot": "true"}
    async with caching(server):
        metadata = {"name": "trainer-runtime-1", "namespace": "ns", "labels": labels}
        server.put({"kind": "ConfigMap", "metadata": metadata, "data": {SNAPSHOT_KEY: text}})
        await settle()
        assert server.asked == [COSCHEDULING]


async def test_where_no_pods_are_ganged_nothing_is_asked() -> None:
    server = Server()
    for runtime in GANGS.values():
        server.put({**runtime, "spec": {"mlPolicy": {"numNodes": 2}}})
    async with caching(server):
        assert server.asked == []
