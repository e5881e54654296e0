"""The life of a TrainJob on a real API server, with real JobSet and Job controllers; we play the kubelet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kube.control_plane import ControlPlane
from kube.operating import People, Running, condition, eventually, operating, runtime, train_job
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import Connection
from trainwright.cluster.kube.transport import AiohttpTransport


@pytest.fixture
async def operator(operator_connection: Connection, namespace: str) -> AsyncIterator[Running]:
    async with operating(operator_connection, namespace) as running:
        yield running


async def test_a_job_is_created_runs_and_completes_with_four_writes(
    people: People, operator: Running
) -> None:
    await people.create(runtime(nodes=2))
    await people.create(train_job())
    await people.until_pods(2)
    status = await people.status()
    assert status["phase"] == "Created"
    assert status["jobsStatus"][0]["active"] in (0, 1)
    await people.set_pods("Running", 2)
    await people.until_phase("Running")
    await people.set_pods("Succeeded", 2)
    status = await people.until_phase("Complete")
    assert condition(status, "Complete")["reason"] == "AllJobsCompleted"
    assert {"startTime", "completionTime", "runtimeSnapshot"} <= set(status)
    assert operator.transport.writes[:3] == [
        f"PATCH configmaps/trainer-runtime-{status['runtimeSnapshot']['hash']}",
        "PATCH trainjobs/demo/status",
        "PATCH jobsets/demo",
    ]
    # After that nothing but the status: pods appear, run, end.
    assert set(operator.transport.writes[3:]) == {"PATCH trainjobs/demo/status"}
    # Nothing is read, unless the watch of runtimes was behind that of jobs: then the runtime, once.
    assert operator.transport.reads in ([], ["GET trainingruntimes/plain"])


async def test_what_happens_to_the_children_of_a_finished_job_changes_nothing(
    people: People, operator: Running
) -> None:
    await people.create(runtime())
    await people.create(train_job())
    await people.set_pods("Succeeded", 1)
    status = await people.until_phase("Complete")
    writes = len(operator.transport.writes)
    await people.delete("JobSet")
    await people.edit({"metadata": {"labels": {"a": "b"}}})
    await people.until_pods(0)
    # Another job goes through the same queue afterwards: the finished one has had its turn by then.
    await people.create(train_job("later"))
    await people.until_phase("Created", "later")
    assert await people.find("JobSet") is None
    assert await people.status() == status
    assert [write for write in operator.transport.writes[writes:] if "/demo" in write] == []


async def test_a_suspended_job_has_no_children_and_costs_one_write(people: People, operator: Running) -> None:
    await people.create(runtime())
    await people.create(train_job(suspend=True))
    status = await people.until_phase("Suspended")
    assert condition(status, "Suspended")["status"] == "True"
    assert status["jobsStatus"] == [
        {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 1}
    ]
    assert await people.find("JobSet") is None
    await people.edit({"spec": {"suspend": False}})
    await people.until_pods(1)
    status = await people.until_phase("Created")
    assert condition(status, "Suspended") is None
    assert [write for write in operator.transport.writes if "configmaps" not in write][:3] == [
        "PATCH trainjobs/demo/status",
        "PATCH trainjobs/demo/status",
        "PATCH jobsets/demo",
    ]


async def test_a_job_is_suspended_in_place_and_its_jobs_are_made_anew(
    people: People, operator: Running
) -> None:
    await people.create(runtime())
    await people.create(train_job())
    await people.set_pods("Running", 1)
    await people.until_phase("Running")
    job_set, job = await people.find("JobSet"), await people.find("Job", "demo-node-0")
    await people.edit({"spec": {"suspend": True}})
    await people.until_phase("Suspended")
    await people.until_pods(0)
    assert (await people.find("JobSet"))["metadata"]["uid"] == job_set["metadata"]["uid"]

    async def is_renewed() -> bool:
        fresh = await people.find("Job", "demo-node-0")
        return fresh is not None and fresh["metadata"]["uid"] != job["metadata"]["uid"]

    await eventually(is_renewed)
    await people.until_status(lambda status: status["jobsStatus"][0]["active"] == 0)
    await people.edit({"spec": {"suspend": False}})
    await people.set_pods("Succeeded", 1)
    await people.until_phase("Complete")
    assert (await people.find("JobSet"))["metadata"]["uid"] == job_set["metadata"]["uid"]


async def test_a_suspended_job_may_come_back_with_another_number_of_nodes(
    people: People, operator: Running
) -> None:
    await people.create(runtime())
    await people.create(train_job(trainer={"numNodes": 2}))
    await people.set_pods("Running", 2)
    await people.until_phase("Running")
    before = await people.find("JobSet")
    await people.edit({"spec": {"suspend": True}})
    await people.until_pods(0)
    await people.until_status(lambda status: status["jobsStatus"][0]["active"] == 0)
    await people.edit({"spec": {"trainer": {"numNodes": 3}, "suspend": False}})
    await people.until_pods(3)
    after = await people.find("JobSet")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] == 3


async def test_a_failed_job_says_which_container_ended_how(people: People, operator: Running) -> None:
    await people.create(runtime())
    await people.create(train_job())
    await people.set_pods("Failed", 1, exit_code=3, message="ValueError: no data")
    status = await people.until_phase("Failed")
    failed = condition(status, "Failed")
    assert failed["reason"] == "FailedJobs"
    assert "exited with code 3" in failed["message"] or "code 3" in failed["message"]
    assert "ValueError: no data" in failed["message"]
    assert (status["cause"]["layer"], status["cause"]["kind"]) == ("Container", "Pod")
    assert status["jobsStatus"][0]["failed"] == 1

    async def list_told() -> list[Json]:
        # The event follows the status.
        events = await people.list("Event")
        return [event for event in events if event["reason"] == "FailedJobs" and "count" in event]

    (told,) = await eventually(list_told)
    assert (told["type"], told["involvedObject"]["kind"], told["count"]) == ("Warning", "TrainJob", 1)
    assert told["firstTimestamp"]


async def test_a_job_that_is_out_of_time_fails_and_its_job_set_goes(
    people: People, operator: Running
) -> None:
    await people.create(runtime())
    await people.create(train_job(activeDeadlineSeconds=1))
    status = await people.until_phase("Failed")
    assert condition(status, "Failed")["reason"] == "DeadlineExceeded"
    assert all(entry["active"] == 0 for entry in status["jobsStatus"])
    await people.until_gone("JobSet")


async def test_a_finished_job_is_deleted_after_its_time(people: People, operator: Running) -> None:
    await people.create(runtime())
    await people.create(train_job(ttlSecondsAfterFinished=1))
    await people.set_pods("Succeeded", 1)
    await people.until_gone("TrainJob")
    await people.until_gone("JobSet")


async def test_a_job_is_stopped_on_request(people: People, operator: Running) -> None:
    await people.create(runtime())
    await people.create(train_job())
    await people.until_pods(1)
    stop = {"trainer.kubeflow.org/stop-requested": "2026-01-01T00:00:00Z"}
    await people.edit({"metadata": {"annotations": stop}})
    status = await people.until_phase("Failed")
    assert condition(status, "Failed")["reason"] == "Stopped"
    await people.until_gone("JobSet")


async def test_an_edited_or_deleted_runtime_does_not_reach_a_job_that_was_submitted(
    people: People, operator: Running
) -> None:
    await people.create(runtime())
    for name in ("demo", "other"):
        await people.create(train_job(name, suspend=True))
        await people.until_phase("Suspended", name)
    await people.edit({"spec": {"mlPolicy": {"numNodes": 5}}}, "TrainingRuntime", "plain")
    await people.edit({"spec": {"suspend": False}})
    await people.until_pods(1)
    await people.delete("TrainingRuntime", "plain")
    await people.edit({"spec": {"suspend": False}}, name="other")
    await people.until_pods(1, "other")
    snapshots = [found for found in await people.list("ConfigMap") if found.get("immutable")]
    assert len(snapshots) == 1


async def test_a_job_waits_for_a_runtime_that_does_not_exist_and_starts_when_it_does(
    people: People, operator: Running
) -> None:
    await people.create(train_job())
    status = await people.until_status(lambda status: condition(status, "ResourcesCreated"))
    assert condition(status, "ResourcesCreated")["reason"] == "RuntimeNotFound"
    assert status["cause"]["reason"] == "RuntimeNotFound"
    await people.create(runtime())
    await people.until_pods(1)
    await people.until_status(lambda status: not condition(status, "ResourcesCreated"))


async def test_a_job_set_of_somebody_else_is_left_alone_and_named(people: People, operator: Running) -> None:
    spec = runtime()["spec"]["template"]["spec"]
    foreign = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "demo"}}
    before = await people.create({**foreign, "spec": {**spec, "suspend": True}})
    await people.create(runtime())
    await people.create(train_job())
    status = await people.until_status(lambda status: condition(status, "ResourcesCreated"))
    assert condition(status, "ResourcesCreated")["reason"] == "NameTaken"
    assert (await people.find("JobSet"))["metadata"]["generation"] == before["metadata"]["generation"]
    await people.delete("JobSet")
    await people.until_pods(1)
    await people.until_phase("Created")


async def test_a_job_set_that_was_deleted_by_hand_is_made_again(people: People, operator: Running) -> None:
    await people.create(runtime())
    await people.create(train_job())
    await people.set_pods("Running", 1)
    await people.until_phase("Running")
    before = await people.find("JobSet")
    await people.delete("JobSet")

    async def is_new() -> bool:
        job_set = await people.find("JobSet")
        return job_set is not None and job_set["metadata"]["uid"] != before["metadata"]["uid"]

    await eventually(is_new)
    await people.until_pods(1)
    assert [write for write in operator.transport.writes if write == "PATCH jobsets/demo"] == [
        "PATCH jobsets/demo"
    ] * 2


async def test_a_job_set_that_was_suspended_by_hand_goes_on(people: People, operator: Running) -> None:
    """Another field manager owns `suspend` by then; the operator takes it back."""
    await people.create(runtime())
    await people.create(train_job())
    await people.set_pods("Running", 1)
    await people.until_phase("Running")
    before = await people.edit({"spec": {"suspend": True}}, "JobSet")

    async def is_resumed() -> bool:
        job_set = await people.find("JobSet")
        return job_set is not None and job_set["spec"].get("suspend") is False

    await eventually(is_resumed)
    assert (await people.find("JobSet"))["metadata"]["uid"] == before["metadata"]["uid"]
    await people.set_pods("Succeeded", 1)
    await people.until_phase("Complete")


async def test_labels_that_others_put_on_a_job_set_stay(people: People, operator: Running) -> None:
    await people.create(runtime())
    await people.create(train_job())
    await people.until_pods(1)
    await people.edit({"metadata": {"labels": {"team": "a"}}}, "JobSet")
    await people.edit({"spec": {"suspend": True}})
    await people.until_pods(0)
    await people.until_status(lambda status: status["jobsStatus"][0]["active"] == 0)
    await people.edit({"spec": {"suspend": False}})
    await people.until_pods(1)
    assert (await people.find("JobSet"))["metadata"]["labels"]["team"] == "a"


async def test_a_job_set_that_ends_and_goes_at_once_still_counts(people: People, operator: Running) -> None:
    plain = runtime()
    plain["spec"]["template"]["spec"]["ttlSecondsAfterFinished"] = 0
    await people.create(plain)
    await people.create(train_job())
    await people.set_pods("Succeeded", 1)
    await people.until_phase("Complete")
    await people.until_gone("JobSet")
    assert operator.transport.writes.count("PATCH jobsets/demo") == 1


async def test_a_refused_job_set_is_told_in_the_words_of_who_refused_it(
    people: People, operator: Running
) -> None:
    name = "a" * 58
    await people.create(runtime())
    await people.create(train_job(name))
    status = await people.until_status(lambda status: condition(status, "ResourcesCreated"), name)
    refused = condition(status, "ResourcesCreated")
    assert refused["status"] == "False"
    assert "vjobset.kb.io" in refused["message"]
    assert status["cause"]["layer"] == "JobSet"

    async def list_reasons() -> set[str]:
        events = await people.list("Event")
        return {event["reason"] for event in events if event["involvedObject"]["kind"] == "TrainJob"}

    assert await eventually(list_reasons) == {"TrainJobResourcesCreationFailed"}


async def test_pods_that_the_server_refuses_are_explained_by_the_event_on_the_job(
    people: People, operator: Running
) -> None:
    """Nobody here refuses pods, so the Job controller's event is written by hand."""
    await people.create(runtime())
    await people.create(train_job())
    job = await people.until_found("Job", "demo-node-0")
    for pod in await people.until_pods(1):
        await people.delete("Pod", pod["metadata"]["name"])
    now = "2026-01-01T00:00:00Z"
    await people.cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "refused", "namespace": people.namespace},
            "involvedObject": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "namespace": people.namespace,
                "name": "demo-node-0",
                "uid": job["metadata"]["uid"],
            },
            "type": "Warning",
            "reason": "FailedCreate",
            "message": 'Error creating: pods "demo-node-0-0-x" is forbidden: exceeded quota: small',
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": "job-controller"},
        }
    )
    await people.until_status(
        lambda status: status.get("cause", {}).get("reason") == "QuotaExceeded" or condition(status, "Failed")
    )


