"""TrainJobs of many pods, which are scheduled, run and end as on a real cluster."""

from __future__ import annotations

import os

import pytest

from kube.kwok import ENDS_AFTER, EXIT_CODE, MESSAGE, SimulatedNodes
from kube.operating import People, condition, eventually, operating, runtime, train_job
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import Connection

# So many because the whole chain (JobSet, Job controller, scheduler, kubelets, and the operator) takes 24 s
# for 1,000 pods on two cores that others use too. TRAINWRIGHT_TEST_PODS chooses another number.
PODS = int(os.environ.get("TRAINWRIGHT_TEST_PODS", "300"))
PATIENCE_SECONDS = 90.0


@pytest.fixture(scope="module")
def nodes(simulated_nodes: SimulatedNodes) -> list[str]:
    """Ten machines with room for all pods."""
    names = [f"many-{number}" for number in range(10)]
    simulated_nodes.add(names, {"cpu": "200", "memory": "2Ti", "pods": "200"})
    return names


def patch(**annotations: str) -> Json:
    """A runtime patch that tells the simulated pods what to do."""
    template = {"metadata": {"annotations": annotations}}
    return {
        "manager": "example.com/test",
        "trainingRuntimeSpec": {
            "template": {
                "spec": {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": template}}}]}
            }
        },
    }


def counts(status: Json) -> dict[str, int]:
    """Return the counters of the one replicated job that are not zero."""
    entries = status.get("jobsStatus") or [{}]
    return {name: count for name, count in entries[0].items() if name != "name" and count}


@pytest.mark.timeout(300)  # for a thousand
async def test_a_job_of_many_pods_runs_is_suspended_resumed_and_finishes(
    people: People, operator_connection: Connection, nodes: list[str]
) -> None:
    await people.create(runtime())
    async with operating(operator_connection, people.namespace) as running:
        await people.create(train_job(trainer={"numNodes": PODS}))
        status = await people.until_status(
            lambda status: status.get("phase") == "Running" and counts(status).get("ready"),
            seconds=PATIENCE_SECONDS,
        )
        assert counts(status) == {"active": 1, "ready": 1}
        pods = await people.until_pods(PODS)
        assert {pod["spec"]["nodeName"] for pod in pods} == set(nodes)
        assert {pod["status"]["phase"] for pod in pods} == {"Running"}

        await people.edit({"spec": {"suspend": True}})
        await people.until_status(
            lambda status: condition(status, "Suspended") and counts(status) == {"suspended": 1},
            seconds=PATIENCE_SECONDS,
        )
        assert await people.list("Pod") == []

        await people.edit({"spec": {"suspend": False, "runtimePatches": [patch(**{EXIT_CODE: "0"})]}})
        status = await people.until_status(
            lambda status: status.get("phase") == "Complete", seconds=PATIENCE_SECONDS
        )
        assert counts(status) == {"succeeded": 1}
        # Nothing is written per pod.
        assert len(running.transport.writes) < 40


async def test_a_pod_that_fails_is_found_among_many(
    people: People, operator_connection: Connection, nodes: list[str]
) -> None:
    failing = patch(**{EXIT_CODE: "137", MESSAGE: "out of patience"})
    await people.create(runtime())
    async with operating(operator_connection, people.namespace):
        await people.create(train_job(trainer={"numNodes": 20}, runtimePatches=[failing]))
        status = await people.until_phase("Failed")
    failed = condition(status, "Failed")
    assert "out of patience" in failed["message"]
    assert (status["cause"]["layer"], status["cause"]["kind"]) == ("Container", "Pod")
    assert counts(status) == {"failed": 1}


async def test_a_suspended_job_is_active_until_its_last_pod_is_gone(
    people: People, operator_connection: Connection, nodes: list[str]
) -> None:
    """1. Ten pods run, and take five seconds to end. 2. The job is suspended: its Job counts no pod as active
    from then on. 3. As long as one pod is there, the status says that the job holds its devices."""
    slow = patch(**{ENDS_AFTER: "5s"})
    await people.create(runtime())
    async with operating(operator_connection, people.namespace):
        await people.create(train_job(trainer={"numNodes": 10}, runtimePatches=[slow]))
        await people.until_phase("Running")
        await people.edit({"spec": {"suspend": True}})
        seen = []

        async def is_over() -> bool:
            # The pods first: what is read later may only be newer.
            pods = len(await people.list("Pod"))
            active = (await people.status())["jobsStatus"][0]["active"]
            job = await people.find("Job", "demo-node-0")
            seen.append((pods > 0, active, job["status"].get("active", 0) if job else 0))
            return not active

        await eventually(is_over)
        assert await people.list("Pod") == []
    # There was a time in which only the pods themselves told.
    assert (True, 1, 0) in seen


async def test_a_job_that_fits_nowhere_starts_once_a_machine_is_added(
    people: People, operator_connection: Connection, simulated_nodes: SimulatedNodes, nodes: list[str]
) -> None:
    device = "example.com/device"
    await people.create(runtime())
    async with operating(operator_connection, people.namespace):
        resources = {"limits": {device: "4"}, "requests": {device: "4"}}
        await people.create(train_job(trainer={"numNodes": 2, "resourcesPerNode": resources}))
        status = await people.until_status(lambda status: status.get("cause"))
        assert status["cause"]["reason"] == "Unschedulable"
        assert device in status["cause"]["message"]
        simulated_nodes.add(["devices"], {"cpu": "8", "memory": "8Gi", "pods": "10", device: "8"})
        try:
            status = await people.until_phase("Running")
            assert "cause" not in status
            assert {pod["spec"]["nodeName"] for pod in await people.until_pods(2)} == {"devices"}
        finally:
            simulated_nodes.remove(["devices"])
