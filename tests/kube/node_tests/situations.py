"""Jobs in trouble, all at once on the real node, and what the shell around `decide` makes of each.

In: `Situation`s. Out: for each the TrainJob as it stood at the end, every cause that it had, in order, and
how often its status was written.
Each situation has a namespace, a TrainingRuntime and a TrainJob of its own. They run side by side, since most
of the time is spent waiting. No operator runs: after every change in the cluster `reconcile` does one pass,
so a cause is seen that is there for a moment only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kube.cluster import Cluster
from kube.node_tests.training import connect, follow
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.trainjob import Cause, TrainJob, TrainJobStatus
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.transport import Transport
from trainwright.cluster.reconcile import reconcile
from trainwright.control.status import find_finished_condition

API_VERSION = "trainer.kubeflow.org/v1alpha1"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
RUNTIME = "troubled"
# The kubelet looks at the disk use of containers every 10 s, and pulls again after 10 s. All pods start at
# once: on two cores that have other work the last of them came to rest after 88 s.
PATIENCE_SECONDS = 300.0
LOOK_SECONDS = 30.0  # at least so often, whether anything changed or not

Act = Callable[[Cluster, str, Sequence[Json]], None]


@dataclass(frozen=True)
class Situation:
    """One way to be in trouble, and where the cause is to be found.

    `container`, `pod`, `job` and `job_set` are laid over those of the runtime, `train_job` over the
    TrainJob's spec. `objects` are made first. `act` is done once every pod runs. `message` is what must be in
    the cause's message, every piece of it. `failed` is the reason of Failed, None for a job that waits;
    `goes_on` marks one that works again in between. A job that waits is followed until its pods have failed
    `failures` times in place. It comes to rest within `seconds`.
    """

    layer: str
    kind: str
    reason: str
    message: tuple[str, ...] = ()
    failed: str | None = None
    goes_on: bool = False
    container: Json = field(default_factory=dict)
    pod: Json = field(default_factory=dict)
    job: Json = field(default_factory=dict)
    job_set: Json = field(default_factory=dict)
    initializer: Json | None = None
    train_job: Json = field(default_factory=dict)
    name: str = "demo"
    labels: Mapping[str, str] = field(default_factory=dict)
    objects: tuple[Json, ...] = ()
    act: Act | None = None
    failures: int = 0
    seconds: float = PATIENCE_SECONDS


@dataclass
class Observed:
    """What came of a situation. `causes` has one entry per change of the cause, None where it went away.

    `status_writes` were sent until the job came to rest.
    """

    status: TrainJobStatus
    causes: list[Cause | None] = field(default_factory=list)
    status_writes: int = 0
    seconds: float = 0.0

    @property
    def trail(self) -> list[tuple[str, str] | None]:
        """Layer and reason of each cause, without repetitions."""
        steps = [(cause.layer, cause.reason) if cause else None for cause in self.causes]
        return [step for number, step in enumerate(steps) if number == 0 or step != steps[number - 1]]


class CountingCluster(KubeCluster):
    """The port, with a count of the statuses written in each namespace."""

    def __init__(self, transport: Transport, field_manager: str) -> None:
        super().__init__(transport, field_manager)
        self.status_writes: Counter[str] = Counter()

    async def patch_status(self, key: ObjectKey, merge: Json) -> Json:
        self.status_writes[key.namespace] += 1
        return await super().patch_status(key, merge)


def observe_all(
    cluster: Cluster, situations: Mapping[str, Situation], make_namespace: Callable[..., str]
) -> dict[str, Observed]:
    """Bring about all situations at once and return what came of each, when the last has come to rest."""
    return asyncio.run(_Observation(cluster, make_namespace).run(situations))


class _Observation:
    def __init__(self, cluster: Cluster, make_namespace: Callable[..., str]) -> None:
        self._cluster = cluster
        self._make_namespace = make_namespace
        self._changed: dict[str, asyncio.Event] = {}
        self._unsettled: set[str] = set()
        self._all_settled = asyncio.Event()

    async def run(self, situations: Mapping[str, Situation]) -> dict[str, Observed]:
        self._unsettled = set(situations)
        async with connect(self._cluster, CountingCluster) as kube, asyncio.TaskGroup() as group:
            watching = group.create_task(follow(kube, None, self._wake), name="follow")
            living = {
                name: group.create_task(self._live(kube, name, situation), name=name)
                for name, situation in situations.items()
            }
            await asyncio.wait(living.values())
            watching.cancel()
        return {name: task.result() for name, task in living.items()}

    def _wake(self, obj: Json | None) -> None:
        namespace = obj["metadata"].get("namespace", "") if obj else None
        for name, changed in self._changed.items():
            if namespace in (None, name):
                changed.set()

    async def _live(self, kube: CountingCluster, name: str, situation: Situation) -> Observed:
        namespace = await asyncio.to_thread(self._make_namespace, **situation.labels)
        changed = self._changed[namespace] = asyncio.Event()
        for obj in build_objects(situation, namespace, self._cluster.image):
            await asyncio.to_thread(self._create, obj)
        key = ObjectKey("TrainJob", namespace, situation.name)
        observed = Observed(TrainJobStatus())
        loop = asyncio.get_running_loop()
        began = loop.time()
        acted = situation.act is None
        while not self._all_settled.is_set():
            again = await reconcile(kube, key, lambda: datetime.now(UTC))
            self._note(observed, parse_object(await kube.get(key), TrainJob))
            if not acted:
                acted = await self._act(kube, situation, namespace)
            elapsed = loop.time() - began
            if name in self._unsettled and (_is_settled(situation, observed) or elapsed > situation.seconds):
                observed.seconds = elapsed
                observed.status_writes = kube.status_writes[namespace]
                self._settle(name)
            await self._wait(changed, min(again or LOOK_SECONDS, LOOK_SECONDS))
        return observed

    async def _act(self, kube: KubeCluster, situation: Situation, namespace: str) -> bool:
        pods = (await kube.list("Pod", namespace)).items
        if not pods or any(pod["status"]["phase"] != "Running" for pod in pods):
            return False
        assert situation.act is not None
        await asyncio.to_thread(situation.act, self._cluster, namespace, pods)
        return True

    async def _wait(self, changed: asyncio.Event, seconds: float) -> None:
        """Wait for a change in the namespace, for the time to look again, or for the end of all."""
        waits = [
            asyncio.create_task(changed.wait(), name="change"),
            asyncio.create_task(self._all_settled.wait(), name="end"),
        ]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await wait
        changed.clear()

    def _note(self, observed: Observed, job: TrainJob) -> None:
        observed.status = job.status or TrainJobStatus()
        cause = observed.status.cause
        if (cause is not None or observed.causes) and [cause] != observed.causes[-1:]:
            observed.causes.append(cause)

    def _settle(self, name: str) -> None:
        self._unsettled.discard(name)
        if not self._unsettled:
            self._all_settled.set()

    def _create(self, obj: Json) -> None:
        metadata = obj["metadata"]
        group = "" if obj["apiVersion"] == "v1" else "s"
        prefix = f"/api{group}/{obj['apiVersion']}/namespaces/{metadata['namespace']}"
        self._cluster.call("POST", f"{prefix}/{obj['kind'].lower()}s", obj)


def build_objects(situation: Situation, namespace: str, image: str) -> list[Json]:
    """Return what is made for a situation, in order; the TrainJob comes last."""
    objects = [{**obj, "metadata": {**obj["metadata"], "namespace": namespace}} for obj in situation.objects]
    return [*objects, _build_runtime(situation, namespace, image), _build_train_job(situation, namespace)]


def _build_runtime(situation: Situation, namespace: str, image: str) -> Json:
    jobs = [_build_replicated_job("node", "trainer", situation, {"image": image, **situation.container})]
    if situation.initializer is not None:
        name = "dataset-initializer"
        first = _build_replicated_job(name, name, situation, {"image": image, **situation.initializer})
        jobs = [first, {**jobs[0], "dependsOn": [{"name": name, "status": "Complete"}]}]
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": {"namespace": namespace, "name": RUNTIME},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {"replicatedJobs": jobs, **situation.job_set}},
        },
    }


def _build_replicated_job(name: str, step: str, situation: Situation, container: Json) -> Json:
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2,
        "containers": [{"name": name, **container}],
        **situation.pod,
    }
    return {
        "name": name,
        "template": {
            "metadata": {"labels": {ANCESTOR: step}},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}, **situation.job},
        },
    }


def _build_train_job(situation: Situation, namespace: str) -> Json:
    ref = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": RUNTIME}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": {"namespace": namespace, "name": situation.name},
        "spec": {"runtimeRef": ref, **situation.train_job},
    }


def _is_settled(situation: Situation, observed: Observed) -> bool:
    """Say whether the job has come to where it stays: failed, or with the cause for which it waits."""
    finished = find_finished_condition(observed.status)
    if situation.failed is not None:
        return finished is not None
    cause = observed.status.cause
    if situation.failures and f"failed {situation.failures} times" not in (cause.message if cause else ""):
        return finished is not None
    return finished is not None or (cause is not None and cause.reason == situation.reason)


def delete_pods(cluster: Cluster, namespace: str, pods: Sequence[Json]) -> None:
    """Delete pods, as somebody does by hand."""
    for pod in pods:
        cluster.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")


def need_the_room(cluster: Cluster, namespace: str, pods: Sequence[Json]) -> None:
    """Make a pod of the highest priority that needs all processors of the node but half a one."""
    [node] = cluster.call("GET", "/api/v1/nodes")["items"]
    processors = int(node["status"]["allocatable"]["cpu"])
    container = {
        "name": "node",
        "image": cluster.image,
        "command": ["sleep", "300"],
        "resources": {"requests": {"cpu": f"{processors * 1000 - 500}m"}},
    }
    spec = {"priorityClassName": "system-node-critical", "containers": [container]}
    cluster.call(
        "POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "urgent"}, "spec": spec}
    )


def evict_pods(cluster: Cluster, namespace: str, pods: Sequence[Json]) -> None:
    """Evict pods, as a drain of their node does."""
    for pod in pods:
        name = pod["metadata"]["name"]
        eviction: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
        }
        cluster.call("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)
