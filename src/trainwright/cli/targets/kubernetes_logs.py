"""The output of a job's pods: what there is, or as it comes, from pods that come and go.

Every container has a reader of its own. A reader outlives broken connections and restarts of its container;
lines are handed on one at a time, and a slow caller slows the readers down: nothing is collected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec

from trainwright.api.constants import DATASET_INITIALIZER, MODEL_INITIALIZER, NODE
from trainwright.api.core import ContainerStatus, Pod
from trainwright.api.meta import ObjectKey
from trainwright.api.trainjob import TrainJob
from trainwright.cli.job_rows import explain_untouched, get_phase, is_finished
from trainwright.cli.targets import LogLine, LogRequest
from trainwright.cli.targets.kubernetes_pods import (
    ENDED_PHASES,
    PodChange,
    PodReader,
    find_rank,
    find_status,
    find_step,
    list_containers,
)
from trainwright.cli.targets.log_cursor import LogCursor, StampedLines, parse_stamped
from trainwright.cli.verdict import format_waiting
from trainwright.cluster.kube.errors import ApiError, InvalidError, NotFoundError, is_retryable
from trainwright.cluster.kube.requests import build_log
from trainwright.cluster.kube.transport import Transport
from trainwright.errors import TargetUnreachable

# What TrainJobs run; other containers of a pod (proxies, log shippers) are the cluster's own affair.
_CONTAINERS = frozenset({NODE, DATASET_INITIALIZER, MODEL_INITIALIZER})
# Each reader has a connection of its own; the transport has 64.
MOST_READERS = 50
# A container may be silent for hours, and a dead connection too: asking again costs one request.
SILENCE_SECONDS = 300.0
# A server that is away for longer than its own restart takes is told about.
GIVE_UP_SECONDS = 120.0
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 8.0
_LOOK_AGAIN_SECONDS = 1.0
_TELL_AFTER_SECONDS = 2.0
_QUEUED_LINES = 1000


class _Container(msgspec.Struct, frozen=True):
    """One container of one pod, by the pod's uid."""

    uid: str
    pod: str
    name: str
    source: str


class JobLogs:
    """Reads the output of one job."""

    def __init__(self, transport: Transport, pods: PodReader, train_job: TrainJob) -> None:
        self._transport = transport
        self._reader = pods
        self._meta = train_job.metadata

    async def read(self, request: LogRequest) -> AsyncIterator[LogLine]:
        """Yield what there is, pod after pod in the order of ranks."""
        pods = await self._reader.list_pods(self._meta)
        for container in list_readable(pods, request):
            texts = self._read_container(container, request)
            async with aclosing(texts):
                async for text in texts:
                    yield LogLine(source=container.source, text=text)

    async def follow(
        self,
        request: LogRequest,
        changes: AsyncGenerator[TrainJob | None, None],
        tell: Callable[[str], None],
    ) -> AsyncIterator[LogLine]:
        """Yield output of all pods as it comes, until the job has ended and everything is told.

        `changes` are those of the job; None means that it was deleted.
        """
        following = _Following(self._transport, self._reader, self._meta.name, request, tell)
        work = asyncio.create_task(
            following.run(self._reader.watch_pods(self._meta), changes), name="follow pods"
        )
        try:
            async for line in following.list_lines(work):
                yield line
            await work  # raises what ended it
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def list_ranks(self) -> list[int]:
        """Return the ranks whose container has begun."""
        pods = await self._reader.list_pods(self._meta)
        ranks = {find_rank(pod) for pod in pods if _has_begun(find_status(pod, NODE))}
        return sorted(rank for rank in ranks if rank is not None)

    async def _read_container(self, container: _Container, request: LogRequest) -> AsyncGenerator[str, None]:
        stream = ContainerLog(self._transport, self._meta.namespace or "", container.pod, container.name)
        try:
            async for text in stream.read(tail=request.tail, previous=request.previous, follow=False):
                yield text
        except (InvalidError, NotFoundError):
            return  # it has not begun, was never restarted, or its pod has just gone


