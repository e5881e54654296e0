"""etcd answers late, or not at all for a while: it takes longer, and nothing is lost or done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from kube.operating import SILENT, People, condition, operating, runtime, train_job
from kube.outage_tests.conftest import LinkedControlPlane
from kube.slow_link import SlowLink
from trainwright.cluster.kube.config import Connection
from trainwright.operator.configuration import Configuration, LeaderElectionSettings

NAMES = [f"job-{number}" for number in range(5)]
# Ten times what a healthy etcd takes at its worst; the API server gives up after a minute.
SLOW_SECONDS = 0.25


@pytest.fixture
def link(control_plane: LinkedControlPlane) -> Iterator[SlowLink]:
    yield control_plane.link
    control_plane.link.delay_seconds = 0.0
    control_plane.link.release()


def electing(namespace: str) -> Configuration:
    return Configuration(
        **SILENT, leader_election=LeaderElectionSettings(leader_elect=True, resource_namespace=namespace)
    )


async def run_to_the_end(people: People, name: str) -> None:
    for phase, then in (("Running", "Running"), ("Succeeded", "Complete")):
        for pod in await people.until_pods(1, name):
            await people.set_pod(pod, phase)
        status = await people.until_phase(then, name)
        assert condition(status, "ResourcesCreated") is None


async def test_jobs_run_to_their_end_above_a_slow_etcd_and_the_lease_is_kept(
    people: People, operator_connection: Connection, link: SlowLink
) -> None:
    await people.create(runtime())
    configuration = electing(people.namespace)
    async with operating(operator_connection, people.namespace, configuration=configuration) as running:
        link.delay_seconds = SLOW_SECONDS
        for name in NAMES:
            await people.create(train_job(name))
        await asyncio.gather(*(run_to_the_end(people, name) for name in NAMES))
        assert running.is_leading()
        for name in NAMES:
            assert running.transport.writes.count(f"PATCH jobsets/{name}") == 1
    assert len(await people.list("JobSet")) == len(NAMES)


async def test_an_etcd_that_stands_still_for_a_while_is_waited_for(
    people: People, operator_connection: Connection, link: SlowLink
) -> None:
    """1. Jobs are made, and etcd stands still before the operator could do all. 2. It goes on after some
    seconds, which the lease of 15 s survives. 3. Each job runs, once."""
    await people.create(runtime())
    configuration = electing(people.namespace)
    async with operating(operator_connection, people.namespace, configuration=configuration) as running:
        for name in NAMES:
            await people.create(train_job(name))
        link.hold()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(4):
                await people.create(train_job("late"))
        link.release()
        await asyncio.gather(*(run_to_the_end(people, name) for name in NAMES))
        assert running.is_leading()
    assert {obj["metadata"]["name"] for obj in await people.list("JobSet")} >= set(NAMES)
