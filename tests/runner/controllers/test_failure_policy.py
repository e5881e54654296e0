"""What a failed Job does to its JobSet (spec 02, section 14.7, "Failure")."""

from __future__ import annotations

from typing import Any

import pytest

from runner.world import World, job_set, replicated_job


def failing_world(exit_code: int = 3, **policy: Any) -> World:
    """Return a world in which the pod of `a` is about to fail; `b` runs beside it."""
    world = World(
        job_set(replicated_job("a"), replicated_job("b"), failurePolicy={"maxRestarts": 1, **policy})
    )
    world.settle()
    world.set_pods("Running")
    fail(world, exit_code)
    return world


def fail(world: World, exit_code: int = 3) -> None:
    world.set_pods("Failed", "demo-a-0", exit_code)
    world.settle()


def attempts(world: World) -> dict[str, str]:
    label = "jobset.sigs.k8s.io/restart-attempt"
    return {name: job["metadata"]["labels"][label] for name, job in world.jobs().items()}


def test_without_a_policy_the_first_failed_job_ends_it() -> None:
    world = World(job_set(replicated_job("a"), replicated_job("b")))
    world.settle()
    world.set_pods("Failed", "demo-b-0")
    world.settle()

    message = "jobset failed due to one or more job failures (first failed job: demo-b-0)"
    assert world.conditions() == {"Failed": ("True", "FailedJobs", message)}
    assert world.job_set["status"]["terminalState"] == "Failed"
    assert world.counters() == {"b": (0, 0, 1, 0, 0), "a": (0, 0, 0, 0, 0)}
    assert [(e.type, e.reason, e.message) for e in world.events] == [("Warning", "FailedJobs", message)]


def test_the_earliest_failure_is_named() -> None:
    world = World(job_set(replicated_job("a"), replicated_job("b")))
    world.settle()
    world.set_pods("Failed", "demo-b-0")
    for job in world.of_kind("Job"):
        world.wait(5)
        if job["metadata"]["name"] == "demo-a-0":
            world.set_pods("Failed", "demo-a-0")
    # Both are failed before the JobSet controller looks again, `a` five seconds later.
    later = "2026-01-01T12:00:05Z"
    for name, moment in (("demo-a-0", later), ("demo-b-0", "2026-01-01T12:00:00Z")):
        condition = {"type": "Failed", "status": "True", "reason": "x", "lastTransitionTime": moment}
        world.patch("Job", name, {"status": {"conditions": [condition]}})
    world.settle()

    assert world.conditions()["Failed"][2].endswith("(first failed job: demo-b-0)")


def test_restarts_make_every_job_again_until_none_is_left() -> None:
    world = failing_world()

    assert world.conditions() == {
        "RestartingJobSet": (
            "True",
            "DefaultFailurePolicy",
            "applying RestartJobSet failure policy action (first failed job: demo-a-0)",
        )
    }
    assert world.job_set["status"]["restarts"] == 1
    assert world.job_set["status"]["restartsCountTowardsMax"] == 1
    assert attempts(world) == {"demo-a-0": "1", "demo-b-0": "1"}

    fail(world)
    assert world.conditions() == {
        "RestartingJobSet": ("False", "JobSetFailed", "jobset failed"),
        "Failed": (
            "True",
            "ReachedMaxRestarts",
            "jobset failed due to reaching max number of restarts (first failed job: demo-a-0)",
        ),
    }
    assert world.job_set["status"]["restarts"] == 1
    assert [e.reason for e in world.events] == [
        "RestartJobSetFailurePolicyAction",
        "DefaultFailurePolicy",
        "JobSetFailed",
        "ReachedMaxRestarts",
    ]


def test_a_restart_is_over_when_all_jobs_are_ready_again() -> None:
    world = failing_world()
    world.set_pods("Running")
    world.settle()

    assert world.conditions()["RestartingJobSet"] == ("False", "JobsReady", "all jobs are ready")


def test_a_restart_is_over_when_the_jobset_is_suspended() -> None:
    world = failing_world()
    world.patch("JobSet", "demo", {"spec": {"suspend": True}})
    world.settle()

    assert world.conditions()["RestartingJobSet"][:2] == ("False", "JobSetSuspended")


