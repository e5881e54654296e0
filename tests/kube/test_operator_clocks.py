"""An operator whose clock is hours off from everybody else's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from kube.operating import SILENT, People, condition, operating, runtime, train_job
from trainwright.cluster.kube.config import Connection
from trainwright.operator.configuration import Configuration, LeaderElectionSettings

HOURS_OFF = [pytest.param(6, id="six hours ahead"), pytest.param(-6, id="six hours behind")]
TOLERANCE = timedelta(minutes=5)


def off_by(hours: float) -> Callable[[], datetime]:
    return lambda: datetime.now(UTC) + timedelta(hours=hours)


def electing(namespace: str) -> Configuration:
    return Configuration(
        **SILENT, leader_election=LeaderElectionSettings(leader_elect=True, resource_namespace=namespace)
    )


@pytest.mark.parametrize("hours", HOURS_OFF)
async def test_a_job_lives_as_any_other_and_its_deadline_is_not_reached_early(
    people: People, operator_connection: Connection, hours: float
) -> None:
    clock = off_by(hours)
    await people.create(runtime())
    async with operating(operator_connection, people.namespace, clock=clock):
        await people.create(train_job(activeDeadlineSeconds=3600))
        await people.set_pods("Running", 1)
        status = await people.until_phase("Running")
        # Counted from when the operator saw it begin, by the same clock that tells when it is over.
        assert abs(datetime.fromisoformat(status["startTime"]) - clock()) < TOLERANCE
        await people.edit({"spec": {"suspend": True}})
        await people.until_phase("Suspended")
        await people.until_status(lambda status: status["jobsStatus"][0]["active"] == 0)
        await people.edit({"spec": {"suspend": False}})
        await people.set_pods("Succeeded", 1)
        assert condition(await people.until_phase("Complete"), "Failed") is None


@pytest.mark.parametrize("hours", HOURS_OFF)
async def test_a_deadline_is_kept_all_the_same(
    people: People, operator_connection: Connection, hours: float
) -> None:
    await people.create(runtime())
    async with operating(operator_connection, people.namespace, clock=off_by(hours)):
        await people.create(train_job(activeDeadlineSeconds=2))
        status = await people.until_phase("Failed")
        assert condition(status, "Failed")["reason"] == "DeadlineExceeded"


@pytest.mark.parametrize("hours", HOURS_OFF)
async def test_a_finished_job_is_deleted_after_its_time_and_not_before(
    people: People, operator_connection: Connection, hours: float
) -> None:
    await people.create(runtime())
    async with operating(operator_connection, people.namespace, clock=off_by(hours)):
        await people.create(train_job("short", ttlSecondsAfterFinished=1))
        await people.create(train_job("long", ttlSecondsAfterFinished=3600))
        for pod in await people.until_pods(1, "long"):
            await people.set_pod(pod, "Succeeded")
        await people.until_phase("Complete", "long")
        for pod in await people.until_pods(1, "short"):
            await people.set_pod(pod, "Succeeded")
        await people.until_gone("TrainJob", "short")
        assert (await people.status("long"))["phase"] == "Complete"


async def test_replicas_whose_clocks_differ_by_hours_share_one_lease(
    people: People, operator_connection: Connection
) -> None:
    """1. One leads, six hours behind. 2. For the other, six hours ahead, its lease of 15 s seems long over:
    it waits all the same. 3. The first stops. 4. The second goes on at once."""
    await people.create(runtime())
    configuration = electing(people.namespace)
    async with (
        operating(
            operator_connection, people.namespace, configuration=configuration, clock=off_by(-6)
        ) as first,
        operating(
            operator_connection, people.namespace, configuration=configuration, clock=off_by(6), waits=False
        ) as second,
    ):
        for name in ("one", "two"):
            await people.create(train_job(name))
            await people.until_pods(1, name)
        assert (first.is_leading(), second.is_leading()) == (True, False)
        assert second.transport.writes == []
        first.stop()
        await people.create(train_job("three"))
        await people.until_pods(1, "three")
        assert second.is_leading()
