"""From accepted reports to writes, on virtual time: the newest, not too often, and none lost that counts."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any

from reports import NOW, Api, build_caches, clock, put_job
from trainwright.api.trainjob import TrainerStatus
from trainwright.cluster.kube.errors import ForbiddenError, InvalidError, NotFoundError, Status
from trainwright.control.progress_protocol import JobProgress, Report
from trainwright.errors import TargetUnreachable
from trainwright.operator.metrics import Metrics
from trainwright.operator.progress_reports import WRITE_SECONDS, ProgressReports
from virtual_time import on_virtual_time


def report(percent: int, at: datetime = NOW) -> Report:
    status = TrainerStatus(progress_percentage=percent, last_updated_time=at.replace(microsecond=0))
    return Report(reported_at=at, status=status)


class Run:
    def __init__(self, qps: float = 0.0, burst: int = 0) -> None:
        self.api = Api()
        self.caches = build_caches(self.api)
        self.reports = ProgressReports(self.caches, self.api, clock, Metrics(), (qps, burst))
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Run:
        self._task = asyncio.create_task(self.reports.run(self._stopping))
        await asyncio.sleep(0.001)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        await self._task

    def accept(self, percent: int, at: datetime = NOW) -> None:
        self.reports.accept("ns", "demo", report(percent, at))


@on_virtual_time
async def test_a_report_is_written_at_once_under_its_own_manager() -> None:
    async with Run() as run:
        run.accept(42)
        await asyncio.sleep(0.1)
        [request] = run.api.sent
    assert request.target.endswith("/trainjobs/demo/status?fieldManager=trainer-status&force=true")
    assert json.loads(request.body or b"") == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"namespace": "ns", "name": "demo"},
        "status": {"trainerStatus": {"progressPercentage": 42, "lastUpdatedTime": "2026-03-01T12:00:00Z"}},
    }


@on_virtual_time
async def test_of_many_reports_the_newest_is_written_now_and_then() -> None:
    async with Run() as run:
        for percent in range(100):
            run.accept(percent, NOW + timedelta(seconds=percent / 10))
            await asyncio.sleep(0.1)
        await asyncio.sleep(WRITE_SECONDS)
    written = run.api.percents
    assert len(written) == 6
    assert written[-1] == 99
    assert written == sorted(written)


@on_virtual_time
async def test_all_jobs_together_write_no_more_than_is_allowed_and_the_newest_at_its_turn() -> None:
    async with Run(qps=0.1, burst=1) as run:
        run.accept(1)
        await asyncio.sleep(WRITE_SECONDS + 1)
        run.accept(2)
        await asyncio.sleep(WRITE_SECONDS + 1)
        run.accept(3)
        await asyncio.sleep(20)
    assert run.api.percents == [1, 3]


@on_virtual_time
async def test_what_fails_is_tried_again_unless_a_newer_one_came() -> None:
    async with Run() as run:
        run.api.errors = [TargetUnreachable("down"), _refusal(ForbiddenError, 403)]
        run.accept(1)
        await asyncio.sleep(5)
        assert run.api.percents == [1, 1, 1]
        run.api.errors = [TargetUnreachable("down")]
        run.accept(2)
        await asyncio.sleep(0.001)
        run.accept(3)
        await asyncio.sleep(5)
    assert run.api.percents[3:] in ([2, 3], [3, 3])


def _refusal(kind: type[Any], code: int) -> Any:
    return kind(Status(code=code, reason="", message="no"))


@on_virtual_time
async def test_what_can_never_be_written_is_dropped() -> None:
    async with Run() as run:
        for error in (_refusal(InvalidError, 422), _refusal(NotFoundError, 404)):
            run.api.errors = [error]
            run.accept(1)
            await asyncio.sleep(60)
    assert run.api.percents == [1, 1]


@on_virtual_time
async def test_a_newer_report_that_another_replica_wrote_stays() -> None:
    async with Run() as run:
        run.accept(1)
        await asyncio.sleep(0.1)
        run.accept(2)
        put_job(run.caches, trainerStatus={"lastUpdatedTime": "2026-03-01T12:00:01Z"})
        await asyncio.sleep(10)
    # A time that is still to come says nothing; one that has passed does.
    assert run.api.percents == [1, 2]
    async with Run() as run:
        run.accept(1, NOW - timedelta(minutes=1))
        put_job(run.caches, trainerStatus={"lastUpdatedTime": "2026-03-01T11:59:30Z"})
        await asyncio.sleep(10)
    assert run.api.percents == []


@on_virtual_time
async def test_a_report_is_not_written_to_another_job_of_the_name() -> None:
    async with Run() as run:
        run.accept(1)
        await asyncio.sleep(0.1)
        run.accept(2)
        put_job(run.caches, uid="job-2")
        await asyncio.sleep(10)
    assert run.api.percents == [1]


@on_virtual_time
async def test_what_waits_at_the_end_is_written_once() -> None:
    run = Run()
    async with run:
        run.accept(1)
        await asyncio.sleep(0.1)
        run.accept(2)
    assert run.api.percents == [1]
    await run.reports.flush()
    await run.reports.flush()
    assert run.api.percents == [1, 2]


@on_virtual_time
async def test_the_end_does_not_wait_for_a_server_that_is_down() -> None:
    run = Run()
    run.accept(1)
    run.api.errors = [TargetUnreachable("down")]
    await run.reports.flush()
    assert run.api.percents == [1]


@on_virtual_time
async def test_what_is_known_about_a_job() -> None:
    run = Run()
    assert run.reports.find("ns", "nobody") is None
    assert run.reports.find("ns", "demo") == JobProgress(name="demo")
    put_job(run.caches, trainerStatus={"lastUpdatedTime": "2026-03-01T11:00:00Z"})
    assert run.reports.find("ns", "demo") == JobProgress(name="demo", last=NOW - timedelta(hours=1))
    # A clock that ran ahead shuts nobody out.
    put_job(run.caches, trainerStatus={"lastUpdatedTime": "2027-01-01T00:00:00Z"})
    assert run.reports.find("ns", "demo") == JobProgress(name="demo")
    run.accept(1, NOW - timedelta(minutes=1))
    assert run.reports.find("ns", "demo") == JobProgress(name="demo", last=NOW - timedelta(minutes=1))
    put_job(run.caches, trainerStatus={"lastUpdatedTime": "2026-03-01T12:00:00Z"})
    assert run.reports.find("ns", "demo") == JobProgress(name="demo", last=NOW)
    complete = {"type": "Complete", "status": "True", "reason": "Done", "message": ""}
    put_job(run.caches, conditions=[{**complete, "lastTransitionTime": "2026-03-01T12:00:00Z"}])
    found = run.reports.find("ns", "demo")
    assert found is not None
    assert found.is_finished


@on_virtual_time
async def test_a_job_that_reports_too_often_is_told_to_wait() -> None:
    run = Run()
    taken = [run.reports.admit("ns", "demo") for _ in range(100)]
    assert taken.count(True) == 30
    await asyncio.sleep(1)
    assert [run.reports.admit("ns", "demo") for _ in range(11)].count(True) == 10
