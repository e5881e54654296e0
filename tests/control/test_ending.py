"""What the message of Failed says, and what it is made of where the pods are gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from control.builders import runtime, step, train_job
from control.world import JOB, World
from trainwright.api.trainjob import Cause
from trainwright.control.status import find_finished_condition

FIRST = "(first failed job: demo-node-0)"
JOB_FAILED = f"jobset failed due to one or more job failures {FIRST}"


def start(num_nodes: int = 2, **fields: Any) -> World:
    world = World(train_job(num_nodes=num_nodes), runtime(**fields))
    world.settle()
    world.run_pods()
    world.settle()
    return world


def message_of(world: World) -> str:
    finished = find_finished_condition(world.status)
    assert finished is not None
    assert finished.type == "Failed"
    return finished.message


def cause_of(world: World) -> Cause:
    assert world.status.cause is not None
    return world.status.cause


def pod_name(world: World, rank: int) -> str:
    label = "batch.kubernetes.io/job-completion-index"
    name: str = next(
        pod["metadata"]["name"] for pod in world.pods() if pod["metadata"]["labels"][label] == str(rank)
    )
    return name


ENDS = {
    "an exit code": ({"code": 3}, "container node exited with code 3", "NonZeroExit"),
    "a signal": ({"code": 137}, "container node was ended by SIGKILL (exit code 137)", "Killed"),
    "a signal that the runtime names": (
        {"code": 1, "signal": 11},
        "container node was ended by SIGSEGV (exit code 1)",
        "SegmentationFault",
    ),
    "out of memory": (
        {"code": 137, "reason": "OOMKilled"},
        "container node ran out of memory (OOMKilled, exit code 137)",
        "OOMKilled",
    ),
}


@pytest.mark.parametrize(("end", "words", "reason"), ENDS.values(), ids=ENDS)
def test_the_message_of_failed_names_pod_rank_container_and_end(
    end: dict[str, Any], words: str, reason: str
) -> None:
    world = start()
    pod = pod_name(world, 1)
    world.fail_pod(1, **end)
    world.settle()
    assert message_of(world) == f"pod {pod} (node, rank 1): {words}; {JOB_FAILED}"
    assert cause_of(world).reason == reason
    assert world.status.phase == "Failed"


def test_the_last_log_lines_end_the_message() -> None:
    world = start(1)
    pod = pod_name(world, 0)
    world.fail_pod(0, 1, message="Traceback (most recent call last):\nValueError: no such file\n")
    world.settle()
    assert message_of(world) == (
        f"pod {pod} (node, rank 0): container node exited with code 1; {JOB_FAILED}; last log lines:\n"
        "Traceback (most recent call last):\nValueError: no such file"
    )


def test_the_message_counts_the_restarts_before() -> None:
    world = start(1, failurePolicy={"maxRestarts": 2})
    for _ in range(3):
        world.fail_pod(0, 9)
        world.settle()
    assert "container node exited with code 9; restarted 2 times; jobset failed" in message_of(world)
    assert world.status.restarts == 2


def test_a_pod_that_is_gone_without_a_trace_is_said_to_be() -> None:
    """1. Somebody deletes the pod. 2. Its Job fails, nothing is left. 3. The cause says just that."""
    world = start(1)
    world.objects = {key: obj for key, obj in world.objects.items() if key[0] != "Pod"}
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": "FailedJobs",
        "message": JOB_FAILED,
        "lastTransitionTime": world.now.isoformat(),
    }
    world.merge("JobSet", JOB, {"status": {"conditions": [condition]}})
    world.rest()
    assert message_of(world) == JOB_FAILED
    assert (cause_of(world).layer, cause_of(world).reason) == ("JobSet", "PodsGone")


def test_what_was_seen_while_the_pod_was_there_explains_the_failure_after_it_is_gone() -> None:
    """The kubelet restarts the program in place; at the end the Job controller deletes pod and evidence."""
    world = start(1)
    last = {"exitCode": 3, "reason": "Error", "message": "ValueError: 7"}
    status = {"name": "node", "restartCount": 6, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    world.set_pods({"phase": "Running", "containerStatuses": [{**status, "lastState": {"terminated": last}}]})
    world.rest()
    assert cause_of(world).reason == "CrashLoopBackOff"
    pod = pod_name(world, 0)
    world.objects = {key: obj for key, obj in world.objects.items() if key[0] != "Pod"}
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": "FailedJobs",
        "message": JOB_FAILED,
        "lastTransitionTime": world.now.isoformat(),
    }
    world.merge("JobSet", JOB, {"status": {"conditions": [condition]}})
    world.rest()
    assert message_of(world) == (
        f"pod {pod} (node, rank 0): container node exited with code 3 (failed 4 or more times, restarted in "
        f"place); {JOB_FAILED}; last log lines:\nValueError: 7"
    )
    assert cause_of(world).reason == "CrashLoopBackOff"


def test_a_job_whose_supervisor_was_lost_says_so_once_and_blames_no_eviction() -> None:
    world = start(1)
    lost = "the supervisor of this job (pid 7) died while it ran"
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": "SupervisorLost",
        "message": lost,
        "lastTransitionTime": world.now.isoformat(),
    }
    without_pods = {key: obj for key, obj in world.objects.items() if key[0] != "Pod"}
    world.set_pods({"phase": "Failed", "reason": "SupervisorLost", "message": lost})
    world.merge("JobSet", JOB, {"status": {"conditions": [condition]}})
    pod = pod_name(world, 0)
    world.rest()
    assert message_of(world) == f"pod {pod} (node, rank 0): {lost}"
    assert (cause_of(world).layer, cause_of(world).reason) == ("Pod", "SupervisorLost")

    world.objects = without_pods
    world.merge("JobSet", JOB, {"status": {"conditions": [condition]}})
    world.rest()
    assert (cause_of(world).layer, cause_of(world).reason) == ("JobSet", "SupervisorLost")


def test_a_pod_that_only_waits_is_not_what_failed_the_job() -> None:
    world = World(train_job(num_nodes=1), runtime(step(), step("other", ancestor=None)))
    world.settle()
    world.set_pods(
        {
            "phase": "Pending",
            "containerStatuses": [{"name": "node", "state": {"waiting": {"reason": "InvalidImageName"}}}],
        },
        "other",
    )
    world.fail_pod(0, 4)
    world.settle()
    assert "exited with code 4" in message_of(world)


def test_the_deadline_tells_what_was_in_the_way_until_then() -> None:
    world = World(train_job(active_deadline_seconds=8), runtime())
    world.settle()
    world.set_pods(
        {
            "phase": "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
            ],
        }
    )
    world.rest()
    world.wait(9)
    world.settle()
    assert message_of(world) == "TrainJob exceeded its active deadline"
    assert cause_of(world).message.startswith(
        "the job did not end within activeDeadlineSeconds (8 s); until then:"
    )
    assert cause_of(world).message.endswith("0/1 nodes")


def test_a_job_never_ends_before_it_began_whatever_clock_its_job_set_is_told_by() -> None:
    """JobSet's controller runs on another machine, whose clock may be behind."""
    world = start()
    began = world.status.start_time
    assert began is not None
    ended = {
        "type": "Completed",
        "status": "True",
        "reason": "AllJobsCompleted",
        "message": "",
        "lastTransitionTime": (began - timedelta(hours=1)).isoformat(),
    }
    world.merge("JobSet", JOB, {"status": {"conditions": [ended]}})
    world.rest()
    assert (world.status.phase, world.status.completion_time) == ("Complete", began)
