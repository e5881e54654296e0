"""Workers on virtual time: a key in one pair of hands, pauses after failures, bugs contained, a clean end."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from trainwright.api.meta import ObjectKey
from trainwright.cluster.kube.errors import ServerTroubleError, Status
from trainwright.errors import TargetUnreachable
from trainwright.operator.controller import DRAIN_SECONDS, Again, Controller
from trainwright.operator.metrics import Metrics
from virtual_time import on_virtual_time

NAME = "test_controller"


def key(name: str) -> ObjectKey:
    return ObjectKey("TrainJob", "ns", name)


class Work:
    """Notes every turn, and does what a test asks for."""

    def __init__(self) -> None:
        self.turns: list[tuple[str, float]] = []
        self.errors: dict[str, list[BaseException]] = {}
        self.requeue: dict[str, list[float | None]] = {}
        self.seconds = 0.0
        self.at_once = 0
        self.most_at_once = 0

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.turns]

    async def __call__(self, key: ObjectKey) -> float | None:
        self.turns.append((key.name, asyncio.get_running_loop().time()))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.at_once -= 1
        if self.errors.get(key.name):
            raise self.errors[key.name].pop(0)
        planned = self.requeue.get(key.name)
        return planned.pop(0) if planned else None


class Run:
    def __init__(self, work: Work, workers: int = 2, initial: tuple[str, ...] = ()) -> None:
        self.metrics = Metrics()
        self.controller = Controller(NAME, work, workers, self.metrics)
        self.stopping = asyncio.Event()
        self._initial = [key(name) for name in initial]

    async def __aenter__(self) -> Run:
        self.task = asyncio.create_task(self.controller.run(lambda: self._initial, self.stopping))
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stopping.set()
        await self.task

    def read(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(metric, {"controller": NAME, **labels}) or 0.0


@on_virtual_time
async def test_everything_is_looked_at_once_and_then_what_is_asked_for() -> None:
    work = Work()
    async with Run(work, initial=("a", "b")) as run:
        await asyncio.sleep(1)
        assert work.names == ["a", "b"]
        run.controller.enqueue(key("b"))
        await asyncio.sleep(1)
        assert work.names == ["a", "b", "b"]
        assert run.read("controller_runtime_reconcile_total", result="success") == 3


@on_virtual_time
async def test_what_is_asked_for_before_the_controller_runs_is_dropped() -> None:
    work = Work()
    run = Run(work)
    run.controller.enqueue(key("early"))
    async with run:
        await asyncio.sleep(1)
    assert work.names == []


@on_virtual_time
async def test_a_key_is_never_in_two_pairs_of_hands() -> None:
    work = Work()
    work.seconds = 1.0
    async with Run(work, workers=4) as run:
        for _ in range(5):
            run.controller.enqueue(key("a"))
            await asyncio.sleep(0.1)
        await asyncio.sleep(5)
    assert work.most_at_once == 1
    assert work.names == ["a", "a"]


@on_virtual_time
async def test_so_many_keys_are_worked_on_at_once_as_there_are_workers() -> None:
    work = Work()
    work.seconds = 1.0
    async with Run(work, workers=3, initial=tuple("abcdef")):
        await asyncio.sleep(10)
    assert work.most_at_once == 3
    assert sorted(work.names) == list("abcdef")


FAILURES = {
    "the server is in trouble": lambda: ServerTroubleError(Status(code=500, message="etcd")),
    "the server does not answer": lambda: TargetUnreachable("no answer"),
    "a bug": lambda: RuntimeError("bug"),
    "changed meanwhile": Again,
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@on_virtual_time
async def test_a_failure_is_tried_again_after_pauses_that_double(failure) -> None:  # type: ignore[no-untyped-def]
    work = Work()
    work.errors["a"] = [failure() for _ in range(3)]
    async with Run(work, initial=("a", "b")):
        await asyncio.sleep(5)
    times = [at for name, at in work.turns if name == "a"]
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == pytest.approx(
        [0.005, 0.01, 0.02]
    )
    assert "b" in work.names


@on_virtual_time
async def test_failures_and_bugs_are_counted() -> None:
    work = Work()
    work.errors["a"] = [TargetUnreachable("no"), RuntimeError("bug")]
    async with Run(work, initial=("a",)) as run:
        await asyncio.sleep(5)
        assert run.read("controller_runtime_reconcile_errors_total") == 2
        assert run.read("controller_runtime_reconcile_panics_total") == 1
        assert run.read("controller_runtime_reconcile_total", result="success") == 1
        assert run.read("workqueue_retries_total", name=NAME) == 2
        assert run.read("controller_runtime_active_workers") == 0


@on_virtual_time
async def test_a_key_comes_back_when_it_asked_to() -> None:
    work = Work()
    work.requeue["a"] = [30.0, None]
    async with Run(work, initial=("a",)) as run:
        await asyncio.sleep(60)
        assert run.read("controller_runtime_reconcile_total", result="requeue_after") == 1
    times = [at for _, at in work.turns]
    assert times[1] - times[0] == pytest.approx(30.0)
    assert len(times) == 2


@on_virtual_time
async def test_at_the_end_workers_finish_what_they_hold_and_leave_the_rest() -> None:
    work = Work()
    work.seconds = DRAIN_SECONDS / 2
    loop = asyncio.get_running_loop()
    async with Run(work, workers=1, initial=("a", "b")) as run:
        await asyncio.sleep(0.01)
        run.stopping.set()
        started = loop.time()
        await run.task
        assert loop.time() - started < DRAIN_SECONDS
        assert run.read("controller_runtime_reconcile_total", result="success") == 1
    assert work.names == ["a"]


@on_virtual_time
async def test_a_worker_that_hangs_does_not_keep_the_process() -> None:
    work = Work()
    work.seconds = 3600.0
    loop = asyncio.get_running_loop()
    async with Run(work, initial=("a",)) as run:
        await asyncio.sleep(0.01)
        run.stopping.set()
        started = loop.time()
        await run.task
        assert loop.time() - started == pytest.approx(DRAIN_SECONDS)
