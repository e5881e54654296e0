"""What the changes of jobs, JobSets and pods say, as metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from cluster.kube.scripted_server import ScriptedServer, settle
from trainwright.api.meta import Json
from trainwright.operator.caches import Caches
from trainwright.operator.job_metrics import JobMetrics
from trainwright.operator.metrics import Metrics

START = datetime(2026, 1, 1, tzinfo=UTC)
STARTED = "2026-01-01T00:00:00Z"


class Parts:
    def __init__(self, server: ScriptedServer) -> None:
        self.now = START
        self.metrics = Metrics()
        self.caches = Caches(server)
        JobMetrics(self.caches, self.metrics, lambda: self.now)

    def read(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(metric, labels) or 0.0

    def phases(self) -> dict[str, float]:
        found = {}
        for family in self.metrics.registry.collect():
            if family.name == "trainwright_jobs":
                found = {sample.labels["phase"]: sample.value for sample in family.samples}
        return {phase: count for phase, count in found.items() if count}


@asynccontextmanager
async def measuring(server: ScriptedServer) -> AsyncIterator[Parts]:
    parts = Parts(server)
    task = asyncio.create_task(parts.caches.run())
    async with asyncio.timeout(60):
        await parts.caches.wait_until_synced()
    try:
        yield parts
    finally:
        task.cancel()
        await asyncio.wait([task])


def job(name: str = "demo", **status: object) -> Json:
    body: Json = {
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"runtimeRef": {"name": "plain"}},
    }
    return {**body, "status": status} if status else body


def ended(type_: str, reason: str) -> Json:
    condition = {"type": type_, "status": "True", "reason": reason, "message": ""}
    return job(phase=type_, conditions=[{**condition, "lastTransitionTime": STARTED}])


def pod(name: str, created: str) -> Json:
    labels = {"jobset.sigs.k8s.io/jobset-name": "demo"}
    metadata = {"name": name, "namespace": "ns", "labels": labels, "creationTimestamp": created}
    return {"kind": "Pod", "metadata": metadata}


def job_set(status: str, reason: str) -> Json:
    condition = {"type": "RestartingJobSet", "status": status, "reason": reason, "message": ""}
    return {
        "kind": "JobSet",
        "metadata": {"name": "demo", "namespace": "ns"},
        "status": {"conditions": [{**condition, "lastTransitionTime": STARTED}]},
    }


async def test_jobs_are_counted_by_phase_from_the_beginning_to_the_end() -> None:
    server = ScriptedServer()
    server.put(job("old", phase="Complete"))
    async with measuring(server) as parts:
        assert parts.phases() == {"Complete": 1}
        server.put(job())
        await settle()
        assert parts.phases() == {"Complete": 1, "New": 1}
        server.put(job(phase="Running"))
        await settle()
        assert parts.phases() == {"Complete": 1, "Running": 1}
        server.delete("TrainJob", "old")
        await settle()
        assert parts.phases() == {"Running": 1}


async def test_the_time_to_running_counts_from_the_start_of_the_job() -> None:
    server = ScriptedServer()
    server.put(job(phase="Created", startTime=STARTED))
    async with measuring(server) as parts:
        parts.now = START + timedelta(seconds=7)
        server.put(job(phase="Running", startTime=STARTED))
        await settle()
        assert parts.read("trainwright_job_running_seconds_count") == 1
        assert parts.read("trainwright_job_running_seconds_sum") == 7.0


async def test_jobs_that_ran_before_this_process_did_are_not_timed() -> None:
    server = ScriptedServer()
    server.put(job(phase="Running", startTime=STARTED))
    server.put(pod("a", STARTED))
    async with measuring(server) as parts:
        assert parts.read("trainwright_job_running_seconds_count") == 0
        assert parts.read("trainwright_job_first_pod_seconds_count") == 0


async def test_the_first_pod_of_a_job_is_timed_and_no_other() -> None:
    server = ScriptedServer()
    server.put(job(phase="Created", startTime=STARTED))
    async with measuring(server) as parts:
        server.put(pod("a", "2026-01-01T00:00:03Z"))
        server.put(pod("b", "2026-01-01T00:00:09Z"))
        await settle()
        assert parts.read("trainwright_job_first_pod_seconds_count") == 1
        assert parts.read("trainwright_job_first_pod_seconds_sum") == 3.0


async def test_an_end_is_counted_once_with_its_reason() -> None:
    server = ScriptedServer()
    server.put(job(phase="Running"))
    async with measuring(server) as parts:
        for _ in range(2):
            server.put(ended("Failed", "DeadlineExceeded"))
            await settle()
        labels = {"result": "Failed", "reason": "DeadlineExceeded"}
        assert parts.read("trainwright_jobs_finished_total", **labels) == 1


async def test_a_recovery_lasts_from_the_restart_to_the_moment_when_all_are_ready() -> None:
    server = ScriptedServer()
    async with measuring(server) as parts:
        server.put(job_set("True", "DefaultFailurePolicy"))
        await settle()
        parts.now = START + timedelta(seconds=20)
        server.put(job_set("False", "JobsReady"))
        await settle()
        assert parts.read("trainwright_job_recovery_seconds_count") == 1
        assert parts.read("trainwright_job_recovery_seconds_sum") == 20.0


async def test_a_restart_that_ends_in_failure_is_no_recovery() -> None:
    server = ScriptedServer()
    async with measuring(server) as parts:
        server.put(job_set("True", "DefaultFailurePolicy"))
        server.put(job_set("False", "JobSetFailed"))
        await settle()
        assert parts.read("trainwright_job_recovery_seconds_count") == 0
