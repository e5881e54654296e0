"""A profile on demand."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from trainwright.operator.profiling import Profiler, list_tasks


async def test_a_profile_ends_by_itself_and_tells_what_ran_and_what_waits() -> None:
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    waiting = asyncio.create_task(done.wait(), name="waits-for-done")
    profiler = Profiler(loop, seconds=0.01)
    with capture_logs() as logs:
        profiler.begin()
        profiler.begin()  # one at a time
        async with asyncio.timeout(10):
            while not any(line["event"] == "tasks" for line in logs):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    done.set()
    await waiting
    assert [line["event"] for line in logs] == ["profile begins", "profile", "tasks"]
    assert "function calls" in logs[1]["table"]
    assert any(task.startswith("waits-for-done ") for task in logs[2]["tasks"])


async def test_a_task_that_has_not_begun_is_listed() -> None:
    async def nothing() -> None:
        return

    fresh = asyncio.create_task(nothing(), name="fresh")
    assert any(line.startswith("fresh ") for line in list_tasks(asyncio.get_running_loop()))
    await fresh
