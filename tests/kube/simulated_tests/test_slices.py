"""TrainJobs whose nodes come in slices, on machines that stand in racks: each slice has a rack of its own."""

from __future__ import annotations

from collections import defaultdict

import pytest

from kube.kwok import EXIT_CODE, MESSAGE, RUNS_FOR, SimulatedNodes
from kube.operating import People, condition, eventually, operating, runtime, train_job
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import Connection

RACK = "example.com/rack"
EXCLUSIVE = {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": RACK}}
RACKS = ("a", "b", "c")
PATIENCE_SECONDS = 90.0

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def racks(simulated_nodes: SimulatedNodes) -> None:
    """Three racks of two machines, on which nothing else fits."""
    for rack in RACKS:
        names = [f"rack-{rack}-{number}" for number in range(2)]
        capacity = {"cpu": "8", "memory": "64Gi", "pods": "20", "example.com/chip": "4"}
        simulated_nodes.add(names, capacity, {RACK: rack})


def sliced_runtime(**annotations: str) -> Json:
    """Slices of two nodes, each with all chips of a machine; `annotations` tell the pods what to do."""
    made = runtime(nodes=2)
    made["spec"]["mlPolicy"]["nodesPerSlice"] = 2
    made["spec"]["template"]["metadata"] = EXCLUSIVE
    [replicated_job] = made["spec"]["template"]["spec"]["replicatedJobs"]
    pod = replicated_job["template"]["spec"]["template"]
    pod["metadata"] = {"annotations": annotations}
    pod["spec"]["containers"][0]["resources"] = {"limits": {"example.com/chip": "4"}}
    return made


def find_rack(pod: Json) -> str:
    return str(pod["spec"]["nodeName"].split("-")[1])


def find_slice(pod: Json) -> str:
    return str(pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"])


def counted(status: Json) -> Json:
    """Return the counters of the one replicated job."""
    [entry] = status["jobsStatus"]
    return dict(entry)


def env(pod: Json, name: str) -> Json:
    return next(entry for entry in pod["spec"]["containers"][0]["env"] if entry["name"] == name)


def list_racks(pods: list[Json]) -> dict[str, set[str]]:
    """Return in which racks the pods of each slice are."""
    found: dict[str, set[str]] = defaultdict(set)
    for pod in pods:
        found[find_slice(pod)].add(find_rack(pod))
    return found


async def placed(people: People, count: int) -> list[Json]:
    """Return the pods once all run."""

    async def do_run() -> list[Json] | None:
        pods = [pod for pod in await people.list("Pod") if pod["status"].get("phase") == "Running"]
        return pods if len(pods) == count else None

    return list(await eventually(do_run, PATIENCE_SECONDS))


async def test_each_slice_has_a_rack_of_its_own_and_the_job_completes(
    people: People, operator_connection: Connection, racks: None
) -> None:
    """1. Three slices are placed, one per rack. 2. They are told who leads them. 3. All succeed."""
    await people.create(sliced_runtime())
    async with operating(operator_connection, people.namespace):
        await people.create(train_job(trainer={"numNodes": 6}))
        pods = await placed(people, 6)
        racks_of_slices = list_racks(pods)
        for pod in pods:
            assert env(pod, "TRAINWRIGHT_SLICE_COUNT")["value"] == "3"
            assert (
                env(pod, "TRAINWRIGHT_SLICE_LEADER")["value"] == "demo-node-$(TRAINWRIGHT_SLICE_INDEX)-0.demo"
            )
        assert {slice_: len(found) for slice_, found in racks_of_slices.items()} == {"0": 1, "1": 1, "2": 1}
        assert set().union(*racks_of_slices.values()) == set(RACKS)
        # The name that the leader's address begins with is the host name of a pod.
        assert {pod["spec"]["hostname"] for pod in pods} == {
            f"demo-node-{slice_}-{index}" for slice_ in range(3) for index in range(2)
        }
        await people.until_status(
            lambda status: status.get("phase") == "Running" and counted(status)["ready"] == 1,
            seconds=PATIENCE_SECONDS,
        )

        for pod in pods:
            await people.edit({"metadata": {"annotations": {EXIT_CODE: "0"}}}, "Pod", pod["metadata"]["name"])
        await people.until_status(
            lambda status: status.get("phase") == "Complete" and counted(status)["succeeded"] == 1,
            seconds=PATIENCE_SECONDS,
        )


async def test_after_a_node_is_lost_all_slices_begin_again_each_in_a_rack(
    people: People, operator_connection: Connection, racks: None
) -> None:
    """1. Two slices run. 2. A node of the second fails. 3. All nodes are made anew, and placed so again."""
    made = sliced_runtime()
    made["spec"]["template"]["spec"]["failurePolicy"] = {"maxRestarts": 2}
    await people.create(made)
    async with operating(operator_connection, people.namespace):
        await people.create(train_job(trainer={"numNodes": 4}))
        before = {pod["metadata"]["uid"] for pod in await placed(people, 4)}
        lost = next(pod for pod in await people.list("Pod") if pod["spec"]["hostname"] == "demo-node-1-1")
        await people.edit({"metadata": {"annotations": {EXIT_CODE: "1"}}}, "Pod", lost["metadata"]["name"])

        async def are_made_anew() -> list[Json] | None:
            pods = await placed(people, 4)
            return None if before & {pod["metadata"]["uid"] for pod in pods} else pods

        after = await eventually(are_made_anew, PATIENCE_SECONDS)
        assert {slice_: len(racks) for slice_, racks in list_racks(after).items()} == {"0": 1, "1": 1}
        status = await people.until_status(lambda status: status.get("restarts") == 1)
        assert status["phase"] == "Running"


async def test_a_paused_job_goes_on_with_another_number_of_slices(
    people: People, operator_connection: Connection, racks: None
) -> None:
    """1. One slice runs. 2. It is suspended, and has to be two slices. 3. Four nodes in two racks run."""
    await people.create(sliced_runtime())
    async with operating(operator_connection, people.namespace):
        await people.create(train_job(trainer={"numNodes": 2}))
        await placed(people, 2)
        await people.edit({"spec": {"suspend": True}})
        await people.until_status(
            lambda status: condition(status, "Suspended") and counted(status)["active"] == 0,
            seconds=PATIENCE_SECONDS,
        )
        await people.edit({"spec": {"suspend": False, "trainer": {"numNodes": 4}}})
        pods = await placed(people, 4)
        assert sorted({(find_slice(pod), pod["spec"]["hostname"]) for pod in pods}) == [
            ("0", "demo-node-0-0"),
            ("0", "demo-node-0-1"),
            ("1", "demo-node-1-0"),
            ("1", "demo-node-1-1"),
        ]
        assert len({find_rack(pod) for pod in pods}) == 2


async def test_a_slice_that_fails_fails_the_job_in_its_own_words(
    people: People, operator_connection: Connection, racks: None
) -> None:
    failing = {EXIT_CODE: "3", MESSAGE: "no route to the other slice", RUNS_FOR: "1s"}
    await people.create(sliced_runtime(**failing))
    async with operating(operator_connection, people.namespace):
        await people.create(train_job(trainer={"numNodes": 4}))
        status = await people.until_status(
            lambda status: status.get("phase") == "Failed", seconds=PATIENCE_SECONDS
        )
    assert "no route to the other slice" in condition(status, "Failed")["message"]
