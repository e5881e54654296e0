"""Why a gang that does not fit is not placed, as a real scheduler of gangs tells it."""

from __future__ import annotations

from kube.gang_tests.jobs import COSCHEDULING, gang_runtime, needing, step
from kube.gang_tests.test_gangs import COSCHEDULED, device
from kube.operating import People, operating, train_job
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import Connection

__all__ = ["device"]


async def test_a_gang_with_one_pod_too_many_is_named(
    people: People, operator_connection: Connection, device: str
) -> None:
    """Six pods would fit; the gang has seven."""
    trainer = step("node", ancestor="trainer", ends=False, pod={"schedulerName": COSCHEDULING})
    await people.create(gang_runtime(COSCHEDULED, trainer))
    size = {"numNodes": 7, "resourcesPerNode": needing(device)}

    def is_named(status: Json) -> bool:
        return (status.get("cause") or {}).get("reason") == "GangNotComplete"

    async with operating(operator_connection, people.namespace) as operator:
        await people.create(train_job(runtime="gang", trainer=size))
        cause = (await people.until_status(is_named))["cause"]
        writes = [line for line in operator.transport.writes if line.endswith("trainjobs/demo/status")]
    assert (cause["layer"], cause["kind"], cause["name"]) == ("PodGroup", "PodGroup", "demo")
    assert cause["message"].startswith("PodGroup demo needs 7 pods at once: pod demo-node-0-")
    assert len(writes) <= 5
