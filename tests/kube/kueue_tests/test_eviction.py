"""Jobs that Kueue takes their quota from, and gives another one later."""

from __future__ import annotations

from typing import Any

from kube.kueue import MANAGER
from kube.kueue_tests.pods import watching_pods
from kube.kueue_tests.queues import FLAVORS, Queues, has
from kube.kwok import ENDS_AFTER
from kube.operating import People, Running, condition, eventually, runtime
from trainwright.api.meta import Json

TURNS = 10
OWN_MANAGER = "example.com/team"


def patch_node(metadata: Json | None = None, **pod: Any) -> Json:
    """A runtime patch of somebody who is not Kueue."""
    template = {"metadata": metadata or {"labels": {"team": "a"}}, "spec": pod}
    job = {"name": "node", "template": {"spec": {"template": template}}}
    return {
        "manager": OWN_MANAGER,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
    }


def get_patch(job: Json, manager: str) -> Json:
    (found,) = [patch for patch in job["spec"]["runtimePatches"] if patch["manager"] == manager]
    return dict(found["trainingRuntimeSpec"]["template"].get("spec") or {})


async def test_a_job_is_preempted_and_comes_back_ten_times(
    people: People, queues: Queues, operator: Running
) -> None:
    """1. A job runs on all of the quota; its pods need time to end. 2. One of a higher priority takes the
    quota, once they are gone; it runs, and ends or is deleted. 3. The first comes back with new pods. 4. So
    ten times; then it ends as any job.
    """
    await queues.add({"blue": {"cpu": "2"}})
    await queues.add_priorities(low=1, high=100)
    await queues.add_runtime(runtime())
    slow = patch_node({"annotations": {ENDS_AFTER: "300ms"}})
    async with watching_pods(people) as seen:
        await people.create(queues.job("low", "low", trainer={"numNodes": 2}, runtimePatches=[slow]))
        await people.until_phase("Running", "low")
        job_set = await people.find("JobSet", "low")
        for turn in range(TURNS):
            high = f"high-{turn}"
            await people.create(queues.job(high, "high", trainer={"numNodes": 2}))
            await people.until_phase("Running", high)
            status = await people.status("low")
            assert (status["phase"], status["jobsStatus"][0]["active"]) == ("Queued", 0)
            await people.until_pods(0, "low")
            if turn % 2:
                await queues.finish(high, 2)
                await people.until_phase("Complete", high)
            else:
                seen.give_up(high)
                await people.delete("TrainJob", high)
            await people.until_phase("Running", "low")
        pods = await people.until_pods(2, "low")
        await queues.finish("low", 2)
        status = await people.until_phase("Complete", "low")
    assert {pod["spec"]["nodeName"] for pod in pods} <= {"blue-0", "blue-1"}
    # New pods each time, and none before those that it takes the place of are gone.
    assert len(seen.of("low")) == 2 * (TURNS + 1)
    assert seen.most_cpus == 2
    assert (await people.find("JobSet", "low"))["metadata"]["uid"] == job_set["metadata"]["uid"]
    assert status["restarts"] == 0
    await queues.until("Finished", name="low")