@pytest.mark.parametrize(
    ("strategy", "made_again"), [("Recreate", {"demo-a-0"}), ("BlockingRecreate", set())]
)
def test_blocking_recreate_waits_until_every_old_job_is_gone(strategy: str, made_again: set[str]) -> None:
    """While the pod of `b` still ends, only Recreate has a new `a`."""
    world = World(
        job_set(
            replicated_job("a"),
            replicated_job("b"),
            failurePolicy={"maxRestarts": 1, "restartStrategy": strategy},
        )
    )
    world.settle()
    world.set_pods("Running")
    world.set_pods("Failed", "demo-a-0")
    for _ in range(8):
        world.step()
        for pod in world.pods("demo-a-0"):
            if pod["metadata"].get("deletionTimestamp"):
                world.remove(("Pod", pod["metadata"]["name"]))

    assert {name for name, attempt in attempts(world).items() if attempt == "1"} == made_again
    world.settle()
    assert attempts(world) == {"demo-a-0": "1", "demo-b-0": "1"}


RULES: dict[str, tuple[dict[str, Any], str]] = {
    "no condition at all matches": ({"action": "FailJobSet"}, "FailJobSetFailurePolicyAction"),
    "the reason matches": (
        {"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded", "BackoffLimitExceeded"]},
        "FailJobSetFailurePolicyAction",
    ),
    "another reason does not": (
        {"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
        "DefaultFailurePolicy",
    ),
    "the message matches a pattern": (
        {"action": "FailJobSet", "onJobFailureMessagePatterns": ["no", "specified back.ff"]},
        "FailJobSetFailurePolicyAction",
    ),
    "no pattern matches": (
        {"action": "FailJobSet", "onJobFailureMessagePatterns": ["^specified"]},
        "DefaultFailurePolicy",
    ),
    "a pattern that is none matches nothing": (
        {"action": "FailJobSet", "onJobFailureMessagePatterns": ["("]},
        "DefaultFailurePolicy",
    ),
    "the target matches": (
        {"action": "FailJobSet", "targetReplicatedJobs": ["a"]},
        "FailJobSetFailurePolicyAction",
    ),
    "another target does not": (
        {"action": "FailJobSet", "targetReplicatedJobs": ["b"]},
        "DefaultFailurePolicy",
    ),
    "a rule that restarts is named": ({"action": "RestartJobSet", "name": "again"}, "FailurePolicy_again"),
    "a rule without a name has its number": ({"action": "RestartJobSet"}, "FailurePolicy_failurePolicyRule0"),
}


@pytest.mark.parametrize("case", RULES.values(), ids=RULES)
def test_rules(case: tuple[dict[str, Any], str]) -> None:
    rule, reason = case
    world = failing_world(rules=[rule])

    assert {r for _, r, _ in world.conditions().values()} == {reason}


def test_the_first_rule_that_matches_decides() -> None:
    rules = [
        {"action": "RestartJobSet", "targetReplicatedJobs": ["b"]},
        {"action": "FailJobSet", "name": "end"},
        {"action": "RestartJobSetAndIgnoreMaxRestarts"},
    ]
    world = failing_world(rules=rules)

    message = "applying FailJobSet failure policy action (first failed job: demo-a-0)"
    assert world.conditions() == {"Failed": ("True", "FailJobSetFailurePolicyAction", message)}


def test_restarts_that_ignore_the_maximum_do_not_use_it_up() -> None:
    world = failing_world(maxRestarts=0, rules=[{"action": "RestartJobSetAndIgnoreMaxRestarts"}])
    fail(world)
    fail(world)

    assert world.job_set["status"]["restarts"] == 3
    assert "restartsCountTowardsMax" not in world.job_set["status"]
    assert attempts(world) == {"demo-a-0": "3", "demo-b-0": "3"}


def test_restart_job_makes_only_the_failed_job_again() -> None:
    world = failing_world(rules=[{"action": "RestartJob", "targetReplicatedJobs": ["a"]}])
    label = "jobset.sigs.k8s.io/job-restart-attempt"

    assert attempts(world) == {"demo-a-0": "0", "demo-b-0": "0"}
    assert world.jobs()["demo-a-0"]["metadata"]["labels"][label] == "1"
    assert label not in world.jobs()["demo-b-0"]["metadata"]["labels"]
    (status,) = (s for s in world.job_set["status"]["replicatedJobsStatus"] if s["name"] == "a")
    assert status == {
        "name": "a",
        "ready": 0,
        "succeeded": 0,
        "failed": 0,
        "active": 1,
        "suspended": 0,
        "jobRestarts": [1],
        "jobRestartsCountTowardsMax": [1],
    }

    fail(world)
    assert world.conditions()["Failed"][1] == "ReachedMaxRestarts"


def test_restart_job_and_ignore_max_restarts_counts_nothing() -> None:
    world = failing_world(maxRestarts=0, rules=[{"action": "RestartJobAndIgnoreMaxRestarts"}])
    fail(world)

    (status,) = (s for s in world.job_set["status"]["replicatedJobsStatus"] if s["name"] == "a")
    assert (status["jobRestarts"], status["jobRestartsCountTowardsMax"]) == ([2], [0])