class ContainerLog:
    """One container's log. Remembers what it has given, across as many passes as it takes."""

    def __init__(self, transport: Transport, namespace: str, pod: str, container: str) -> None:
        self._transport = transport
        self._key = ObjectKey("Pod", namespace, pod)
        self._container = container
        self._cursor = LogCursor()

    async def read(self, *, tail: int | None, previous: bool, follow: bool) -> AsyncGenerator[str, None]:
        """Yield lines that were not given before, until the server says that it is the end.

        Broken connections are made anew. Raises ApiError, and TargetUnreachable once that goes on too long.
        """
        clock = asyncio.get_running_loop().time
        pause = _FIRST_PAUSE_SECONDS
        last_good = clock()
        while True:
            began = clock()
            try:
                async for text in self._pass(tail=tail, previous=previous, follow=follow):
                    last_good, pause = clock(), _FIRST_PAUSE_SECONDS
                    yield text
                return
            except (ApiError, TargetUnreachable) as error:
                if not is_retryable(error):
                    raise
                if clock() - began >= SILENCE_SECONDS:
                    last_good = clock()  # the connection was there; nobody printed anything
                if clock() - last_good > GIVE_UP_SECONDS:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    async def _pass(self, *, tail: int | None, previous: bool, follow: bool) -> AsyncIterator[str]:
        """Yield new lines of one answer.

        A line without its end is given when nothing can come after it, else with the next answer.
        """
        request = build_log(
            self._key,
            self._container,
            follow=follow,
            previous=previous,
            tail_lines=None if self._cursor.has_read else tail,
            since_time=self._cursor.resume(),
        )
        lines = StampedLines()
        async with aclosing(self._transport.stream(request, SILENCE_SECONDS)) as pieces:
            async for piece in pieces:
                for line in lines.feed(piece):
                    if (text := self._take(line)) is not None:
                        yield text
        if not follow and (rest := lines.finish()) and (text := self._take(rest)) is not None:
            yield text

    def _take(self, line: bytes) -> str | None:
        stamp, text = parse_stamped(line)
        return text if stamp is None or self._cursor.take(stamp) else None


class _Following:
    """Readers of all pods of one job. Fed with the pods and the job as they change."""

    def __init__(
        self,
        transport: Transport,
        reader: PodReader,
        name: str,
        request: LogRequest,
        tell: Callable[[str], None],
    ) -> None:
        self._transport = transport
        self._reader = reader
        self._name = name
        self._request = request
        self._tell = tell
        self._queue: asyncio.Queue[LogLine] = asyncio.Queue(maxsize=_QUEUED_LINES)
        self._pods: Mapping[str, Pod] = {}
        self._train_job: TrainJob | None = None
        self._changed = asyncio.Condition()
        self._readers: dict[_Container, asyncio.Task[None]] = {}
        self._reading: set[_Container] = set()
        self._has_told_of_limit = False
        # What these printed before anybody looked is cut to the tail; of what begins later all is wanted.
        self._older: set[_Container] = set()
        self._has_seen = False

    async def list_lines(self, work: asyncio.Task[None]) -> AsyncIterator[LogLine]:
        """Yield lines until the work is done and the last of them was given."""
        while True:
            while not self._queue.empty():
                yield self._queue.get_nowait()
            if work.done():
                return
            taking = asyncio.create_task(self._queue.get(), name="next line")
            try:
                await asyncio.wait({taking, work}, return_when=asyncio.FIRST_COMPLETED)
                if taking.done():
                    yield taking.result()
            finally:
                taking.cancel()

    async def run(
        self, pods: AsyncIterator[PodChange], changes: AsyncGenerator[TrainJob | None, None]
    ) -> None:
        """Start readers as containers begin; return when the job has ended and its readers have."""
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch_pods(pods, group), name="watch pods")
            telling = group.create_task(self._tell_what_is_missing(), name="tell")
            async with aclosing(changes):
                async for train_job in changes:
                    self._train_job = train_job
                    if train_job is None or is_finished(train_job):
                        break
            telling.cancel()
            if self._train_job is not None:
                # The watch of pods may be behind that of the job.
                last = await self._reader.list_pods(self._train_job.metadata)
                self._see(PodChange({pod.metadata.uid or "": pod for pod in last}, last), group)
            await self._notify()
            # Readers whose container never began wait for what will not come.
            await self._wait_for(lambda: not self._reading)
            for task in (watching, *self._readers.values()):
                task.cancel()

    async def _watch_pods(self, changes: AsyncIterator[PodChange], group: asyncio.TaskGroup) -> None:
        async for change in changes:
            self._see(change, group)
            await self._notify()

    def _see(self, change: PodChange, group: asyncio.TaskGroup) -> None:
        self._pods = change.pods
        is_first, self._has_seen = not self._has_seen, True
        for container in list_readable(change.changed, self._request):
            if container in self._readers:
                continue
            if sum(not task.done() for task in self._readers.values()) >= MOST_READERS:
                if not self._has_told_of_limit:
                    self._has_told_of_limit = True
                    self._tell(f"following {MOST_READERS} pods, not all of them; choose one with --rank")
                return
            if _has_begun(find_status(change.pods[container.uid], container.name)):
                self._reading.add(container)
                if is_first:
                    self._older.add(container)
            self._readers[container] = group.create_task(
                self._follow_container(container), name=f"log {container.pod}"
            )

    async def _follow_container(self, container: _Container) -> None:
        """Hand on the output of every run of the container until its pod ends, or is gone."""
        read_restarts = -1
        try:
            while True:
                pod = self._pods.get(container.uid)
                if pod is None:
                    return
                status = find_status(pod, container.name)
                if _has_begun(status) and status is not None and status.restart_count > read_restarts:
                    self._reading.add(container)
                    read_restarts = status.restart_count
                    await self._follow_run(container, read_restarts)
                    continue
                self._reading.discard(container)
                await self._notify()
                if pod.status.phase in ENDED_PHASES:
                    return
                await self._wait_for_change(container, pod)
        finally:
            self._reading.discard(container)
            await self._notify()

    async def _follow_run(self, container: _Container, restarts: int) -> None:
        """Hand on the output of one run of the container to its end."""
        namespace = self._pods[container.uid].metadata.namespace or ""
        log = ContainerLog(self._transport, namespace, container.pod, container.name)
        tail = self._request.tail if container in self._older else None
        self._older.discard(container)
        while True:
            pod = self._pods.get(container.uid)
            status = find_status(pod, container.name) if pod else None
            is_replaced = status is not None and status.restart_count > restarts
            is_over = status is None or is_replaced or status.state.terminated is not None
            try:
                texts = log.read(tail=tail, previous=is_replaced, follow=not is_over)
                async with aclosing(texts):
                    async for text in texts:
                        await self._queue.put(LogLine(source=container.source, text=text))
            except NotFoundError:
                return
            except InvalidError:
                if is_over:
                    return
            if is_over:
                return
            # The server says that this was all: the container has ended, and its status will say so, or the
            # server ended the answer for reasons of its own. Either way the next pass misses nothing.
            await self._wait_for_change(container, pod, _LOOK_AGAIN_SECONDS)

    async def _tell_what_is_missing(self) -> None:
        """Say what keeps output away, each time that it is something else."""
        told = ""
        await asyncio.sleep(_TELL_AFTER_SECONDS)
        while True:
            if not self._reading and (missing := self._describe_missing()) and missing != told:
                told = missing
                self._tell(missing)
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _describe_missing(self) -> str:
        train_job = self._train_job
        if train_job is None:
            return ""
        if untouched := explain_untouched(train_job, datetime.now(UTC)):
            return f"waiting for {self._name}: {untouched}"
        status = train_job.status
        if status is not None and status.cause is not None:
            return format_waiting(self._name, status.cause)
        waiting = [text for pod in self._pods.values() if (text := _describe_waiting(pod))]
        if waiting:
            return f"waiting for {min(waiting)}"
        return f"waiting for pods of {self._name}, which is {get_phase(train_job)}"

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _wait_for_change(
        self, container: _Container, seen: Pod | None, seconds: float | None = None
    ) -> None:
        await self._wait_for(lambda: self._pods.get(container.uid) is not seen, seconds)

    async def _wait_for(self, condition: Callable[[], bool], seconds: float | None = None) -> None:
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            return


