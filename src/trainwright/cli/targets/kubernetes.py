"""A cluster: objects behind its API server, pods that the operator and JobSet make of them."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from trainwright.api.constants import TRAIN_JOB
from trainwright.api.core import Pod
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json, ObjectKey, ObjectMeta
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime
from trainwright.api.trainjob import TrainJob
from trainwright.cli.admitting import FIELD_MANAGER
from trainwright.cli.build_train_job import Entry
from trainwright.cli.caller_python import CallerPython
from trainwright.cli.code_sources import CodeSource, RunWords
from trainwright.cli.console import say
from trainwright.cli.files import get_working_directory
from trainwright.cli.shipping.entries import find_shipped_entry
from trainwright.cli.shipping.packing import pack_job
from trainwright.cli.shipping.sending import CarrierSender
from trainwright.cli.target_names import TargetName
from trainwright.cli.targets import LogLine, LogRequest, Packed, Where
from trainwright.cli.targets.kubernetes_logs import JobLogs
from trainwright.cli.targets.kubernetes_pods import ENDED_PHASES, PodReader
from trainwright.cli.targets.kubernetes_requests import ExplainingTransport
from trainwright.cli.watching import watch_train_job
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.errors import is_retryable
from trainwright.cluster.kube.requests import build_apply, build_create, build_delete
from trainwright.cluster.kube.transport import AiohttpTransport, Transport
from trainwright.cluster.port import Change, Cluster
from trainwright.errors import NotFound, UsageError, UserError

if TYPE_CHECKING:
    from trainwright.runner.progress.history import HistoryEntry

# What images have by these names, whatever the caller's Python is called.
_PYTHON_OF_IMAGES = CallerPython(command=("python3",), torchrun=("torchrun",))

_GIVE_UP_SECONDS = 120.0
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 8.0
_NODES_SHOWN = 4

_DECODER = msgspec.json.Decoder(dict[str, object])


class PatientCluster(KubeCluster):
    """The objects of a cluster; a watch outlives a server that restarts."""

    async def watch(
        self, kinds: Sequence[str], namespace: str | None, resource_version: str
    ) -> AsyncIterator[Change]:
        """Yield changes of one kind. Raises TargetUnreachable once the server is away for too long."""
        clock = asyncio.get_running_loop().time
        last_good, pause = clock(), _FIRST_PAUSE_SECONDS
        while True:
            try:
                watch = cast(
                    "AsyncGenerator[Change, None]", super().watch(kinds, namespace, resource_version)
                )
                async with aclosing(watch) as changes:
                    async for change in changes:
                        resource_version = change.object["metadata"]["resourceVersion"]
                        last_good, pause = clock(), _FIRST_PAUSE_SECONDS
                        yield change
            except UserError as error:
                if not is_retryable(error) or clock() - last_good > _GIVE_UP_SECONDS:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


class KubernetesTarget:
    """Jobs as pods of a cluster."""

    name = TargetName.KUBERNETES
    admits_writes = True

    def __init__(self, transport: Transport, namespace: str) -> None:
        self.namespace = namespace
        self._transport = transport
        self._cluster = PatientCluster(transport, FIELD_MANAGER)
        self._pods = PodReader(self._cluster, transport)

    @property
    def cluster(self) -> Cluster:
        """The objects."""
        return self._cluster

    def list_shipped_runtimes(self) -> Mapping[str, ClusterTrainingRuntime]:
        """Return none: the operator uses what is installed."""
        return {}

    def build_annotations(self) -> dict[str, str]:
        """Return none: the cluster need not know of the caller."""
        return {}

    def find_entry(self, words: RunWords, code: CodeSource) -> Entry:
        """Return what the words start in the pod."""
        return find_shipped_entry(words, code, get_working_directory())

    def find_python(self) -> CallerPython:
        """Return what images have."""
        return _PYTHON_OF_IMAGES

    def pack(self, train_job: TrainJob, runtime: Runtime, entry: Entry, code: CodeSource) -> Packed:
        """Return the job with the working directory, or with where else its code is."""
        return pack_job(train_job, runtime, entry, code, get_working_directory())

    async def submit(self, packed: Packed) -> Json:
        """Create the job once its code is there. A job that is refused leaves nothing behind."""
        body = build_object(packed.train_job)
        # Refused before a byte of code is sent.
        await self._transport.request(build_create(body, dry_run=True))
        sender = CarrierSender(self._transport, packed.carriers)
        await sender.send()
        try:
            stored = await self._cluster.create(body)
        except BaseException:
            await sender.take_back()
            raise
        try:
            await sender.give_to(stored)
        except BaseException:
            key = ObjectKey(TRAIN_JOB, stored["metadata"]["namespace"], stored["metadata"]["name"])
            await self._cluster.delete(key, stored["metadata"]["uid"])
            await sender.take_back()
            raise
        return stored

    async def settle(self) -> None:
        """Do nothing: the operator does."""

    async def engage(self, train_job: TrainJob) -> None:
        """Do nothing: the operator watches."""

    async def preview(self, obj: Json, field_manager: str, *, force: bool = True) -> Json:
        """Return what applying the object would store, by the cluster's own word."""
        request = build_apply(obj, field_manager, force=force, dry_run=True)
        return dict(_DECODER.decode(await self._transport.request(request)))

    async def read_logs(
        self, train_job: TrainJob, request: LogRequest, tell: Callable[[str], None]
    ) -> AsyncIterator[LogLine]:
        """Yield output of the job's pods; when following, until the job has ended."""
        logs = JobLogs(self._transport, self._pods, train_job)
        if not request.follow:
            async for line in logs.read(request):
                yield line
            return
        key = ObjectKey(TRAIN_JOB, train_job.metadata.namespace or "", train_job.metadata.name)
        async for line in logs.follow(request, watch_train_job(self, key), tell):
            yield line

    async def list_ranks(self, meta: ObjectMeta) -> list[int]:
        """Return the training nodes whose container has begun."""
        return await JobLogs(self._transport, self._pods, TrainJob(metadata=meta)).list_ranks()

    async def kill(self, train_job: TrainJob) -> None:
        """Delete the pods without a grace period."""
        for pod in await self._pods.list_pods(train_job.metadata):
            if pod.status.phase in ENDED_PHASES:
                continue
            key = ObjectKey("Pod", train_job.metadata.namespace or "", pod.metadata.name)
            with suppress(NotFound):
                await self._transport.request(build_delete(key, pod.metadata.uid, grace_period_seconds=0))

    async def wait_until_idle(self, meta: ObjectMeta) -> None:
        """Wait until no pod of the job runs."""
        await self._pods.wait_until_ended(meta, say)

    async def clean_up(self, meta: ObjectMeta) -> None:
        """Wait until the pods of a deleted job are gone; the garbage collector deletes them."""
        await self._pods.wait_until_gone(meta, say)

    def read_reports(self, meta: ObjectMeta) -> list[HistoryEntry]:  # noqa: ARG002
        """Return nothing: a cluster keeps the last report alone, in the status."""
        return []

    def list_notices(self, train_job: TrainJob, runtime: Runtime) -> Sequence[str]:  # noqa: ARG002
        """Return nothing: what is asked for is what runs."""
        return []

    def describe_node(self, train_job: TrainJob, pods: Sequence[Pod]) -> str:  # noqa: ARG002
        """Say on which machines how many pods are."""
        counts = Counter(str((pod.spec or {}).get("nodeName") or "") for pod in pods)
        unplaced = counts.pop("", 0)
        shown = [f"{name} ({count})" for name, count in counts.most_common(_NODES_SHOWN)]
        if len(counts) > _NODES_SHOWN:
            shown.append(f"and {len(counts) - _NODES_SHOWN} more")
        words = [f"pods on {', '.join(shown)}"] if shown else []
        if unplaced:
            words.append(f"{unplaced} on none yet")
        return "; ".join(words)


@asynccontextmanager
async def open_kubernetes(where: Where) -> AsyncIterator[KubernetesTarget]:
    """Open the cluster that options and kubeconfig name. Raises UsageError; asks nothing yet."""
    environment = dict(os.environ)
    if where.kubeconfig is not None:
        if not where.kubeconfig.is_file():
            raise UsageError(f"--kubeconfig: {where.kubeconfig}: no such file")
        environment["KUBECONFIG"] = str(where.kubeconfig)
    connection = load_connection(environment, Path.home(), where.context)
    async with AiohttpTransport(connection) as transport:
        explaining = ExplainingTransport(transport, connection.server)
        yield KubernetesTarget(explaining, where.namespace or connection.namespace)
