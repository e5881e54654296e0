"""TrainJobs that are placed whole or not at all, by two real schedulers on simulated nodes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from kube.gang_tests.jobs import (
    COSCHEDULING,
    PATIENCE_SECONDS,
    count_placed,
    gang_runtime,
    needing,
    step,
)
from kube.kwok import EXIT_CODE, SimulatedNodes
from kube.operating import People, eventually, operating, train_job
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json
from trainwright.api.runtime import TrainingRuntime
from trainwright.api.trainjob import TrainJob
from trainwright.cluster.kube.config import Connection
from trainwright.render import render

COSCHEDULED: Json = {"coscheduling": {"scheduleTimeoutSeconds": 10}}
BY_COSCHEDULING = {"schedulerName": COSCHEDULING}
GROUP = "PodGroup.scheduling.x-k8s.io"


@pytest.fixture
def device(simulated_nodes: SimulatedNodes) -> Iterator[str]:
    """A device of which two nodes have three each."""
    name = f"example.com/{uuid.uuid4().hex[:8]}"
    nodes = [f"{name.partition('/')[2]}-{number}" for number in range(2)]
    simulated_nodes.add(nodes, {"cpu": "32", "memory": "64Gi", "pods": "50", name: "3"})
    yield name
    simulated_nodes.remove(nodes)


def trainer(**fields: object) -> Json:
    return step("node", ancestor="trainer", **fields)


SCHEDULERS = {
    "coscheduling": (COSCHEDULED, BY_COSCHEDULING),
    "native": ({"native": {}}, {}),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("policy", "pod"), SCHEDULERS.values(), ids=SCHEDULERS)
async def test_of_two_jobs_that_fit_one_at_a_time_one_runs_and_the_other_holds_nothing(
    people: People, operator_connection: Connection, device: str, policy: Json, pod: Json
) -> None:
    """1. One job of four pods runs on six devices. 2. Another of four comes: none of its pods is placed,
    though two would fit. 3. The first ends, and the second runs."""
    await people.create(gang_runtime(policy, trainer(ends=False, pod=pod)))
    size = {"numNodes": 4, "resourcesPerNode": needing(device)}
    async with operating(operator_connection, people.namespace):
        await people.create(train_job("first", "gang", trainer=size))
        await people.until_phase("Running", "first")
        await people.create(train_job("second", "gang", trainer=size))
        await people.until_pods(4, "second")
        await eventually(lambda: _was_tried(people, "second"))
        waits = "Unschedulable" if "native" in policy else "GangNotComplete"
        await people.until_status(lambda status: (status.get("cause") or {}).get("reason") == waits, "second")
        assert (await count_placed(people, "first"), await count_placed(people, "second")) == (4, 0)

        await people.delete("TrainJob", "first")
        await people.until_status(lambda status: status.get("phase") == "Running", "second", PATIENCE_SECONDS)
        assert await count_placed(people, "second") == 4


async def test_a_gang_waits_for_ever_beside_exclusive_placement(
    people: People, operator_connection: Connection, device: str
) -> None:
    """What admission warns about: the leader waits to be placed, and JobSet waits for that."""
    made = gang_runtime(COSCHEDULED, trainer(ends=False, pod=BY_COSCHEDULING))
    topology = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"}
    made["spec"]["template"]["metadata"] = {"annotations": topology}
    await people.create(made)
    size = {"numNodes": 2, "resourcesPerNode": needing(device)}
    async with operating(operator_connection, people.namespace):
        await people.create(train_job("demo", "gang", trainer=size))
        await eventually(lambda: _was_tried(people, "demo"))

        async def is_worker_refused() -> bool:
            events = await people.list("Event")
            return any("follower pod" in (event.get("message") or "") for event in events)

        await eventually(is_worker_refused)
        [leader] = await people.until_pods(1)
        assert leader["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"
        assert await count_placed(people, "demo") == 0


async def test_without_a_gang_the_second_job_takes_what_it_cannot_use(
    people: People, operator_connection: Connection, device: str
) -> None:
    """The same without a policy: what the test above shows is not so by itself."""
    await people.create(gang_runtime(None, trainer(ends=False)))
    size = {"numNodes": 4, "resourcesPerNode": needing(device)}
    async with operating(operator_connection, people.namespace):
        await people.create(train_job("first", "gang", trainer=size))
        await people.until_phase("Running", "first")
        await people.create(train_job("second", "gang", trainer=size))

        async def holds_two() -> bool:
            return await count_placed(people, "second") == 2

        await eventually(holds_two)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("policy", "pod"), SCHEDULERS.values(), ids=SCHEDULERS)
async def test_jobs_that_fit_one_at_a_time_all_end(
    people: People, operator_connection: Connection, device: str, policy: Json, pod: Json
) -> None:
    await people.create(gang_runtime(policy, trainer(pod=pod)))
    names = ["one", "two"]
    size = {"numNodes": 4, "resourcesPerNode": needing(device)}
    async with operating(operator_connection, people.namespace):
        await asyncio.gather(*(people.create(train_job(name, "gang", trainer=size)) for name in names))
        for name in names:
            await people.until_status(
                lambda status: status.get("phase") == "Complete", name, PATIENCE_SECONDS
            )


async def test_initializers_that_come_before_do_not_keep_the_gang_from_starting(
    people: People, operator_connection: Connection, device: str
) -> None:
    """The scheduler would wait for nodes that are made only when the initializer is complete."""
    initializer = step("dataset-initializer", ancestor="dataset-initializer", ends=False, pod=BY_COSCHEDULING)
    after = [{"name": "dataset-initializer", "status": "Complete"}]
    await people.create(gang_runtime(COSCHEDULED, initializer, trainer(pod=BY_COSCHEDULING, dependsOn=after)))
    async with operating(operator_connection, people.namespace):
        size = {"numNodes": 3, "resourcesPerNode": needing(device)}
        await people.create(train_job(runtime="gang", trainer=size))
        group = await people.until_found(GROUP)
        [pod] = await people.until_pods(1)
        await people.edit({"metadata": {"annotations": {EXIT_CODE: "0"}}}, "Pod", pod["metadata"]["name"])
        await people.until_status(lambda status: status.get("phase") == "Complete", seconds=PATIENCE_SECONDS)
        await people.until_gone(GROUP)
    assert group["spec"]["minMember"] == 3


async def test_a_launcher_joins_the_nodes_that_it_waits_for(
    people: People, operator_connection: Connection, device: str
) -> None:
    after = [{"name": "node", "status": "Ready"}]
    launcher = step("launcher", pod=BY_COSCHEDULING, dependsOn=after)
    await people.create(
        gang_runtime(
            COSCHEDULED,
            trainer(ends=False, pod=BY_COSCHEDULING),
            launcher,
            successPolicy={"operator": "All", "targetReplicatedJobs": ["launcher"]},
        )
    )
    async with operating(operator_connection, people.namespace):
        size = {"numNodes": 3, "resourcesPerNode": needing(device)}
        await people.create(train_job(runtime="gang", trainer=size))
        await people.until_status(lambda status: status.get("phase") == "Complete", seconds=PATIENCE_SECONDS)


async def test_the_operator_applies_what_is_rendered_offline_and_the_job_owns_it(
    people: People, operator_connection: Connection, device: str
) -> None:
    runtime = gang_runtime(COSCHEDULED, trainer(ends=False, pod=BY_COSCHEDULING))
    await people.create(runtime)
    size = {"numNodes": 2, "resourcesPerNode": needing(device)}
    async with operating(operator_connection, people.namespace):
        stored = await people.create(train_job(runtime="gang", trainer=size))
        group = await people.until_found(GROUP)
        pods = await people.until_pods(2)
    offline, _ = render(parse_object(stored, TrainJob), parse_object(runtime, TrainingRuntime))
    assert group["spec"] == offline["spec"]
    assert group["spec"]["minResources"] == {device: "2"}
    assert group["metadata"]["ownerReferences"] == offline["metadata"]["ownerReferences"]
    assert {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in pods} == {"demo"}


@pytest.mark.parametrize(("policy", "pod"), SCHEDULERS.values(), ids=SCHEDULERS)
async def test_a_job_that_is_resumed_with_more_nodes_is_a_larger_gang(
    people: People, operator_connection: Connection, device: str, policy: Json, pod: Json
) -> None:
    await people.create(gang_runtime(policy, trainer(ends=False, pod=pod)))
    async with operating(operator_connection, people.namespace):
        size = {"numNodes": 2, "resourcesPerNode": needing(device)}
        await people.create(train_job(runtime="gang", trainer=size))
        await people.until_phase("Running")
        await people.edit({"spec": {"suspend": True}})
        await people.until_pods(0)
        await people.until_gone(GROUP)  # it would hold room in its scheduler's queue
        await people.edit({"spec": {"suspend": False, "trainer": {"numNodes": 5}}})
        await people.until_pods(5)

        async def is_placed() -> bool:
            return await count_placed(people, "demo") == 5

        await eventually(is_placed, PATIENCE_SECONDS)
        if "native" in policy:
            group = await people.until_found("PodGroup.scheduling.k8s.io", "demo-5")
            assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 5}}
        else:
            group = await people.until_found(GROUP)
            assert (group["spec"]["minMember"], group["spec"]["minResources"]) == (5, {device: "5"})


async def _was_tried(people: People, job: str) -> bool:
    """Say whether the scheduler has looked at the pods of a TrainJob, and left them where they are."""
    labels = {"jobset.sigs.k8s.io/jobset-name": job}
    pods = (await people.cluster.list("Pod", people.namespace, labels)).items
    conditions = [c for pod in pods for c in pod["status"].get("conditions") or ()]
    return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)


async def test_the_pod_group_of_somebody_else_is_left_alone_and_told(
    people: People, operator_connection: Connection
) -> None:
    other = await people.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}})
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "other",
        "uid": other["metadata"]["uid"],
        "controller": True,
    }
    group = await people.create(
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "demo", "ownerReferences": [owner]},
            "spec": {"minMember": 7},
        }
    )
    await people.create(gang_runtime(COSCHEDULED, trainer(pod=BY_COSCHEDULING)))
    async with operating(operator_connection, people.namespace):
        await people.create(train_job(runtime="gang"))
        status = await people.until_status(lambda status: status.get("cause"))
    assert (status["cause"]["kind"], status["cause"]["name"]) == ("PodGroup", "demo")
    assert "controller" in status["cause"]["message"].lower()
    assert await people.find(GROUP) == group
    assert await people.find("JobSet") is None


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("policy", "pod"), SCHEDULERS.values(), ids=SCHEDULERS)
async def test_a_job_that_may_begin_with_fewer_nodes_is_placed_where_not_all_fit(
    people: People, operator_connection: Connection, device: str, policy: Json, pod: Json
) -> None:
    """Eight pods, of which four are enough, for six devices: six are placed. A gang of eight would wait."""
    made = gang_runtime(policy, trainer(ends=False, pod=pod))
    made["spec"]["mlPolicy"]["torch"] = {"elastic": {"minNodes": 4, "maxNodes": 8}}
    await people.create(made)
    size = {"numNodes": 8, "resourcesPerNode": needing(device)}
    async with operating(operator_connection, people.namespace):
        await people.create(train_job("demo", "gang", trainer=size))

        async def are_six_placed() -> bool:
            return await count_placed(people, "demo") == 6

        await eventually(are_six_placed, PATIENCE_SECONDS)
