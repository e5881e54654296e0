"""A job in a queue of Kueue, from its creation to its end."""

from __future__ import annotations

from kube.kueue import MANAGER, QUEUE_LABEL
from kube.kueue_tests.queues import QUEUE, Queues, has, list_pod_sets
from kube.operating import People, Running, condition, eventually, runtime, train_job


async def test_a_job_waits_for_its_quota_runs_and_gives_it_back(
    people: People, queues: Queues, operator: Running
) -> None:
    await queues.add({"blue": {"cpu": "2"}})
    await queues.add_runtime(runtime())
    await people.create(queues.job("first", trainer={"numNodes": 2}))
    await people.until_phase("Running", "first")
    queued = await people.create(queues.job("second", trainer={"numNodes": 2}))
    assert queued["spec"]["suspend"] is True

    waiting = await queues.until("QuotaReserved", "False", "second")
    assert list_pod_sets(waiting) == {"node": 2}
    status = await people.until_phase("Queued", "second")
    assert condition(status, "Suspended")["status"] == "True"
    assert status["jobsStatus"][0]["suspended"] == 1
    assert await people.find("JobSet", "second") is None

    await queues.finish("first", 2)
    await people.until_phase("Complete", "first")
    finished = await queues.until("Finished", name="first")
    assert condition(finished["status"], "Finished")["reason"] == "Succeeded"
    status = await people.until_phase("Running", "second")
    assert status.get("conditions") is None
    assert {pod["spec"]["nodeName"] for pod in await people.until_pods(2, "second")} <= {"blue-0", "blue-1"}
    # One Workload for each job: what belongs to a TrainJob is no job of its own to Kueue.
    assert len(await queues.workloads()) == 2
    await queues.finish("second", 2)
    await people.until_phase("Complete", "second")


async def test_nothing_but_the_status_is_written_about_a_job_that_waits(
    people: People, queues: Queues, operator: Running
) -> None:
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    await people.create(queues.job(trainer={"numNodes": 2}))
    waiting = await queues.until("QuotaReserved", "False")
    status = await people.until_phase("Queued")
    assert status["cause"]["reason"] == "WaitingForQueue"
    # Kueue looks at a job again after each write about it; ours come to an end.
    await people.edit({"metadata": {"annotations": {"a": "b"}}})
    await people.create(queues.job("other"))
    await people.until_phase("Running", "other")
    assert (await queues.until_workload(lambda _: True))["metadata"]["uid"] == waiting["metadata"]["uid"]
    about = [write for write in operator.transport.writes if "/demo" in write]
    assert set(about) == {"PATCH trainjobs/demo/status"}
    assert len(about) <= 3


async def test_the_workload_of_a_failed_job_says_so_and_its_quota_is_free(
    people: People, queues: Queues, operator: Running
) -> None:
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    await people.create(queues.job("first"))
    await people.create(queues.job("second"))
    await people.until_phase("Running", "first")
    await queues.finish("first", 1, exit_code=3)
    status = await people.until_phase("Failed", "first")
    finished = await queues.until("Finished", name="first")
    ended = condition(finished["status"], "Finished")
    assert (ended["reason"], ended["message"]) == ("Failed", condition(status, "Failed")["message"])
    await people.until_phase("Running", "second")


async def test_a_job_without_a_queue_is_ours_alone(people: People, queues: Queues, operator: Running) -> None:
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    job = await people.create(train_job(trainer={"numNodes": 2}))
    assert job["spec"]["suspend"] is False
    # Kueue's webhook adds its entry to every job, in case that a queue is chosen later.
    assert [patch["manager"] for patch in job["spec"]["runtimePatches"]] == [MANAGER]
    await people.until_phase("Running")
    assert await queues.workloads() == []


async def test_a_suspended_job_may_be_given_to_a_queue_later(
    people: People, queues: Queues, operator: Running
) -> None:
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    resources = {"requests": {"cpu": "1"}}
    await people.create(train_job(suspend=True, trainer={"resourcesPerNode": resources}))
    await people.until_phase("Suspended")
    assert await queues.workload() is None
    await people.edit({"metadata": {"labels": {QUEUE_LABEL: QUEUE}}})
    await people.until_phase("Running")
    (pod,) = await people.until_pods(1)
    assert pod["spec"]["nodeSelector"] == {"pool": "blue"}


