"""What a TrainJob reported before a suspension, on a real API server; the progress endpoint is played."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kube.operating import People, Running, operating, runtime, train_job
from trainwright.api.constants import API_VERSION, STATUS_FIELD_MANAGER, TRAIN_JOB
from trainwright.cluster.kube.config import Connection
from trainwright.cluster.kube.requests import build_apply
from trainwright.cluster.kube.transport import AiohttpTransport


@pytest.fixture
async def operator(operator_connection: Connection, namespace: str) -> AsyncIterator[Running]:
    async with operating(operator_connection, namespace) as running:
        yield running


async def test_what_was_reported_is_kept_while_a_job_rests_and_goes_when_it_is_resumed(
    people: People, operator: Running, transport: AiohttpTransport
) -> None:
    """It is another field manager's, and the operator takes it away."""
    reported = {"progressPercentage": 40, "lastUpdatedTime": "2026-03-01T12:00:00Z"}
    await people.create(runtime())
    await people.create(train_job())
    await people.set_pods("Running", 1)
    await people.until_phase("Running")
    report = {
        "apiVersion": API_VERSION,
        "kind": TRAIN_JOB,
        "metadata": {"namespace": people.namespace, "name": "demo"},
        "status": {"trainerStatus": reported},
    }
    await transport.request(build_apply(report, STATUS_FIELD_MANAGER, force=True, subresource="status"))
    await people.edit({"spec": {"suspend": True}})
    await people.until_pods(0)
    resting = await people.until_status(lambda status: status["jobsStatus"][0]["active"] == 0)
    assert resting["trainerStatus"] == reported

    await people.edit({"spec": {"suspend": False}})
    await people.set_pods("Running", 1)
    running = await people.until_phase("Running")
    assert "trainerStatus" not in running
