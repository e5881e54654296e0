"""Queues, quotas and Workloads of one namespace, and jobs that go through them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from kube.kueue import (
    API,
    PRIORITY_LABEL,
    QUEUE_LABEL,
    build_cluster_queue,
    build_flavor,
    build_local_queue,
    build_priority_class,
)
from kube.kwok import EXIT_CODE
from kube.operating import PATIENCE_SECONDS, People, condition, eventually, train_job
from trainwright.api.meta import Json
from trainwright.cluster.kube.errors import ApiError
from trainwright.cluster.kube.requests import JSON, MERGE_PATCH, Request, build_create
from trainwright.cluster.kube.transport import AiohttpTransport
from trainwright.errors import NotFound

QUEUE = "q"
ONE_CPU: Json = {"resourcesPerNode": {"requests": {"cpu": "1"}}}
# What the machines of a flavor need of a pod.
FLAVORS: Mapping[str, Json] = {
    "blue": {"nodeLabels": {"pool": "blue"}},
    "green": {
        "nodeLabels": {"pool": "green"},
        "tolerations": [{"key": "pool", "operator": "Equal", "value": "green", "effect": "NoSchedule"}],
    },
}


class Queues:
    """Whoever sets up the queues of a namespace, and looks at its Workloads."""

    def __init__(self, transport: AiohttpTransport, people: People) -> None:
        self._transport = transport
        self._people = people
        self.namespace = people.namespace
        self._made: list[str] = []

    async def add(
        self,
        quotas: Mapping[str, Mapping[str, str]],
        flavors: Mapping[str, Json] = FLAVORS,
        **spec: Any,
    ) -> None:
        """Add the queue `q` with quotas by flavor and resource; wait until Kueue admits through it."""
        own = {self.flavor(name): quota for name, quota in quotas.items()}
        for name in quotas:
            await self.create(build_flavor(self.flavor(name), **flavors[name]))
        await self.create(build_cluster_queue(self.namespace, own, **spec))
        await self.create(build_local_queue(QUEUE, self.namespace))
        for path in (self.path("ClusterQueue", self.namespace), self.path("LocalQueue", QUEUE)):
            await self._until_active(path)

    async def add_runtime(self, made: Json) -> None:
        """Add a runtime; wait until Kueue has heard of it, whose webhook refuses all TrainJobs of others."""
        await self._people.create(made)
        await self._until_runtime(made["metadata"]["name"], is_there=True)

    async def remove_runtime(self, name: str) -> None:
        """Delete a runtime; wait until Kueue has heard of that."""
        await self._people.delete("TrainingRuntime", name)
        await self._until_runtime(name, is_there=False)

    async def _until_runtime(self, name: str, *, is_there: bool) -> None:
        probe = train_job("probe", name, {"namespace": self.namespace})

        async def is_known() -> bool:
            try:
                await self._transport.request(build_create(probe, dry_run=True))
            except ApiError as error:
                return (f"runtime '{name}' not found" not in str(error)) is is_there
            return is_there

        await eventually(is_known)

    async def _until_active(self, path: str) -> None:
        """Wait until Kueue works with a queue as it is: it learns of queues and of jobs in any order."""

        async def is_active() -> bool:
            queue = await self.get(path)
            active = condition(queue.get("status") or {}, "Active") or {}
            is_current = active.get("observedGeneration") == queue["metadata"]["generation"]
            return is_current and active["status"] == "True"

        await eventually(is_active)

    async def set_quotas(self, **cpus: str) -> None:
        """Change the quotas of the queue, by flavor; wait until Kueue admits by them."""
        path = self.path("ClusterQueue", self.namespace)
        (group,) = (await self.get(path))["spec"]["resourceGroups"]
        quotas = {self.flavor(name): cpu for name, cpu in cpus.items()}
        flavors = [
            {**flavor, "resources": [{"name": "cpu", "nominalQuota": quotas[flavor["name"]]}]}
            for flavor in group["flavors"]
        ]
        merge = {"spec": {"resourceGroups": [{**group, "flavors": flavors}]}}
        await self.request("PATCH", path, merge, MERGE_PATCH)
        await self._until_active(path)

    async def add_priorities(self, **values: int) -> None:
        for name, value in values.items():
            await self.create(build_priority_class(self.priority(name), value))

    def flavor(self, name: str) -> str:
        """Flavors are of the whole cluster; those of a test carry its name."""
        return f"{self.namespace}-{name}"

    def priority(self, name: str) -> str:
        return f"{self.namespace}-{name}"

    def job(self, name: str = "demo", priority: str | None = None, **spec: Any) -> Json:
        """A TrainJob of the runtime `plain` for the queue; each node asks for a CPU."""
        labels = {QUEUE_LABEL: QUEUE, **({PRIORITY_LABEL: self.priority(priority)} if priority else {})}
        trainer = {**ONE_CPU, **spec.pop("trainer", {})}
        return train_job(name, metadata={"labels": labels}, trainer=trainer, **spec)

    # -- Workloads ---------------------------------------------------------------------------------------

    async def workloads(self) -> list[Json]:
        listed = await self.get(self.path("Workload"))
        return list(listed["items"])

    async def workload(self, name: str = "demo") -> Json | None:
        """The Workload of a TrainJob that is not being deleted."""
        for workload in await self.workloads():
            owners = workload["metadata"].get("ownerReferences", ())
            is_going = "deletionTimestamp" in workload["metadata"]
            if not is_going and any(o["kind"] == "TrainJob" and o["name"] == name for o in owners):
                return workload
        return None

    async def until_workload(
        self,
        condition: Callable[[Json], Any],
        name: str = "demo",
        seconds: float = PATIENCE_SECONDS,
    ) -> Json:
        """Return the Workload of a TrainJob once it fulfils the condition."""
        last: Json | None = None

        async def is_so() -> Json | None:
            nonlocal last
            last = await self.workload(name)
            return last if last is not None and condition(last) else None

        try:
            found: Json = await eventually(is_so, seconds)
        except AssertionError:
            raise AssertionError(f"the Workload stays {json.dumps(last, indent=1)}") from None
        return found

    async def until(self, type_: str, status: str = "True", name: str = "demo") -> Json:
        """Return the Workload once it has the condition."""
        return await self.until_workload(lambda workload: has(workload, type_, status), name)

    async def edit(self, name: str, merge: Json) -> Json:
        """Change the Workload of a TrainJob."""
        workload = await self.until_workload(lambda _: True, name)
        path = self.path("Workload", workload["metadata"]["name"])
        return await self.request("PATCH", path, merge, MERGE_PATCH)

    # -- what its pods do --------------------------------------------------------------------------------

    async def finish(self, name: str, count: int, exit_code: int = 0) -> None:
        """Let the pods of a job end."""
        for pod in await self._people.until_pods(count, name):
            annotations = {EXIT_CODE: str(exit_code)}
            await self._people.edit(
                {"metadata": {"annotations": annotations}}, "Pod", pod["metadata"]["name"]
            )

    # -- requests ----------------------------------------------------------------------------------------

    def path(self, kind: str, name: str = "") -> str:
        plural = {"WorkloadPriorityClass": "workloadpriorityclasses", "Topology": "topologies"}.get(
            kind, f"{kind.lower()}s"
        )
        here = f"/namespaces/{self.namespace}" if kind in ("Workload", "LocalQueue") else ""
        return f"/apis/{API}{here}/{plural}" + (f"/{name}" if name else "")

    async def create(self, obj: Json) -> Json:
        path = self.path(obj["kind"])
        if obj["kind"] != "LocalQueue":
            self._made.append(f"{path}/{obj['metadata']['name']}")
        return await self.request("POST", path, obj)

    async def get(self, path: str) -> Json:
        return await self.request("GET", path)

    async def delete(self, path: str) -> None:
        with contextlib.suppress(NotFound):
            await self.request("DELETE", path)

    async def request(
        self, method: str, path: str, body: Json | None = None, content_type: str = JSON
    ) -> Json:
        content = None if body is None else json.dumps(body).encode()
        answer = await self._transport.request(
            Request(method=method, path=path, body=content, content_type=content_type)
        )
        return dict(json.loads(answer))

    async def remove_all(self) -> None:
        """Remove what is not in the namespace; Kueue holds it, unseen, until nobody uses it."""
        for path in reversed(self._made):
            with contextlib.suppress(ApiError):
                await self.delete(path)


def has(obj: Json, type_: str, status: str = "True") -> bool:
    """Say whether the object has a condition."""
    conditions = obj.get("status", {}).get("conditions", ())
    return any(c["type"] == type_ and c["status"] == status for c in conditions)


def list_pod_sets(workload: Json) -> dict[str, int]:
    """The number of pods by replicated job, as Kueue counts them."""
    return {pod_set["name"]: pod_set["count"] for pod_set in workload["spec"]["podSets"]}
