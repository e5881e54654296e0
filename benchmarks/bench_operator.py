"""What does the operator cost without the network: per new job, and at a start among queued ones?

Data: torch jobs of 4 nodes of one runtime. A new job is taken in from the watch, decided about, its status
and its JobSet written, and what the watches bring back looked at: 5 passes. At the start 50,000 queued jobs
that were seen before are listed and each is looked at once; nothing is written. Baseline: decoding the same
JSON to plain objects and, for the new job, encoding it again. Bias: the server is a function in this process,
so neither HTTP nor TLS is in it (about half a millisecond per request), and nobody else uses the core.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from measure import Figure
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.requests import Request, find_plural
from trainwright.operator.caches import Caches
from trainwright.operator.metrics import Metrics
from trainwright.operator.train_jobs import TrainJobController
from trainwright.runtimes import load_shipped_runtimes

NEW_JOBS = 500
QUEUED_JOBS = 50_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLURALS = {"TrainJob": "trainjobs", "JobSet": "jobsets", "ConfigMap": "configmaps"}


class Server:
    """Streams what is put in, and stores what is applied; no network, no checks."""

    def __init__(self) -> None:
        self.version = 0
        self.bodies: list[bytes] = []
        self.writes = 0
        self._objects: dict[str, Json] = {}
        self._streams: dict[str, asyncio.Queue[bytes]] = {}
        self._listed: dict[str, list[bytes]] = {}

    def put(self, obj: Json, type_: str = "ADDED") -> None:
        """Store an object; a watch brings it now, or its list does later."""
        self.version += 1
        metadata = {**obj["metadata"], "resourceVersion": str(self.version)}
        metadata.setdefault("uid", f"u-{self.version}")
        obj = {**obj, "metadata": metadata}
        plural = PLURALS.get(obj["kind"], f"{obj['kind'].lower()}s")
        self._objects[f"{plural}/{metadata['name']}"] = obj
        line = msgspec.json.encode({"type": type_, "object": obj}) + b"\n"
        self.bodies.append(line)
        if plural in self._streams:
            self._streams[plural].put_nowait(line)
        else:
            self._listed.setdefault(plural, []).append(line)

    def has(self, plural: str, name: str) -> bool:
        """Say whether the object is stored."""
        return f"{plural}/{name}" in self._objects

    def get(self, plural: str, name: str) -> Json:
        """Return the object as it is stored."""
        return self._objects[f"{plural}/{name}"]

    async def request(self, request: Request) -> bytes:
        """Take a write."""
        plural, name = find_plural(request.path), request.path.split("/")[-1]
        body: Any = msgspec.json.decode(request.body or b"{}")
        self.writes += 1
        if name == "status":
            name = request.path.split("/")[-2]
            body = {**self.get(plural, name), "status": body["status"]}
        self.put(body, "MODIFIED")
        return msgspec.json.encode(self.get(plural, name))

    async def stream(
        self,
        request: Request,
        inactivity_seconds: float,  # noqa: ARG002 (the transport's signature)
    ) -> AsyncIterator[bytes]:
        """Yield what is there, and then what is put in."""
        plural = find_plural(request.path)
        queue = self._streams[plural] = asyncio.Queue()
        for line in self._listed.pop(plural, ()):
            yield line
        end = {"resourceVersion": "0", "annotations": {"k8s.io/initial-events-end": "true"}}
        yield msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": end}}) + b"\n"
        while True:
            yield await queue.get()


def measure() -> list[Figure]:
    """Time new jobs, and a start among queued ones."""
    # One line a job would be a thousand, and their writing is not what is measured.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    return [asyncio.run(measure_new()), asyncio.run(measure_start())]


async def measure_new() -> Figure:
    server = Server()
    server.put(build_runtime())
    caches, controller = build(server)
    stopping = asyncio.Event()
    watching = asyncio.create_task(caches.run())
    await caches.wait_until_synced()
    working = asyncio.create_task(controller.run(stopping))
    await asyncio.sleep(0)
    server.bodies.clear()
    start = time.process_time()
    for number in range(NEW_JOBS):
        name = f"job-{number}"
        server.put(build_job(name))
        await until(lambda name=name: server.has("jobsets", name))
        for _ in range(3):  # JobSet writes its status, Jobs begin
            server.put(server.get("jobsets", name), "MODIFIED")
            await asyncio.sleep(0)
    ours = (time.process_time() - start) / NEW_JOBS
    stopping.set()
    await working
    watching.cancel()
    await asyncio.wait([watching])
    start = time.process_time()
    for body in server.bodies:
        msgspec.json.encode(msgspec.json.decode(body))
    baseline = (time.process_time() - start) / NEW_JOBS
    return Figure(
        name="operator: a new job, without the network",
        ours=ours,
        baseline_name="the same JSON there and back",
        baseline=baseline,
        limit=0.004,
    )


async def measure_start() -> Figure:
    server = Server()
    server.put(build_runtime())
    caches, controller = build(server)
    # What one suspended job becomes is what all of them are, but for their names.
    server.put(build_job("job-original", suspend=True))
    watching, stopping = asyncio.create_task(caches.run()), asyncio.Event()
    await caches.wait_until_synced()
    working = asyncio.create_task(controller.run(stopping))
    await until(lambda: "status" in server.get("trainjobs", "job-original"))
    stopping.set()
    await working
    watching.cancel()
    await asyncio.wait([watching])
    first = server.get("trainjobs", "job-original")
    (snapshot,) = [obj for key, obj in server._objects.items() if key.startswith("configmaps/")]

    fresh = Server()
    fresh.put(build_runtime())
    fresh.put(snapshot)
    text = msgspec.json.encode(first)
    for number in range(QUEUED_JOBS):
        queued = msgspec.json.decode(text.replace(b"job-original", f"job-{number}".encode()))
        fresh.put({**queued, "metadata": {**queued["metadata"], "uid": f"q-{number}"}})
    bodies = fresh.bodies
    caches, controller = build(fresh)
    start = time.process_time()
    watching, stopping = asyncio.create_task(caches.run()), asyncio.Event()
    await caches.wait_until_synced()
    working = asyncio.create_task(controller.run(stopping))
    await asyncio.sleep(0)
    await until(lambda: not controller.count_waiting())
    ours = time.process_time() - start
    if fresh.writes:
        raise RuntimeError(f"{fresh.writes} writes for jobs at rest")
    stopping.set()
    await working
    watching.cancel()
    await asyncio.wait([watching])
    start = time.process_time()
    for body in bodies:
        msgspec.json.decode(body)
    return Figure(
        name="operator: start among 50,000 queued jobs, each looked at",
        ours=ours,
        baseline_name="decoding them",
        baseline=time.process_time() - start,
        limit=20.0,
    )


async def until(condition: Callable[[], bool]) -> None:
    """Let the operator work until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0)


def build(server: Server) -> tuple[Caches, TrainJobController]:
    caches = Caches(server)
    cluster = KubeCluster(server, "trainer")
    return caches, TrainJobController(caches, cluster, lambda: NOW, 16, Metrics())


def build_runtime() -> Json:
    runtime = build_object(load_shipped_runtimes()["torch-distributed"])
    return {**runtime, "metadata": {**runtime["metadata"], "uid": "r", "generation": 1}}


def build_job(name: str, *, suspend: bool = False) -> Json:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:trainer": {}}}}],
        },
        "spec": {
            "runtimeRef": {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"},
            "suspend": suspend,
            "trainer": {
                "numNodes": 4,
                "command": ["torchrun", "train.py"],
                "args": ["--epochs", "3"],
                "env": [{"name": "LR", "value": "0.1"}],
            },
        },
    }