def list_readable(pods: Iterable[Pod], request: LogRequest) -> list[_Container]:
    """Return the containers whose output is asked for: training nodes by rank first, then other steps."""
    found = []
    for pod in pods:
        rank = find_rank(pod)
        if request.rank is not None and rank != request.rank:
            continue
        names = list_containers(pod)
        for name in [name for name in names if name in _CONTAINERS] or names:
            step = find_step(pod)
            source = f"node {rank}" if rank is not None else step
            if name not in _CONTAINERS:
                source += f" {name}"
            container = _Container(pod.metadata.uid or "", pod.metadata.name, name, source)
            found.append((rank is None, rank or 0, step, pod.metadata.name, container))
    return [item[-1] for item in sorted(found, key=lambda item: item[:-1])]


def _has_begun(status: ContainerStatus | None) -> bool:
    """Say whether the container has run, so that it may have printed something."""
    return status is not None and (
        status.state.running is not None
        or status.state.terminated is not None
        or status.last_state.terminated is not None
    )


def _describe_waiting(pod: Pod) -> str:
    for status in pod.status.container_statuses or ():
        if status.state.waiting is not None and status.state.waiting.reason:
            waiting = status.state.waiting
            return f"{pod.metadata.name}: {waiting.reason}" + (
                f": {waiting.message}" if waiting.message else ""
            )
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{pod.metadata.name}: {condition.reason}: {condition.message}"
    return f"{pod.metadata.name}: {pod.status.phase}" if pod.status.phase == "Pending" else ""
