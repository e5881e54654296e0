"""Jobs whose pods Kueue places close to each other: it holds them back, chooses nodes, and lets them go."""

from __future__ import annotations

from kube.kueue import build_topology
from kube.kueue_tests.pods import watching_pods
from kube.kueue_tests.queues import FLAVORS, Queues
from kube.kueue_tests.test_eviction import patch_node
from kube.operating import People, Running, runtime

HOST = "kubernetes.io/hostname"
GATE = {"name": "kueue.x-k8s.io/topology"}


async def test_the_pods_of_a_job_are_placed_in_one_rack_each_time_that_it_is_admitted(
    people: People, queues: Queues, operator: Running
) -> None:
    """1. A job asks for one rack: its pods are gated, and let go with the node that Kueue chose. 2. It is
    evicted, and admitted again: the new pods have the same.
    """
    topology = f"{queues.namespace}-racks"
    await queues.create(build_topology(topology, ["rack", HOST]))
    flavors = {"blue": {**FLAVORS["blue"], "topologyName": topology}}
    await queues.add({"blue": {"cpu": "100"}}, flavors)
    await queues.add_runtime(runtime())
    near = patch_node({"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}})
    async with watching_pods(people) as seen:
        await people.create(queues.job(trainer={"numNodes": 4}, runtimePatches=[near]))
        for turn in range(2):
            await people.until_phase("Running")
            pods = await people.until_pods(4)
            assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
            for pod in pods:
                spec = pod["spec"]
                assert spec["nodeSelector"] == {"pool": "blue", HOST: spec["nodeName"]}
                assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "node"
            if turn == 0:
                await queues.edit("demo", {"spec": {"active": False}})
                await queues.until("QuotaReserved", "False")
                await queues.edit("demo", {"spec": {"active": True}})
                await people.until_pods(4)
    assert len(seen.pods) == 8
    job_set = await people.find("JobSet")
    (job,) = job_set["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["template"]["spec"]["schedulingGates"] == [GATE]


async def test_a_job_that_fits_into_no_rack_waits_and_says_why(
    people: People, queues: Queues, operator: Running
) -> None:
    topology = f"{queues.namespace}-racks"
    await queues.create(build_topology(topology, ["rack", HOST]))
    await queues.add({"blue": {"cpu": "200"}}, {"blue": {**FLAVORS["blue"], "topologyName": topology}})
    await queues.add_runtime(runtime())
    near = patch_node({"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}})
    resources = {"requests": {"cpu": "40"}}
    await people.create(
        queues.job(trainer={"numNodes": 2, "resourcesPerNode": resources}, runtimePatches=[near])
    )
    waiting = await queues.until("QuotaReserved", "False")
    (reserved,) = [c for c in waiting["status"]["conditions"] if c["type"] == "QuotaReserved"]
    assert "topology" in reserved["message"]
    await people.until_phase("Queued")
    assert await people.find("JobSet") is None
