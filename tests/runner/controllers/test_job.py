"""The Job controller: pods, limits and ends of a batch/v1 Job."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.world import NOW, World, job_set, replicated_job
from trainwright.runner.controllers.job import decide_job
from trainwright.runner.controllers.job_indexes import format_indexes, parse_indexes

INDEX = "batch.kubernetes.io/job-completion-index"


def world_of(pods: int = 1, pod: dict[str, Any] | None = None, **job: Any) -> World:
    """Return a world with one Job `demo-node-0`."""
    world = World(job_set(replicated_job(pods=pods, job=job, pod=pod or {})))
    world.settle()
    return world


def job_conditions(world: World) -> dict[str, tuple[str, str, str]]:
    status = world.jobs()["demo-node-0"].get("status") or {}
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status.get("conditions") or ()}


def fail_index(world: World, index: int, exit_code: int = 1) -> None:
    for pod in world.pods():
        if (
            pod["metadata"]["labels"][INDEX] == str(index)
            and (pod.get("status") or {}).get("phase") != "Failed"
        ):
            world.set_pod(pod, "Failed", exit_code)
    world.settle()


def test_a_pod_is_the_template_with_index_host_name_and_owner() -> None:
    world = world_of(pods=2)
    job = world.jobs()["demo-node-0"]

    pod = next(p for p in world.pods() if p["metadata"]["labels"][INDEX] == "1")
    template = job["spec"]["template"]
    uid = job["metadata"]["uid"]
    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod["metadata"]["name"],
            "namespace": "ns",
            "uid": pod["metadata"]["uid"],
            "labels": {
                **template["metadata"]["labels"],
                "batch.kubernetes.io/job-name": "demo-node-0",
                "job-name": "demo-node-0",
                "batch.kubernetes.io/controller-uid": uid,
                "controller-uid": uid,
                INDEX: "1",
            },
            "annotations": {**template["metadata"]["annotations"], INDEX: "1"},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "demo-node-0",
                    "uid": uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "hostname": "demo-node-0-1",
            "subdomain": "demo",
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "node",
                    "image": "i",
                    "env": [
                        {
                            "name": "JOB_COMPLETION_INDEX",
                            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX}']"}},
                        }
                    ],
                }
            ],
        },
    }
    assert pod["metadata"]["name"] == "demo-node-0-1-00001"


def test_a_job_that_is_not_indexed_has_pods_without_index() -> None:
    job = {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
        "spec": {"parallelism": 2, "completions": 3, "template": {"spec": {"containers": [{"name": "c"}]}}},
    }
    suffixes = iter("ab")
    actions = decide_job(job, [], NOW, lambda: next(suffixes))

    pods = [action.object for action in actions if hasattr(action, "object")]
    assert [pod["metadata"]["name"] for pod in pods] == ["j-a", "j-b"]
    assert all(INDEX not in pod["metadata"]["labels"] and "hostname" not in pod["spec"] for pod in pods)


def test_the_status_of_a_running_job() -> None:
    world = world_of(pods=3)
    first, second, third = world.pods()
    world.set_pod(first, "Succeeded")
    world.set_pod(second, "Running")
    world.set_pod(third, "Pending")
    world.settle()

    assert world.jobs()["demo-node-0"]["status"] == {
        "active": 2,
        "ready": 1,
        "succeeded": 1,
        "completedIndexes": "0",
        "startTime": "2026-01-01T12:00:00Z",
    }


def test_a_job_is_complete_when_every_index_succeeded() -> None:
    world = world_of(pods=3)
    world.wait(10)
    world.set_pods("Succeeded")
    world.step()

    assert world.jobs()["demo-node-0"]["status"] == {
        "succeeded": 3,
        "completedIndexes": "0-2",
        "startTime": "2026-01-01T12:00:00Z",
        "completionTime": "2026-01-01T12:00:10Z",
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": "CompletionsReached",
                "message": "Reached expected number of succeeded pods",
                "lastTransitionTime": "2026-01-01T12:00:10Z",
            }
            for kind in ("SuccessCriteriaMet", "Complete")
        ],
    }


def test_fewer_pods_than_completions_take_the_indexes_in_turn() -> None:
    world = world_of(parallelism=2, completions=3)
    assert sorted(pod["metadata"]["labels"][INDEX] for pod in world.pods()) == ["0", "1"]

    world.set_pod(world.pods()[0], "Succeeded")
    world.settle()
    assert sorted(pod["metadata"]["labels"][INDEX] for pod in world.pods()) == ["0", "1", "2"]


def test_nothing_to_complete_is_complete() -> None:
    world = world_of(parallelism=0, completions=0)

    assert job_conditions(world)["Complete"][0] == "True"


class TestBackoffLimit:
    def test_a_failing_job_takes_its_other_pods_along_and_then_fails(self) -> None:
        world = world_of(pods=2)
        world.set_pods("Running")
        world.settle()
        first, second = world.pods()
        world.set_pod(first, "Failed", 5)
        world.step()
        world.step()

        message = "Job has reached the specified backoff limit"
        assert job_conditions(world) == {"FailureTarget": ("True", "BackoffLimitExceeded", message)}
        assert world.objects["Pod", second["metadata"]["name"]]["metadata"]["deletionTimestamp"]

        world.settle()
        assert job_conditions(world)["Failed"] == ("True", "BackoffLimitExceeded", message)
        assert [pod["metadata"]["name"] for pod in world.pods()] == [first["metadata"]["name"]]
        status = world.jobs()["demo-node-0"]["status"]
        assert (status["failed"], status.get("active")) == (2, None)

    def test_a_pod_is_made_again_after_a_pause_that_doubles(self) -> None:
        world = world_of(backoffLimit=3)
        for pause in (1, 2, 4):
            fail_index(world, 0)
            failed = len(world.pods())
            world.wait(pause - 0.01)
            world.settle()
            assert len(world.pods()) == failed
            world.wait(0.01)
            world.settle()
            assert len(world.pods()) == failed + 1

        fail_index(world, 0)
        assert job_conditions(world)["Failed"][1] == "BackoffLimitExceeded"

    def test_without_a_number_six_pods_may_fail(self) -> None:
        world = world_of(backoffLimit=None)
        for _ in range(6):
            fail_index(world, 0)
            world.wait(120)
            world.settle()
        assert "Failed" not in job_conditions(world)

        fail_index(world, 0)
        assert job_conditions(world)["Failed"][1] == "BackoffLimitExceeded"

    @pytest.mark.parametrize(("limit", "restarts", "fails"), [(0, 1, True), (2, 1, False), (2, 2, True)])
    def test_restarts_in_place_count_when_the_pod_restarts_on_failure(
        self, limit: int, restarts: int, fails: bool
    ) -> None:
        world = world_of(backoffLimit=limit, pod={"restartPolicy": "OnFailure"})
        container = {"name": "node", "restartCount": restarts, "state": {"running": {}}, "lastState": {}}
        world.set_pod(world.pods()[0], "Running", containerStatuses=[container])
        world.settle()

        assert ("Failed" in job_conditions(world)) is fails


class TestBackoffLimitPerIndex:
    def test_an_index_that_failed_too_often_does_not_stop_the_others(self) -> None:
        world = world_of(pods=3, backoffLimit=None, backoffLimitPerIndex=0)
        fail_index(world, 1)
        status = world.jobs()["demo-node-0"]["status"]
        assert (status["failedIndexes"], status["active"]) == ("1", 2)

        world.set_pods("Succeeded")
        world.settle()
        assert job_conditions(world)["Failed"] == ("True", "FailedIndexes", "Job has failed indexes")
        assert world.jobs()["demo-node-0"]["status"]["completedIndexes"] == "0,2"

    def test_too_many_failed_indexes_end_the_job(self) -> None:
        world = world_of(pods=3, backoffLimit=None, backoffLimitPerIndex=0, maxFailedIndexes=1)
        fail_index(world, 0)
        assert "Failed" not in job_conditions(world)
        fail_index(world, 2)

        assert job_conditions(world)["Failed"] == (
            "True",
            "MaxFailedIndexesExceeded",
            "Job has exceeded the specified maximal number of failed indexes",
        )


class TestPodFailurePolicy:
    @staticmethod
    def policy(action: str, **requirement: Any) -> dict[str, Any]:
        return {"podFailurePolicy": {"rules": [{"action": action, **requirement}]}}

    def test_an_exit_code_fails_the_job(self) -> None:
        codes = {"operator": "In", "values": [42]}
        world = world_of(backoffLimit=3, **self.policy("FailJob", onExitCodes=codes))
        name = world.pods()[0]["metadata"]["name"]
        fail_index(world, 0, 42)

        assert job_conditions(world)["Failed"] == (
            "True",
            "PodFailurePolicy",
            f"Container node for pod ns/{name} failed with exit code 42 matching FailJob rule at index 0",
        )

    def test_a_pod_that_no_rule_matches_is_counted(self) -> None:
        codes = {"operator": "NotIn", "values": [1]}
        world = world_of(backoffLimit=0, **self.policy("Ignore", onExitCodes=codes))
        fail_index(world, 0, 1)

        assert job_conditions(world)["Failed"][1] == "BackoffLimitExceeded"

    def test_an_ignored_failure_is_not_counted(self) -> None:
        pattern = [{"type": "DisruptionTarget"}]
        world = world_of(backoffLimit=0, **self.policy("Ignore", onPodConditions=pattern))
        condition = {"type": "DisruptionTarget", "status": "True"}
        world.set_pod(world.pods()[0], "Failed", 137, conditions=[condition])
        world.settle()
        world.wait(120)
        world.settle()

        assert "failed" not in world.jobs()["demo-node-0"]["status"]
        assert len(world.pods()) == 2

    def test_a_condition_fails_the_job(self) -> None:
        world = world_of(**self.policy("FailJob", onPodConditions=[{"type": "Odd", "status": "True"}]))
        world.set_pod(world.pods()[0], "Failed", conditions=[{"type": "Odd", "status": "True"}])
        world.settle()

        name = world.pods()[0]["metadata"]["name"]
        message = f"Pod ns/{name} has condition Odd matching FailJob rule at index 0"
        assert job_conditions(world)["Failed"] == ("True", "PodFailurePolicy", message)

    def test_an_exit_code_fails_the_index(self) -> None:
        codes = {"containerName": "node", "operator": "In", "values": [42]}
        world = world_of(
            pods=2,
            backoffLimit=None,
            backoffLimitPerIndex=5,
            **self.policy("FailIndex", onExitCodes=codes),
        )
        fail_index(world, 0, 42)

        assert world.jobs()["demo-node-0"]["status"]["failedIndexes"] == "0"

    def test_a_rule_for_another_container_does_not_match(self) -> None:
        codes = {"containerName": "other", "operator": "In", "values": [42]}
        world = world_of(backoffLimit=0, **self.policy("FailJob", onExitCodes=codes))
        fail_index(world, 0, 42)

        assert job_conditions(world)["Failed"][1] == "BackoffLimitExceeded"


class TestDeadline:
    def test_a_job_that_runs_too_long_fails(self) -> None:
        world = world_of(activeDeadlineSeconds=30)
        world.wait(29)
        world.settle()
        assert "Failed" not in job_conditions(world)

        world.wait(1)
        world.settle()
        assert job_conditions(world)["Failed"] == (
            "True",
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        )
        assert world.pods() == []

    def test_the_clock_starts_again_on_resume(self) -> None:
        world = world_of(activeDeadlineSeconds=30)
        world.wait(20)
        world.patch("Job", "demo-node-0", {"spec": {"suspend": True}})
        world.patch("JobSet", "demo", {"spec": {"suspend": True}})
        world.settle()
        world.wait(20)
        world.patch("JobSet", "demo", {"spec": {"suspend": False}})
        world.settle()
        world.wait(20)
        world.settle()

        assert "Failed" not in job_conditions(world)


class TestSuspend:
    def test_pods_of_a_suspended_job_end_and_do_not_count_as_failed(self) -> None:
        world = world_of(pods=2)
        world.set_pods("Running")
        world.patch("JobSet", "demo", {"spec": {"suspend": True}})
        world.step()
        world.step()
        status = world.jobs()["demo-node-0"]["status"]
        assert (status.get("active"), status["terminating"]) == (None, 2)

        for pod in world.pods():
            world.set_pod(pod, "Succeeded")  # a program that answers SIGTERM with exit code 0
        world.settle()
        status = world.jobs()["demo-node-0"]["status"]
        assert {key: status.get(key) for key in ("failed", "succeeded", "terminating")} == {
            "failed": None,
            "succeeded": None,
            "terminating": None,
        }
        assert job_conditions(world)["Suspended"] == ("True", "JobSuspended", "Job suspended")


def test_a_success_policy_ends_a_job_before_all_indexes_are_done() -> None:
    policy = {"rules": [{"succeededIndexes": "2"}, {"succeededIndexes": "0-1", "succeededCount": 1}]}
    world = world_of(pods=3, successPolicy=policy)
    world.set_pods("Running")
    world.set_pod(world.pods()[1], "Succeeded")
    world.settle()

    assert job_conditions(world)["Complete"] == ("True", "SuccessPolicy", "Matched rules at index 1")
    assert len(world.pods()) == 1


def test_a_job_that_is_deleted_goes_after_its_pods() -> None:
    world = world_of(pods=2)
    world.set_pod(world.pods()[0], "Failed")
    world.set_pod(world.pods()[1], "Running")
    world.patch("Job", "demo-node-0", {"metadata": {"deletionTimestamp": NOW.isoformat()}})
    job = world.jobs()["demo-node-0"]
    world.perform(decide_job(job, world.pods(), NOW, str))

    assert all(pod["metadata"]["deletionTimestamp"] for pod in world.pods())
    assert "demo-node-0" in world.jobs()
    for pod in world.pods():
        world.remove(("Pod", pod["metadata"]["name"]))
    world.perform(decide_job(job, world.pods(), NOW, str))
    assert world.jobs() == {}


def test_a_second_pod_of_one_index_is_ended() -> None:
    world = world_of(pods=2)
    double = {**world.pods()[0], "metadata": {**world.pods()[0]["metadata"], "name": "z", "uid": "z"}}
    world.objects["Pod", "z"] = double
    world.settle()

    assert sorted(pod["metadata"]["labels"][INDEX] for pod in world.pods()) == ["0", "1"]
    assert ("Pod", "z") not in world.objects


@given(st.sets(st.integers(0, 40)))
def test_indexes_survive_being_written_and_read(indexes: set[int]) -> None:
    assert parse_indexes(format_indexes(indexes)) == indexes


@pytest.mark.parametrize(
    ("indexes", "text"), [(set(), ""), ({3}, "3"), ({0, 1}, "0,1"), ({0, 1, 2, 5, 7, 8, 9}, "0-2,5,7-9")]
)
def test_three_indexes_in_a_row_are_a_range(indexes: set[int], text: str) -> None:
    assert format_indexes(indexes) == text
