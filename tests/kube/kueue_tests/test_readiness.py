"""What Kueue learns from the counters of a TrainJob: whether pods are ready, and which are needed no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kube.control_plane import ControlPlane
from kube.kueue import Kueue
from kube.kueue_tests.pods import watching_pods
from kube.kueue_tests.queues import Queues, has
from kube.kueue_tests.runtimes import after, build_runtime, build_step
from kube.kueue_tests.test_eviction import patch_node
from kube.kwok import EXIT_CODE
from kube.operating import People, Running, condition, eventually, runtime
from trainwright.api.meta import Json

SOURCE = {"dataset": {"storageUri": "hf://owner/name"}}
INITIALIZER = build_step("dataset-initializer", "dataset-initializer")


def count(status: Json, name: str) -> Json:
    """The counters of one step; none as long as nothing is counted."""
    return next((entry for entry in status.get("jobsStatus") or () if entry["name"] == name), {"ready": 0})


@pytest.fixture(scope="module")
def pods_ready_timeout(request: pytest.FixtureRequest, kueue: Kueue) -> Iterator[str]:
    """Kueue that takes the quota back from jobs whose pods are not ready after that time."""
    strategy = {"timestamp": "Eviction", "backoffBaseSeconds": 2, "backoffMaxSeconds": 4}
    kueue.stop()
    kueue.start(waitForPodsReady={"timeout": request.param, "requeuingStrategy": strategy})
    yield request.param
    kueue.stop()
    kueue.start()


@pytest.mark.parametrize("pods_ready_timeout", ["5s"], indirect=True)
async def test_a_job_whose_pods_do_not_start_makes_room_and_tries_again(
    pods_ready_timeout: str, people: People, queues: Queues, operator: Running, control_plane: ControlPlane
) -> None:
    """1. A job is admitted; no machine fits its pods. 2. Kueue takes its quota back: the pods go. 3. There
    is a machine: Kueue admits the job again, and hears that its pods are ready.
    """
    await queues.add({"blue": {"cpu": "2"}})
    await queues.add_runtime(runtime())
    picky = patch_node(nodeSelector={"disk": queues.namespace})
    await people.create(queues.job(trainer={"numNodes": 2}, runtimePatches=[picky]))
    await queues.until("Admitted")
    first = {pod["metadata"]["uid"] for pod in await people.until_pods(2)}
    assert has(await queues.until("PodsReady", "False"), "PodsReady", "False")
    workload = await queues.until("Evicted")
    assert condition(workload["status"], "Evicted")["reason"] == "PodsReadyTimeout"
    await people.until_status(lambda status: status.get("cause", {}).get("reason") == "PodsReadyTimeout")
    await queues.until("QuotaReserved", "False")
    # Those of the next try may have come by now.
    assert not first & {pod["metadata"]["uid"] for pod in await people.list("Pod")}

    label = {"metadata": {"labels": {"disk": queues.namespace}}}
    control_plane.call("PATCH", "/api/v1/nodes/blue-1", label, "application/merge-patch+json")
    await queues.until("PodsReady")
    await people.until_phase("Running")
    assert {pod["spec"]["nodeName"] for pod in await people.until_pods(2)} == {"blue-1"}


@pytest.mark.parametrize("pods_ready_timeout", ["10m"], indirect=True)
async def test_pods_are_ready_once_all_steps_are_ready_or_done(
    pods_ready_timeout: str, people: People, queues: Queues, operator: Running
) -> None:
    """The time of an initializer counts: the timeout has to be longer than it takes."""
    await queues.add({"blue": {"cpu": "8", "memory": "64Gi"}})
    node = after(build_step("node", "trainer"), "dataset-initializer")
    await queues.add_runtime(build_runtime(INITIALIZER, node, numNodes=2))
    await people.create(queues.job(runtime="made", initializer=SOURCE))
    await people.until_status(lambda status: count(status, "dataset-initializer")["ready"])
    assert not has(await queues.until("Admitted"), "PodsReady")
    await queues.finish("demo", 1)
    await queues.until("PodsReady")
    status = await people.status()
    assert (count(status, "dataset-initializer")["succeeded"], count(status, "node")["ready"]) == (1, 1)


@pytest.mark.parametrize("pods_ready_timeout", ["10m"], indirect=True)
async def test_slices_are_ready_and_done_together(
    pods_ready_timeout: str, people: People, queues: Queues, operator: Running
) -> None:
    """1. Two slices run: Kueue hears that the job is ready. 2. The first is done: what it held stays with the
    job, for Kueue would take that for all. 3. The other is done, and so is the job.
    """
    await queues.add({"blue": {"cpu": "8", "memory": "64Gi"}})
    await queues.add_runtime(build_runtime(build_step("node", "trainer"), numNodes=2, nodesPerSlice=2))
    await people.create(queues.job(runtime="made", trainer={"numNodes": 4}))
    await queues.until("PodsReady")
    done = {"metadata": {"annotations": {EXIT_CODE: "0"}}}
    pods = {pod["spec"]["hostname"]: pod["metadata"]["name"] for pod in await people.until_pods(4)}
    for host in ("demo-node-0-0", "demo-node-0-1"):
        await people.edit(done, "Pod", pods[host])

    async def is_first_done() -> bool:
        job_set = await people.find("JobSet")
        [counted] = (job_set or {})["status"]["replicatedJobsStatus"]
        return (counted["succeeded"], counted["ready"]) == (1, 1)

    await eventually(is_first_done)
    status = await people.until_status(lambda status: count(status, "node")["ready"] == 1)
    assert (status["phase"], count(status, "node")["succeeded"]) == ("Running", 0)
    for host in ("demo-node-1-0", "demo-node-1-1"):
        await people.edit(done, "Pod", pods[host])
    status = await people.until_phase("Complete")
    assert count(status, "node")["succeeded"] == 1
    workload = await queues.until("Finished")
    assert workload["status"].get("reclaimablePods", []) in ([], [{"name": "node", "count": 4}])


async def test_what_a_finished_initializer_held_goes_to_the_next_job_and_it_never_runs_again(
    people: People, queues: Queues, operator: Running
) -> None:
    """1. A job with an initializer and two nodes holds all of the quota. 2. The initializer is done: the next
    job gets its share. 3. The first is evicted, and comes back: only its nodes run again.
    """
    await queues.add({"blue": {"cpu": "3500m", "memory": "64Gi"}})
    node = after(build_step("node", "trainer"), "dataset-initializer")
    await queues.add_runtime(build_runtime(INITIALIZER, node, numNodes=2))
    await queues.add_runtime(runtime())
    async with watching_pods(people) as seen:
        await people.create(queues.job("first", runtime="made", initializer=SOURCE))
        await queues.until("Admitted", name="first")
        await people.create(queues.job("second"))
        await queues.until("QuotaReserved", "False", "second")
        await queues.finish("first", 1)
        await people.until_phase("Running", "second")
        workload = await queues.until_workload(lambda w: w["status"].get("reclaimablePods"), "first")
        assert workload["status"]["reclaimablePods"] == [{"name": "dataset-initializer", "count": 1}]
        await people.until_phase("Running", "first")

        await queues.edit("first", {"spec": {"active": False}})
        await queues.until("QuotaReserved", "False", "first")
        await queues.edit("first", {"spec": {"active": True}})
        await people.until_phase("Running", "first")
    assert len(seen.of("first", "dataset-initializer")) == 1
    assert len(seen.of("first", "node")) == 4
