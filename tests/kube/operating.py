"""An operator in the process of the test, and the people and machines around it.

In: a control plane with the CRDs. Out: an `Operator` that runs, every request that it sent, and short ways to
make jobs and to play the kubelet, which nobody else does here.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import Any

from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.config import Connection
from trainwright.cluster.kube.requests import Request
from trainwright.cluster.kube.transport import AiohttpTransport, AnswerListener
from trainwright.errors import NotFound
from trainwright.frameworks import FRAMEWORKS, Framework
from trainwright.operator.configuration import (
    CertManagementSettings,
    Configuration,
    HealthSettings,
    MetricsSettings,
    WebhookSettings,
)
from trainwright.operator.process import Operator, Settings

API_VERSION = "trainer.kubeflow.org/v1alpha1"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
PATIENCE_SECONDS = 30.0

# Nothing listens where others might, and no certificate is made.
SILENT = {
    "webhook": WebhookSettings(host="127.0.0.1", port=0),
    "cert_management": CertManagementSettings(enable=False),
    "health": HealthSettings(health_probe_bind_address="0"),
    "metrics": MetricsSettings(bind_address="0"),
}


class Crash(BaseException):  # no bug that a worker survives
    """Stands for the end of the process, between two writes."""


class RecordingTransport(AiohttpTransport):
    """Remembers what was sent. `dies_before` is the number of the write that the process does not live to."""

    def __init__(self, connection: Connection, listener: AnswerListener | None = None) -> None:
        super().__init__(connection, listener)
        self.requests: list[Request] = []
        self.dies_before: int | None = None

    @property
    def writes(self) -> list[str]:
        """The writes, as `PATCH trainjobs/demo/status`, without those of leases."""
        return [describe(request) for request in self.requests if is_write(request)]

    @property
    def reads(self) -> list[str]:
        """The reads of single objects, without the definitions, which are looked at once at the start."""
        return [
            describe(request)
            for request in self.requests
            if request.method == "GET" and "/customresourcedefinitions/" not in request.path
        ]

    async def request(self, request: Request) -> bytes:
        if is_write(request) and self.dies_before is not None and len(self.writes) >= self.dies_before:
            raise Crash
        self.requests.append(request)
        return await super().request(request)


def is_write(request: Request) -> bool:
    return request.method != "GET" and "/leases" not in request.path


def describe(request: Request) -> str:
    return f"{request.method} {request.path.split('/namespaces/', 1)[-1].split('/', 1)[-1]}"


class Running:
    """A running operator."""

    def __init__(self, operator: Operator, stopping: asyncio.Event) -> None:
        self.operator = operator
        self.transport: RecordingTransport
        self._stopping = stopping
        self.task: asyncio.Task[None]

    def stop(self) -> None:
        self._stopping.set()

    def is_leading(self) -> bool:
        return self.operator.is_leading


@contextlib.asynccontextmanager
async def operating(
    connection: Connection,
    namespace: str | None,
    *,
    configuration: Configuration | None = None,
    dies_before: int | None = None,
    waits: bool = True,
    clock: Callable[[], datetime] | None = None,
    frameworks: tuple[Framework, ...] = FRAMEWORKS,
) -> AsyncIterator[Running]:
    """Run an operator for one namespace until the block ends; `waits` until it works."""
    stopping = asyncio.Event()

    def connect(connection: Connection, listener: AnswerListener) -> RecordingTransport:
        running.transport = RecordingTransport(connection, listener)
        running.transport.dies_before = dies_before
        return running.transport

    settings = Settings(
        configuration=configuration or Configuration(**SILENT),
        connection=connection,
        identity=f"operator-{uuid.uuid4().hex[:6]}",
        namespace=namespace,
        frameworks=frameworks,
    )
    running = Running(Operator(settings, connect, clock), stopping)
    running.task = asyncio.create_task(running.operator.run(stopping), name="operator")
    try:
        if waits:
            await eventually(lambda: _is(running.is_leading() or running.task.done()))
        yield running
    finally:
        stopping.set()
        _, late = await asyncio.wait([running.task], timeout=10)
        for task in late:
            task.cancel()
            await asyncio.wait([task])
    if not running.task.cancelled() and (error := running.task.exception()) is not None:
        raise error


async def _is(value: bool) -> bool:
    return value


async def eventually(condition: Callable[[], Awaitable[Any]], seconds: float = PATIENCE_SECONDS) -> Any:
    """Return the first true value of the condition."""
    last: Any = None
    try:
        async with asyncio.timeout(seconds):
            while not (last := await condition()):  # noqa: ASYNC110 (the world is elsewhere)
                await asyncio.sleep(0.03)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s; last: {last!r}") from None
    return last


class People:
    """Users, JobSet's pods and whoever looks, in one namespace.

    Pods of runtimes that are made here are for `scheduler`, if one is named.
    """

    def __init__(self, transport: AiohttpTransport, namespace: str, scheduler: str = "") -> None:
        self.cluster = KubeCluster(transport, "kubectl")
        self.namespace = namespace
        self._scheduler = scheduler

    def key(self, kind: str, name: str = "demo") -> ObjectKey:
        return ObjectKey(kind, self.namespace, name)

    async def create(self, obj: Json) -> Json:
        metadata = {"namespace": self.namespace, **obj["metadata"]}
        if self._scheduler:
            obj = _give_pods_to(self._scheduler, obj)
        return await self.cluster.create({**obj, "metadata": metadata})

    async def find(self, kind: str, name: str = "demo") -> Json | None:
        try:
            return await self.cluster.get(self.key(kind, name))
        except NotFound:
            return None

    async def list(self, kind: str) -> list[Json]:
        return (await self.cluster.list(kind, self.namespace)).items

    async def edit(self, merge: Json, kind: str = "TrainJob", name: str = "demo") -> Json:
        return await self.cluster.patch(self.key(kind, name), merge)

    async def delete(self, kind: str, name: str = "demo") -> None:
        await self.cluster.delete(self.key(kind, name))

    async def status(self, name: str = "demo") -> Json:
        job = await self.find("TrainJob", name)
        return (job or {}).get("status") or {}

    async def until_status(
        self, condition: Callable[[Json], Any], name: str = "demo", seconds: float = PATIENCE_SECONDS
    ) -> Json:
        """Return the status of a TrainJob once it fulfils the condition."""
        last: Json = {}

        async def is_so() -> Json | None:
            nonlocal last
            last = await self.status(name)
            return last if condition(last) else None

        try:
            found: Json = await eventually(is_so, seconds)
        except AssertionError:
            raise AssertionError(f"the status stays {json.dumps(last, indent=1)}") from None
        return found

    async def until_phase(self, phase: str, name: str = "demo") -> Json:
        return await self.until_status(lambda status: status.get("phase") == phase, name)

    async def until_found(self, kind: str, name: str = "demo") -> Json:
        return await eventually(lambda: self.find(kind, name))

    async def until_gone(self, kind: str, name: str = "demo") -> None:
        async def is_gone() -> bool:
            return await self.find(kind, name) is None

        await eventually(is_gone)

    async def until_pods(self, count: int, job_set: str = "demo") -> list[Json]:
        """Return the pods once there are so many that are not being deleted.

        All of them are of the JobSet and the Jobs that are there now: those that were deleted leave theirs
        behind for a moment, which are not the ones that a test wants to play.
        """

        async def are_there() -> tuple[list[Json]] | None:
            labels = {"jobset.sigs.k8s.io/jobset-name": job_set}
            pods = (await self.cluster.list("Pod", self.namespace, labels)).items
            live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
            if len(live) != count:
                return None
            owners = {job["metadata"]["uid"] for job in await self._list_jobs(job_set, labels)}
            of_these = all(_find_controller(pod) in owners for pod in live)
            return (live,) if of_these else None

        (found,) = await eventually(are_there)
        return list(found)

    async def _list_jobs(self, job_set: str, labels: dict[str, str]) -> list[Json]:
        """Return the Jobs of a JobSet that is there, without those that are being deleted."""
        present = await self.find("JobSet", job_set)
        jobs = (await self.cluster.list("Job", self.namespace, labels)).items
        return [
            job
            for job in jobs
            if "deletionTimestamp" not in job["metadata"]
            and present is not None
            and _find_controller(job) == present["metadata"]["uid"]
        ]

    async def set_pods(self, phase: str, count: int, *, exit_code: int = 0, message: str = "") -> None:
        """Play the kubelet: every pod is in that phase."""
        for pod in await self.until_pods(count):
            await self.set_pod(pod, phase, exit_code=exit_code, message=message)

    async def set_pod(self, pod: Json, phase: str, *, exit_code: int = 0, message: str = "") -> None:
        now = "2026-01-01T00:00:00Z"
        is_running = phase == "Running"
        state: Json = {"running": {"startedAt": now}}
        if not is_running:
            ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
            state = {"terminated": {**ended, "startedAt": now, "finishedAt": now, "message": message}}
        statuses = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": is_running,
                "restartCount": 0,
                "state": state,
            }
            for container in pod["spec"]["containers"]
        ]
        conditions = [{"type": "Ready", "status": str(is_running), "lastTransitionTime": now}]
        status = {"phase": phase, "conditions": conditions, "containerStatuses": statuses}
        await self.cluster.patch_status(self.key("Pod", pod["metadata"]["name"]), {"status": status})


def _find_controller(obj: Json) -> str:
    """Return the uid of the controlling owner."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def _give_pods_to(scheduler: str, obj: Json) -> Json:
    """Return a runtime or a JobSet whose pods are for a scheduler; other objects as they are."""
    changed: Json = copy.deepcopy(obj)
    spec = changed.get("spec") or {}
    holder = ((spec.get("template") or {}).get("spec") or {}) if obj["kind"].endswith("Runtime") else spec
    for job in holder.get("replicatedJobs") or ():
        job["template"]["spec"]["template"]["spec"]["schedulerName"] = scheduler
    return changed


def runtime(name: str = "plain", nodes: int = 1, **template: Any) -> Json:
    """A TrainingRuntime with one step whose pods do not restart."""
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "node", "image": "registry.example/train:1", "command": ["train"]}],
    }
    job = {
        "metadata": {"labels": {ANCESTOR: "trainer"}},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": {"name": name},
        "spec": {
            "mlPolicy": {"numNodes": nodes},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": job}], **template}},
        },
    }


def train_job(name: str = "demo", runtime: str = "plain", metadata: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"runtimeRef": {"name": runtime, "kind": "TrainingRuntime"}, **spec},
    }


def condition(status: Json, type_: str) -> Json | None:
    return next((c for c in status.get("conditions") or () if c["type"] == type_), None)
