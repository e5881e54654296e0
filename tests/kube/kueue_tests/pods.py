"""What happened to the pods of a namespace while a block ran: a test of a race looks at all of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from fractions import Fraction

from kube.operating import PATIENCE_SECONDS, People
from trainwright.api.meta import Json
from trainwright.api.quantity import parse_quantity
from trainwright.cluster.port import ChangeType

JOB_SET_LABEL = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
_LAST = "last"  # the name of a pod


class SeenPods:
    """Every pod since the block began, by uid, as it was last seen.

    `most_cpus` is the most that pods which had not ended asked for at one time; those in their grace period
    hold what they have.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Json] = {}
        self.most_cpus = Fraction(0)
        self._held: dict[str, Fraction] = {}
        self._given_up: set[str] = set()

    def give_up(self, job: str) -> None:
        """Count the pods of a TrainJob no more, which somebody deletes: Kueue does not wait for them."""
        self._given_up.add(job)
        for uid, pod in self.pods.items():
            if pod["metadata"]["labels"].get(JOB_SET_LABEL) == job:
                self._held[uid] = Fraction(0)

    def see(self, pod: Json, *, is_gone: bool) -> None:
        uid = pod["metadata"]["uid"]
        self.pods[uid] = pod
        has_ended = is_gone or pod["status"].get("phase") in ("Succeeded", "Failed")
        is_free = has_ended or pod["metadata"]["labels"].get(JOB_SET_LABEL) in self._given_up
        self._held[uid] = Fraction(0) if is_free else sum_requests(pod["spec"]).get("cpu", Fraction(0))
        self.most_cpus = max(self.most_cpus, sum(self._held.values(), Fraction(0)))

    def of(self, job: str, replicated_job: str = "node") -> list[Json]:
        """The pods that a replicated job of a TrainJob ever had."""
        return [
            pod
            for pod in self.pods.values()
            if pod["metadata"]["labels"].get(JOB_SET_LABEL) == job
            and pod["metadata"]["labels"].get(REPLICATED_JOB_LABEL) == replicated_job
        ]


@contextlib.asynccontextmanager
async def watching_pods(people: People) -> AsyncIterator[SeenPods]:
    """Remember what happens to the pods of the namespace; there is none yet.

    After the block everything was seen that happened in it: changes come in order, and one that is made at
    the end is waited for.
    """
    seen = SeenPods()
    version = (await people.cluster.list("Pod", people.namespace)).resource_version

    async def follow() -> None:
        async with contextlib.aclosing(people.cluster.watch(["Pod"], people.namespace, version)) as changes:
            async for change in changes:
                if change.object["metadata"]["name"] == _LAST:
                    return
                seen.see(change.object, is_gone=change.type is ChangeType.DELETED)

    task = asyncio.create_task(follow(), name="watching pods")
    try:
        yield seen
        await people.create(_build_last_pod())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await task
        await people.delete("Pod", _LAST)
    finally:
        task.cancel()
        await asyncio.wait([task])


def _build_last_pod() -> Json:
    """A pod that no scheduler looks at."""
    spec = {"schedulerName": "nobody", "containers": [{"name": "none", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": _LAST}, "spec": spec}


def sum_requests(pod_spec: Json) -> dict[str, Fraction]:
    """What a pod asks for: its containers and sidecars together, or the largest init container."""
    init = pod_spec.get("initContainers") or []
    sidecars = [container for container in init if container.get("restartPolicy") == "Always"]
    total: dict[str, Fraction] = {}
    for container in (*pod_spec["containers"], *sidecars):
        for resource, amount in list_requests(container).items():
            total[resource] = total.get(resource, Fraction(0)) + amount
    for container in init:
        for resource, amount in list_requests(container).items():
            total[resource] = max(total.get(resource, Fraction(0)), amount)
    return total


def list_requests(container: Json) -> dict[str, Fraction]:
    """What a container asks for; a limit is a request where there is none."""
    resources = container.get("resources") or {}
    amounts = {**resources.get("limits", {}), **resources.get("requests", {})}
    return {resource: parse_quantity(amount).exact() for resource, amount in amounts.items()}
