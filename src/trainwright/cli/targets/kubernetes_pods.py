"""The pods of one job on a cluster: list them, see them change, wait until they are gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

import msgspec

from trainwright.api.constants import (
    COMPLETION_INDEX,
    JOB_INDEX,
    JOB_SET,
    JOBSET_NAME,
    JOBSET_UID,
    LAUNCHER,
    NODE,
    SLICE_NODES,
)
from trainwright.api.constants import REPLICATED_JOB_NAME as STEP
from trainwright.api.core import ContainerStatus, Pod
from trainwright.api.encoding import parse_object
from trainwright.api.meta import ObjectKey, ObjectMeta, is_controlled_by
from trainwright.cluster.kube.errors import ExpiredError, is_retryable
from trainwright.cluster.kube.requests import build_watch
from trainwright.cluster.kube.transport import Transport
from trainwright.cluster.kube.watch import stream_events
from trainwright.cluster.port import Cluster
from trainwright.errors import Forbidden, NotFound
from trainwright.template.replicated_jobs import find_container

ENDED_PHASES = frozenset({"Succeeded", "Failed"})
_LOOK_AGAIN_SECONDS = 0.2
_TELL_AFTER_SECONDS = 10.0

_DECODER = msgspec.json.Decoder(dict[str, object])


class PodChange(msgspec.Struct, frozen=True):
    """All pods by uid, as they are now, and those that are other than before; `pods` is not to be kept."""

    pods: Mapping[str, Pod]
    changed: Sequence[Pod]


class PodReader:
    """Reads the pods that carry the name of a job's JobSet."""

    def __init__(self, cluster: Cluster, transport: Transport) -> None:
        self._cluster = cluster
        self._transport = transport

    async def list_pods(self, meta: ObjectMeta) -> list[Pod]:
        """Return the pods of this job, not those of another that had or has its name."""
        namespace = meta.namespace or ""
        found = await self._cluster.list("Pod", namespace, {JOBSET_NAME: meta.name})
        foreign = await self._find_foreign_job_set(meta)
        pods = [parse_object(body, Pod) for body in found.items]
        return [pod for pod in pods if not foreign or (pod.metadata.labels or {}).get(JOBSET_UID) != foreign]

    async def watch_pods(self, meta: ObjectMeta) -> AsyncGenerator[PodChange, None]:
        """Yield the pods now and after each change, until the caller stops."""
        while True:
            listed = await self._cluster.list("Pod", meta.namespace, {JOBSET_NAME: meta.name})
            pods = {body["metadata"]["uid"]: parse_object(body, Pod) for body in listed.items}
            yield PodChange(pods, list(pods.values()))
            version = listed.resource_version
            try:
                while True:
                    request = build_watch("Pod", meta.namespace, version, labels={JOBSET_NAME: meta.name})
                    async with aclosing(stream_events(self._transport, request)) as events:
                        async for event in events:
                            body = _DECODER.decode(event.object)
                            pod = parse_object({"apiVersion": "v1", "kind": "Pod", **body}, Pod)
                            version = pod.metadata.resource_version or version
                            if event.type == "BOOKMARK":
                                continue
                            if event.type == "DELETED":
                                pods.pop(pod.metadata.uid or "", None)
                                yield PodChange(pods, ())
                            else:
                                pods[pod.metadata.uid or ""] = pod
                                yield PodChange(pods, (pod,))
            except ExpiredError:
                continue
            except Exception as error:
                # A list fails in the same way where the trouble lasts, and then the caller is told.
                if not is_retryable(error):
                    raise
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    async def wait_until_ended(self, meta: ObjectMeta, tell: Callable[[str], None]) -> None:
        """Wait until no container of the job runs: its pods have ended, or are gone."""
        await self._wait(meta, tell, lambda pod: pod.status.phase not in ENDED_PHASES)

    async def wait_until_gone(self, meta: ObjectMeta, tell: Callable[[str], None]) -> None:
        """Wait until a deleted job's JobSet and pods are gone."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        told = False
        while await self._find_own_job_set(meta):
            if not told and loop.time() - started > _TELL_AFTER_SECONDS:
                told = True
                tell(f"waiting until the JobSet of {meta.name} is deleted")
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        await self._wait(meta, tell, lambda _: True)

    async def _wait(
        self, meta: ObjectMeta, tell: Callable[[str], None], is_left: Callable[[Pod], bool]
    ) -> None:
        """Wait until no pod is left; those that one may not see are not waited for."""
        try:
            left = [pod for pod in await self.list_pods(meta) if is_left(pod)]
        except Forbidden as error:
            tell(f"not waiting until the pods are gone: {error}")
            return
        uids = {pod.metadata.uid or "" for pod in left}
        if not uids:
            return
        async with asyncio.TaskGroup() as group:
            teller = group.create_task(_tell_later(tell, left), name="tell")
            async with aclosing(self.watch_pods(meta)) as changes:
                async for change in changes:
                    if not any(uid in change.pods and is_left(change.pods[uid]) for uid in uids):
                        break
            teller.cancel()

    async def _find_own_job_set(self, meta: ObjectMeta) -> bool:
        """Say whether the job's JobSet is there, as far as one may see."""
        found = await self._find_job_set(meta)
        return found is not None and is_controlled_by(found, meta)

    async def _find_foreign_job_set(self, meta: ObjectMeta) -> str | None:
        """Return the uid of a JobSet of this name that is another job's."""
        found = await self._find_job_set(meta)
        return found.uid if found is not None and not is_controlled_by(found, meta) else None

    async def _find_job_set(self, meta: ObjectMeta) -> ObjectMeta | None:
        try:
            body = await self._cluster.get(ObjectKey(JOB_SET, meta.namespace or "", meta.name))
        except (NotFound, Forbidden):
            return None
        return msgspec.convert(body["metadata"], ObjectMeta)


def find_rank(pod: Pod) -> int | None:
    """Return the rank of the training node that the pod is; None for a step that is none."""
    meta = pod.metadata
    if find_step(pod) == LAUNCHER or NODE not in list_containers(pod):
        return None
    index = (meta.labels or {}).get(COMPLETION_INDEX) or (meta.annotations or {}).get(COMPLETION_INDEX)
    return _count_nodes_before(pod) + (int(index) if index and index.isdigit() else 0)


def _count_nodes_before(pod: Pod) -> int:
    """Return how many nodes the slices before the pod's have; none where nodes come in no slices."""
    node = find_container(pod.spec or {}, NODE) or {}
    size = next((one.get("value") for one in node.get("env") or () if one["name"] == SLICE_NODES), None)
    job_index = (pod.metadata.labels or {}).get(JOB_INDEX)
    return int(size) * int(job_index) if size and job_index and job_index.isdigit() else 0


def find_step(pod: Pod) -> str:
    """Return which replicated job the pod is of; its name where that is not said."""
    return (pod.metadata.labels or {}).get(STEP) or pod.metadata.name


def list_containers(pod: Pod) -> list[str]:
    """Return the names of the pod's containers, without init containers."""
    return [str(container["name"]) for container in (pod.spec or {}).get("containers") or ()]


def find_status(pod: Pod, container: str) -> ContainerStatus | None:
    """Return how the container does; None where the kubelet has not said anything yet."""
    return next((s for s in pod.status.container_statuses or () if s.name == container), None)


async def _tell_later(tell: Callable[[str], None], pods: list[Pod]) -> None:
    await asyncio.sleep(_TELL_AFTER_SECONDS)
    names = [pod.metadata.name for pod in pods]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    tell(f"waiting until {', '.join(names[:3])}{more} end{'s' if len(names) == 1 else ''}")