async def test_the_number_of_nodes_may_change_in_the_queue(
    people: People, queues: Queues, operator: Running
) -> None:
    await queues.add({"blue": {"cpu": "2"}})
    await queues.add_runtime(runtime())
    await people.create(queues.job(trainer={"numNodes": 3}))
    await queues.until("QuotaReserved", "False")
    await people.edit({"spec": {"trainer": {"numNodes": 2}}})
    workload = await queues.until("Admitted")
    assert list_pod_sets(workload) == {"node": 2}
    await people.until_phase("Running")
    assert len(await people.until_pods(2)) == 2


async def test_a_job_that_is_deleted_in_the_queue_leaves_nothing(
    people: People, queues: Queues, operator: Running
) -> None:
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    await people.create(queues.job(trainer={"numNodes": 2}))
    await queues.until("QuotaReserved", "False")
    await people.delete("TrainJob")
    await people.until_gone("TrainJob")

    async def is_gone() -> bool:
        return await queues.workloads() == []

    await eventually(is_gone)
    await people.create(queues.job("next"))
    await people.until_phase("Running", "next")
    assert await people.find("JobSet") is None


async def test_a_job_that_is_deleted_while_it_runs_gives_its_quota_back(
    people: People, queues: Queues, operator: Running
) -> None:
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    await people.create(queues.job("first"))
    await people.create(queues.job("second"))
    await people.until_phase("Running", "first")
    await people.delete("TrainJob", "first")
    await people.until_phase("Running", "second")
    await people.until_gone("JobSet", "first")


async def test_kueue_resumes_an_admitted_job_that_somebody_suspends(
    people: People, queues: Queues, operator: Running
) -> None:
    """Who wants it to stop sets `active: false` in the Workload."""
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    await people.create(queues.job())
    await people.until_phase("Running")
    (before,) = await people.until_pods(1)
    await people.edit({"spec": {"suspend": True}})

    async def is_back() -> bool:
        pods = await people.list("Pod")
        return [pod["metadata"]["uid"] for pod in pods] not in ([], [before["metadata"]["uid"]])

    await eventually(is_back)
    await people.until_phase("Running")
    await queues.edit("demo", {"spec": {"active": False}})
    await people.until_phase("Queued")
    await people.until_pods(0)
    workload = await queues.until("QuotaReserved", "False")
    assert condition(workload["status"], "Evicted")["reason"] == "Deactivated"


async def test_a_job_whose_runtime_is_deleted_in_the_queue_starts_when_it_is_back(
    people: People, queues: Queues, operator: Running
) -> None:
    """1. A job waits for the quota of another. 2. Its runtime is deleted. 3. It gets the quota, and Kueue
    cannot start it, which the status says. 4. The runtime is made again: Kueue looks again at once."""
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    await queues.add_runtime(runtime("other"))
    await people.create(queues.job("first", runtime="other"))
    await people.until_phase("Running", "first")
    await people.create(queues.job("second"))
    await queues.until("QuotaReserved", "False", "second")
    await queues.remove_runtime("plain")
    await queues.finish("first", 1)
    await queues.until("Admitted", name="second")
    status = await people.until_status(
        lambda status: (status.get("cause") or {}).get("reason") == "RuntimeDeleted", "second"
    )
    assert status["phase"] == "Queued"
    assert await people.find("JobSet", "second") is None
    await queues.add_runtime(runtime())
    status = await people.until_phase("Running", "second")
    assert "cause" not in status


async def test_a_job_that_ends_without_its_runtime_holds_its_quota_until_it_is_deleted(
    people: People, queues: Queues, operator: Running
) -> None:
    """Kueue asks for the runtime before it asks whether the job has ended; nothing of ours changes that."""
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_runtime(runtime())
    await queues.add_runtime(runtime("other"))
    await people.create(queues.job("first"))
    await people.until_phase("Running", "first")
    await queues.remove_runtime("plain")
    await people.create(queues.job("second", runtime="other"))
    await queues.finish("first", 1)
    await people.until_phase("Complete", "first")
    assert not has(await queues.until("QuotaReserved", name="first"), "Finished")
    await people.delete("TrainJob", "first")
    await people.until_phase("Running", "second")