async def test_a_job_comes_back_on_another_flavor_and_keeps_nothing_of_the_first(
    people: People, queues: Queues, operator: Running
) -> None:
    """1. A job runs in the pool blue. 2. It is evicted, and blue closed. 3. It comes back in the pool green,
    whose taint it tolerates. 4. And back to blue.
    """
    await queues.add({"blue": {"cpu": "1"}, "green": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    await people.create(queues.job(runtimePatches=[patch_node(terminationGracePeriodSeconds=5)]))
    await people.until_phase("Running")
    (pod,) = await people.until_pods(1)
    assert (pod["spec"]["nodeSelector"], pod["spec"]["nodeName"][:4]) == ({"pool": "blue"}, "blue")

    for closed, pool in (("blue", "green"), ("green", "blue")):
        await queues.edit("demo", {"spec": {"active": False}})
        await queues.until("QuotaReserved", "False")
        await people.until_pods(0)
        evicted = await people.find("TrainJob")
        assert "replicatedJobs" not in get_patch(evicted, MANAGER)
        await queues.set_quotas(**{closed: "0", pool: "1"})
        await queues.edit("demo", {"spec": {"active": True}})
        await people.until_phase("Running")
        (pod,) = await people.until_pods(1)
        spec = pod["spec"]
        assert (spec["nodeSelector"], spec["nodeName"].split("-")[0]) == ({"pool": pool}, pool)
        tolerated = [toleration["key"] for toleration in spec["tolerations"]]
        assert ("pool" in tolerated) == (pool == "green")
        assert (pod["metadata"]["labels"]["team"], spec["terminationGracePeriodSeconds"]) == ("a", 5)


async def test_what_a_flavor_asks_of_pods_comes_on_top_of_what_they_tolerate(
    people: People, queues: Queues, operator: Running
) -> None:
    """The flavor has a taint of its own, which the runtime tolerates, and asks for another toleration."""
    device = {"key": "device", "value": "a", "effect": "NoSchedule"}
    tainted = {"green": {**FLAVORS["green"], "nodeTaints": [device]}}
    await queues.add({"green": {"cpu": "1"}}, tainted)
    plain = runtime()
    (job,) = plain["spec"]["template"]["spec"]["replicatedJobs"]
    mine = {"key": "device", "operator": "Exists", "effect": "NoSchedule"}
    job["template"]["spec"]["template"]["spec"]["tolerations"] = [mine]
    await queues.add_runtime(plain)
    await people.create(queues.job())
    await people.until_phase("Running")
    (pod,) = await people.until_pods(1)
    assert pod["spec"]["tolerations"][:2] == [mine, *FLAVORS["green"]["tolerations"]]


async def test_what_kueue_does_not_know_survives_admission_and_eviction(
    people: People, queues: Queues, operator: Running
) -> None:
    """Kueue rewrites whole TrainJobs with older types: without our fields, and new ones of the API."""
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    patch = patch_node(terminationGracePeriodSeconds=7)
    created = await people.create(
        queues.job(ttlSecondsAfterFinished=600, activeDeadlineSeconds=3600, runtimePatches=[patch])
    )
    await people.until_phase("Running")
    await queues.edit("demo", {"spec": {"active": False}})
    await queues.until("QuotaReserved", "False")
    await people.until_pods(0)
    await queues.edit("demo", {"spec": {"active": True}})
    await people.until_phase("Running")

    job = await people.find("TrainJob")
    managers = {
        entry["manager"] for entry in job["metadata"]["managedFields"] if entry["operation"] == "Update"
    }
    assert "kueue" in managers
    assert (job["spec"]["ttlSecondsAfterFinished"], job["spec"]["activeDeadlineSeconds"]) == (600, 3600)
    assert get_patch(job, OWN_MANAGER) == get_patch(created, OWN_MANAGER)
    (pod,) = await people.until_pods(1)
    assert pod["spec"]["terminationGracePeriodSeconds"] == 7
    status = await people.status()
    assert (status["phase"], status["restarts"]) == ("Running", 0)
    assert "runtimeSnapshot" in status


async def test_what_kueue_writes_in_other_words_is_no_change(
    people: People, queues: Queues, operator: Running
) -> None:
    """Go leaves out what is empty, writes amounts in one way, and some fields that were absent."""
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    own = {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}
    cache = {"name": "cache", "emptyDir": {"sizeLimit": "1024Mi"}}
    trainer = {"args": [], "env": [own], "resourcesPerNode": {"limits": {"cpu": 1}, "requests": {"cpu": 0.5}}}
    patch = patch_node(volumes=[cache], nodeSelector={}, tolerations=[])
    await people.create(queues.job(trainer=trainer, runtimePatches=[patch]))
    await people.until_phase("Running")
    await queues.edit("demo", {"spec": {"active": False}})
    await queues.until("QuotaReserved", "False")
    await people.until_pods(0)
    await queues.edit("demo", {"spec": {"active": True}})
    await people.until_phase("Running")

    job = await people.find("TrainJob")
    assert job["spec"]["trainer"]["args"] == []


async def test_a_job_whose_runtime_is_edited_starts_again_as_it_was(
    people: People, queues: Queues, operator: Running
) -> None:
    """Kueue compares what it admitted with the runtime as it is, and starts over; the snapshot stays."""
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    await people.create(queues.job())
    await people.until_phase("Running")
    (before,) = await people.until_pods(1)
    edited = runtime()
    (job,) = edited["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/train:2"
    await people.edit({"spec": edited["spec"]}, "TrainingRuntime", "plain")

    async def is_another() -> Json | None:
        pods = [
            pod for pod in await people.list("Pod") if pod["metadata"]["uid"] != before["metadata"]["uid"]
        ]
        return pods[0] if pods else None

    pod = await eventually(is_another)
    assert pod["spec"]["containers"][0]["image"] == before["spec"]["containers"][0]["image"]
    await people.until_phase("Running")
    assert (await people.status())["restarts"] == 0


async def test_an_operator_that_starts_anew_ends_the_pods_of_a_job_that_was_evicted_meanwhile(
    people: People, queues: Queues, operator: Running, operator_again: Any
) -> None:
    """1. A job runs, and the operator stops. 2. Kueue evicts the job; nobody ends its pods, so it holds its
    quota. 3. The next operator ends them; the job that waits takes over.
    """
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    await people.create(queues.job("first"))
    await people.until_phase("Running", "first")
    await people.create(queues.job("second"))
    operator.stop()
    await operator.task
    await queues.edit("first", {"spec": {"active": False}})
    await queues.until("Evicted", name="first")

    async def is_suspended() -> bool:
        return bool((await people.find("TrainJob", "first"))["spec"]["suspend"])

    await eventually(is_suspended)
    assert has(await queues.until_workload(lambda _: True, "first"), "QuotaReserved")
    async with operator_again():
        await people.until_phase("Running", "second")
        await people.until_pods(0, "first")
        status = await people.until_phase("Queued", "first")
    assert condition(status, "Suspended")["status"] == "True"
