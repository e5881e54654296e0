"""What the status of a job says while it waits: the words of Kueue, and what to do."""

from __future__ import annotations

import pytest

from kube.kueue import API
from kube.kueue_tests.queues import Queues
from kube.operating import People, Running, runtime
from trainwright.api.meta import Json
from trainwright.cluster.kube.requests import MERGE_PATCH


async def until_cause(people: People, reason: str, name: str = "demo") -> Json:
    status = await people.until_status(lambda status: status.get("cause", {}).get("reason") == reason, name)
    assert status["phase"] == "Queued"
    return dict(status["cause"])


@pytest.fixture(autouse=True)
async def _runtime(queues: Queues) -> None:
    await queues.add_runtime(runtime())


async def test_a_job_without_room_says_what_is_missing(
    people: People, queues: Queues, operator: Running
) -> None:
    await queues.add({"blue": {"cpu": "2"}})
    await people.create(queues.job("first", trainer={"numNodes": 2}))
    await people.until_phase("Running", "first")
    await people.create(queues.job(trainer={"numNodes": 2}))
    waiting = await queues.until("QuotaReserved", "False")
    status = await people.until_status(
        lambda status: "insufficient unused quota" in status.get("cause", {}).get("message", "")
    )
    cause = status["cause"]
    assert (status["phase"], cause["reason"]) == ("Queued", "WaitingForQueue")
    assert (cause["layer"], cause["kind"], cause["name"]) == (
        "Queue",
        "Workload",
        waiting["metadata"]["name"],
    )


async def test_a_job_that_is_larger_than_its_queue_says_so(
    people: People, queues: Queues, operator: Running
) -> None:
    await queues.add({"blue": {"cpu": "1"}})
    await people.create(queues.job(trainer={"numNodes": 2}))
    await people.until_status(
        lambda status: "maximum capacity" in status.get("cause", {}).get("message", ""),
    )


async def test_a_job_of_a_queue_that_does_not_exist_names_it(
    people: People, queues: Queues, operator: Running
) -> None:
    await people.create(queues.job())
    cause = await until_cause(people, "QueueNotFound")
    assert "'q'" in cause["message"]
    await queues.add({"blue": {"cpu": "1"}})
    await people.until_phase("Running")


async def test_a_job_whose_queue_is_drained_says_so_and_comes_back(
    people: People, queues: Queues, operator: Running
) -> None:
    await queues.add({"blue": {"cpu": "1"}})
    await people.create(queues.job())
    await people.until_phase("Running")
    path = queues.path("ClusterQueue", queues.namespace)
    await queues.request("PATCH", path, {"spec": {"stopPolicy": "HoldAndDrain"}}, MERGE_PATCH)
    await until_cause(people, "QueueInactive")
    await people.until_pods(0)
    await queues.request("PATCH", path, {"spec": {"stopPolicy": "None"}}, MERGE_PATCH)
    status = await people.until_phase("Running")
    assert "cause" not in status


async def test_a_preempted_job_says_who_took_its_place(
    people: People, queues: Queues, operator: Running
) -> None:
    await queues.add({"blue": {"cpu": "1"}})
    await queues.add_priorities(low=1, high=100)
    await people.create(queues.job("low", "low"))
    await people.until_phase("Running", "low")
    await people.create(queues.job("high", "high"))
    cause = await until_cause(people, "Preempted", "low")
    assert (await queues.until_workload(lambda _: True, "high"))["metadata"]["uid"] in cause["message"]


async def test_a_deactivated_job_says_how_to_queue_it_again(
    people: People, queues: Queues, operator: Running
) -> None:
    await queues.add({"blue": {"cpu": "1"}})
    await people.create(queues.job())
    await people.until_phase("Running")
    await queues.edit("demo", {"spec": {"active": False}})
    cause = await until_cause(people, "Deactivated")
    assert "spec.active" in cause["hint"]


async def test_a_job_that_waits_for_an_admission_check_names_it(
    people: People, queues: Queues, operator: Running
) -> None:
    name = f"{queues.namespace}-budget"
    check = {"apiVersion": API, "kind": "AdmissionCheck", "metadata": {"name": name}}
    await queues.create({**check, "spec": {"controllerName": "example.com/budget"}})
    path = queues.path("AdmissionCheck", name)
    active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    active["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    await queues.request("PATCH", f"{path}/status", {"status": {"conditions": [active]}}, MERGE_PATCH)
    await queues.add({"blue": {"cpu": "1"}}, admissionChecksStrategy={"admissionChecks": [{"name": name}]})
    await people.create(queues.job())
    cause = await until_cause(people, "WaitingForAdmissionCheck")
    assert name in cause["message"]
    assert await people.find("JobSet") is None
