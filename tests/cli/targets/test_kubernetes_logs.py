"""Following pods whose connections break, containers restart and pods come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cli.targets.log_server import JOB_UID, NAMESPACE, Container, LogServer, serving
from trainwright.api.meta import ObjectMeta
from trainwright.api.trainjob import TrainJob, TrainJobStatus
from trainwright.cli.targets import LogLine, LogRequest
from trainwright.cli.targets.kubernetes_logs import JobLogs
from trainwright.cli.targets.kubernetes_pods import PodReader
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.config import Connection
from trainwright.cluster.kube.transport import AiohttpTransport

NOW = 1_800_000_000 * 1_000_000_000
STEP = 150_000_000
META = ObjectMeta(name="demo", namespace=NAMESPACE, uid=JOB_UID)
PATIENCE_SECONDS = 60  # a bound, not an expectation
ENDED = {"terminated": {"exitCode": 0}}


def stamped(*texts: str, first: int = 0) -> list[tuple[int, bytes]]:
    return [(NOW + (first + number) * STEP, text.encode()) for number, text in enumerate(texts)]


class Watcher:
    """Somebody who follows the job."""

    def __init__(self, server: LogServer, transport: AiohttpTransport) -> None:
        self.server = server
        pods = PodReader(KubeCluster(transport, "test"), transport)
        self.logs = JobLogs(transport, pods, TrainJob(metadata=META))
        self.lines: asyncio.Queue[LogLine] = asyncio.Queue()
        self.told: list[str] = []
        self._jobs: asyncio.Queue[TrainJob | None] = asyncio.Queue()

    async def _changes(self) -> AsyncGenerator[TrainJob | None, None]:
        while True:
            yield await self._jobs.get()

    def set_phase(self, phase: str) -> None:
        self._jobs.put_nowait(TrainJob(metadata=META, status=TrainJobStatus(phase=phase)))

    def delete(self) -> None:
        self._jobs.put_nowait(None)

    async def follow(self, request: LogRequest) -> None:
        async for line in self.logs.follow(request, self._changes(), self.told.append):
            self.lines.put_nowait(line)

    async def take(self, count: int) -> list[str]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [(await self.lines.get()).text for _ in range(count)]

    def take_rest(self) -> list[str]:
        return [self.lines.get_nowait().text for _ in range(self.lines.qsize())]


@pytest.fixture
async def watcher() -> AsyncIterator[Watcher]:
    async with serving() as server, AiohttpTransport(Connection(server=server.url)) as transport:
        yield Watcher(server, transport)


async def finish(watcher: Watcher, name: str, container: Container, *, rank: int = 0) -> None:
    await container.end()
    restarts = len(watcher.server.containers[name]) - 1
    await watcher.server.set_pod(name, "Succeeded", ENDED, rank=rank, restarts=restarts)


async def test_what_there_is_is_read_by_rank_without_the_output_of_proxies(watcher: Watcher):
    for rank in (1, 0):
        container = await watcher.server.run_pod(f"demo-node-{rank}", rank=rank)
        await container.print(*stamped(f"a{rank}", f"b{rank}"))
    lines = [line async for line in watcher.logs.read(LogRequest())]
    assert [(line.source, line.text) for line in lines] == [
        ("node 0", "a0"), ("node 0", "b0"), ("node 1", "a1"), ("node 1", "b1"),
    ]  # fmt: skip
    assert [line.text async for line in watcher.logs.read(LogRequest(rank=1, tail=1))] == ["b1"]
    assert {query["container"] for query in watcher.server.asked} == {"node"}
    assert await watcher.logs.list_ranks() == [0, 1]


async def test_the_output_before_a_restart_is_read_where_there_was_one(watcher: Watcher):
    first = await watcher.server.run_pod("demo-node-0")
    await first.print(*stamped("died"))
    await watcher.server.run_pod("demo-node-0")
    await watcher.server.run_pod("demo-node-1", rank=1)
    assert [line.text async for line in watcher.logs.read(LogRequest(previous=True))] == ["died"]


async def test_following_waits_for_the_pod_and_says_what_it_waits_for(watcher: Watcher):
    following = asyncio.create_task(watcher.follow(LogRequest(follow=True)))
    watcher.set_phase("Queued")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not watcher.told:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert watcher.told == ["waiting for pods of demo, which is Queued"]
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    await watcher.server.set_pod("demo-node-0", "Pending", waiting)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(watcher.told) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert watcher.told[1] == "waiting for demo-node-0: ImagePullBackOff: no such image"
    container = await watcher.server.run_pod("demo-node-0")
    await container.print(*stamped("hello"))
    assert await watcher.take(1) == ["hello"]
    await finish(watcher, "demo-node-0", container)
    watcher.set_phase("Complete")
    await following
    assert watcher.take_rest() == []


@pytest.mark.timeout(400)  # each break is followed by a pause, as in life
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cuts=st.lists(st.integers(0, 400), max_size=4),
    before=st.integers(0, 12),
    gaps=st.lists(
        # Since the line before, and how much older the line itself is than that: streams are stamped apart.
        st.tuples(st.sampled_from((0, 1, 1_000, STEP, 9 * STEP)), st.sampled_from((0, 0, 1, 6 * STEP))),
        min_size=24,
        max_size=24,
    ),
)
def test_a_connection_may_break_anywhere_and_no_line_is_lost_or_told_twice(cuts, before, gaps):
    async def tell_the_story() -> None:
        stamp, lines = NOW + 20 * STEP, []
        for number, (gap, older) in enumerate(gaps):
            stamp += gap
            lines.append((stamp - older, f"line {number}".encode()))
        async with serving() as server, AiohttpTransport(Connection(server=server.url)) as transport:
            watcher = Watcher(server, transport)
            server.cuts = list(cuts)
            container = await server.run_pod("demo-node-0")
            await container.print(*lines[:before])
            following = asyncio.create_task(watcher.follow(LogRequest(follow=True)))
            await container.print(*lines[before:])
            await finish(watcher, "demo-node-0", container)
            watcher.set_phase("Complete")
            await following
            assert watcher.take_rest() == [text.decode() for _, text in lines]

    asyncio.run(tell_the_story())


async def test_a_restarted_container_and_a_new_pod_are_followed_too(watcher: Watcher):
    """
    1. The container of the first pod dies; it is restarted in its pod.
    2. The pod is deleted; JobSet makes another one.
    """
    following = asyncio.create_task(watcher.follow(LogRequest(follow=True)))
    first = await watcher.server.run_pod("demo-node-0")
    await first.print(*stamped("one"))
    assert await watcher.take(1) == ["one"]
    await first.print(*stamped("last words", first=1))
    await first.end()
    second = await watcher.server.run_pod("demo-node-0")
    await second.print(*stamped("two", first=2))
    assert await watcher.take(2) == ["last words", "two"]
    await second.end()
    await watcher.server.delete_pod("demo-node-0")
    third = await watcher.server.run_pod("demo-node-0-again")
    await third.print(*stamped("three", first=3))
    assert await watcher.take(1) == ["three"]
    await finish(watcher, "demo-node-0-again", third)
    watcher.set_phase("Complete")
    await following


async def test_the_tail_is_that_of_what_was_there_and_later_pods_are_told_whole(watcher: Watcher):
    old = await watcher.server.run_pod("demo-node-0")
    await old.print(*stamped("a", "b", "c"))
    following = asyncio.create_task(watcher.follow(LogRequest(follow=True, tail=1)))
    assert await watcher.take(1) == ["c"]
    new = await watcher.server.run_pod("demo-node-1", rank=1)
    await new.print(*stamped("x", "y"))
    assert await watcher.take(2) == ["x", "y"]
    await finish(watcher, "demo-node-0", old)
    await finish(watcher, "demo-node-1", new, rank=1)
    watcher.set_phase("Complete")
    await following


async def test_a_last_line_without_an_end_is_told_when_the_container_has_ended(watcher: Watcher):
    container = await watcher.server.run_pod("demo-node-0")
    following = asyncio.create_task(watcher.follow(LogRequest(follow=True)))
    await container.print(*stamped("whole"))
    assert await watcher.take(1) == ["whole"]
    container.unfinished = stamped("no end", first=1)[0]
    await finish(watcher, "demo-node-0", container)
    watcher.set_phase("Complete")
    await following
    assert watcher.take_rest() == ["no end"]


async def test_one_rank_alone_is_followed(watcher: Watcher):
    following = asyncio.create_task(watcher.follow(LogRequest(follow=True, rank=1)))
    containers = [await watcher.server.run_pod(f"demo-node-{rank}", rank=rank) for rank in (0, 1)]
    for rank, container in enumerate(containers):
        await container.print(*stamped(f"from {rank}"))
        await finish(watcher, f"demo-node-{rank}", container, rank=rank)
    watcher.set_phase("Complete")
    await following
    assert watcher.take_rest() == ["from 1"]


async def test_a_pod_that_never_began_does_not_keep_a_finished_job(watcher: Watcher):
    await watcher.server.set_pod("demo-node-0", "Pending")
    watcher.set_phase("Failed")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await watcher.follow(LogRequest(follow=True))
    assert watcher.take_rest() == []


async def test_following_ends_when_the_job_is_deleted(watcher: Watcher):
    container = await watcher.server.run_pod("demo-node-0")
    following = asyncio.create_task(watcher.follow(LogRequest(follow=True)))
    await container.print(*stamped("hello"))
    assert await watcher.take(1) == ["hello"]
    watcher.delete()
    await container.end()
    await watcher.server.delete_pod("demo-node-0")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await following