async def test_the_job_of_another_controller_is_left_alone(people: People, operator: Running) -> None:
    await people.create(runtime())
    await people.create(train_job(managedBy="kueue.x-k8s.io/multikueue"))
    await people.create(train_job("ours"))
    await people.until_pods(1, "ours")
    assert await people.status() == {}
    assert await people.find("JobSet") is None


async def test_the_finalizer_of_older_versions_is_taken_off_runtimes(
    people: People, operator: Running
) -> None:
    marked = runtime()
    marked["metadata"]["finalizers"] = ["trainer.kubeflow.org/resource-in-use", "example.com/keep"]
    await people.create(marked)

    async def is_free() -> bool:
        found = await people.find("TrainingRuntime", "plain")
        return found["metadata"].get("finalizers") == ["example.com/keep"]

    await eventually(is_free)
    await people.edit({"metadata": {"finalizers": None}}, "TrainingRuntime", "plain")


async def test_a_deleted_namespace_takes_everything_with_it(
    transport: AiohttpTransport, operator_connection: Connection, namespace: str, control_plane: ControlPlane
) -> None:
    doomed = f"{namespace}-doomed"
    control_plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": doomed}})
    people = People(transport, doomed)
    async with operating(operator_connection, doomed):
        await people.create(runtime())
        await people.create(train_job())
        await people.until_pods(1)
        control_plane.call("DELETE", f"/api/v1/namespaces/{doomed}")
        for kind, name in (("TrainJob", "demo"), ("JobSet", "demo"), ("TrainingRuntime", "plain")):
            await people.until_gone(kind, name)


async def test_the_same_name_made_anew_at_once_is_another_job(people: People, operator: Running) -> None:
    await people.create(runtime())
    await people.create(train_job())
    await people.set_pods("Running", 1)
    await people.until_phase("Running")
    await people.delete("TrainJob")
    again = await people.create(train_job())

    async def is_its_own() -> bool:
        job_set = await people.find("JobSet")
        owners = job_set["metadata"]["ownerReferences"] if job_set else [{"uid": ""}]
        return owners[0]["uid"] == again["metadata"]["uid"]

    await eventually(is_its_own)
    await people.set_pods("Succeeded", 1)
    status = await people.until_phase("Complete")
    assert condition(status, "ResourcesCreated") is None
