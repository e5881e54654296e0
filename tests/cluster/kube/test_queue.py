"""The work queue, on virtual time."""

import asyncio

import pytest

from trainwright.cluster.kube.queue import Priority, WorkQueue
from virtual_time import on_virtual_time


@on_virtual_time
async def test_a_key_added_twice_is_taken_once():
    queue = WorkQueue()
    queue.add("a")
    queue.add("a")
    assert await queue.take() == "a"
    assert len(queue) == 0


@on_virtual_time
async def test_a_key_added_while_it_is_worked_on_comes_again_when_done():
    queue = WorkQueue()
    queue.add("a")
    assert await queue.take() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.take() == "a"


@on_virtual_time
async def test_an_event_goes_before_a_resync_and_lifts_a_waiting_one():
    queue = WorkQueue()
    for key in "abc":
        queue.add(key, Priority.RESYNC)
    queue.add("c", Priority.EVENT)
    taken = []
    for _ in range(3):
        taken.append(await queue.take())
        queue.done(taken[-1])
    assert taken == ["c", "a", "b"]


@on_virtual_time
async def test_failures_of_a_key_pause_twice_as_long_each_time_until_it_goes_well():
    queue = WorkQueue()
    assert [queue.add_failed("a") for _ in range(3)] == [0.005, 0.01, 0.02]
    queue.forget("a")
    assert queue.add_failed("a") == 0.005
    for _ in range(40):
        pause = queue.add_failed("a")
    assert pause == 1000.0


@on_virtual_time
async def test_the_shortest_delay_of_a_key_counts():
    queue = WorkQueue()
    loop = asyncio.get_running_loop()
    queue.add_after("a", 60.0)
    queue.add_after("a", 5.0)
    queue.add_after("a", 30.0)
    start = loop.time()
    assert await queue.take() == "a"
    assert loop.time() - start == pytest.approx(5.0)
    queue.done("a")
    queue.close()
    assert await queue.take() is None


@on_virtual_time
async def test_every_waiting_worker_is_woken_when_the_queue_closes():
    queue = WorkQueue()
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(queue.take()) for _ in range(3)]
        await asyncio.sleep(0)
        queue.close()
    assert [worker.result() for worker in workers] == [None, None, None]


@on_virtual_time
async def test_several_workers_share_what_is_ready():
    queue = WorkQueue()
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(queue.take()) for _ in range(2)]
        await asyncio.sleep(0)
        queue.add("a")
        queue.add("b")
    assert sorted(worker.result() for worker in workers) == ["a", "b"]
