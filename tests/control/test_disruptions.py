"""Pods that did nothing wrong: deleted, evicted, preempted, or on a node that is lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from control.troubled_pods import POD, WHO, at, condition, container, ended, world_with_pods
from control.world import JOB, NOW, World
from trainwright.api.meta import Json
from trainwright.api.trainjob import Cause
from trainwright.control.hints import HINTS
from trainwright.control.pod_evidence import DISRUPTIONS

RUNNING: Json = {
    "phase": "Running",
    "containerStatuses": [{**container({"running": {"startedAt": at(0)}}), "ready": True}],
}


def end_at(seconds: int, code: int, reason: str = "Error") -> Json:
    state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at(seconds)}}
    return {"phase": "Failed", "containerStatuses": [container(state)]}


def delete_pod(world: World, rank: int, seconds: int, grace_seconds: int = 30) -> None:
    """Ask for a pod's deletion; the kubelet has not ended it yet."""
    pod = sorted(world.pods(), key=lambda pod: str(pod["metadata"]["name"]))[rank]
    meta = {"deletionTimestamp": at(seconds + grace_seconds), "deletionGracePeriodSeconds": grace_seconds}
    world.merge("Pod", pod["metadata"]["name"], {"metadata": meta})


def cause(reason: str, message: str, seconds: int, **fields: Any) -> Cause:
    return Cause(
        **{"layer": "Pod", "kind": "Pod", "name": POD, **fields},
        reason=reason,
        message=message,
        hint=HINTS[reason].replace("NAME", JOB),
        since=NOW + timedelta(seconds=seconds),
    )


def exit_cause(seconds: int) -> Cause:
    message = f"{WHO}: container node exited with code 5"
    return cause("NonZeroExit", message, seconds, layer="Container")


DELETED = cause("PodDeleted", f"{WHO} was deleted while it was needed", 11)


def world_with_deleted_pod(statuses: Sequence[Json], rank: int = 0) -> World:
    world = world_with_pods([RUNNING] * len(statuses))
    delete_pod(world, rank, 11)
    world.rest()
    for pod, status in zip(
        sorted(world.pods(), key=lambda pod: str(pod["metadata"]["name"])), statuses, strict=True
    ):
        world.set_pod(pod, status)
    world.rest()
    return world


ENDS_OF_DELETED_PODS = {
    "in its grace period": (RUNNING, DELETED),
    "killed at its end": (end_at(41, 137), DELETED),
    "ended by SIGTERM at once": (end_at(11, 143), DELETED),
    "answers SIGTERM with an error": (end_at(12, 1), DELETED),
    "failed before": (end_at(10, 5), exit_cause(10)),
    "failed in that very second": (end_at(11, 5), exit_cause(11)),
    "out of memory in its grace period": (
        end_at(20, 137, "OOMKilled"),
        cause(
            "OOMKilled",
            f"{WHO}: container node ran out of memory (OOMKilled, exit code 137)",
            20,
            layer="Container",
        ),
    ),
}


@pytest.mark.parametrize(
    ("status", "expected"), ENDS_OF_DELETED_PODS.values(), ids=list(ENDS_OF_DELETED_PODS)
)
def test_a_pod_that_is_deleted_and(status: Json, expected: Cause) -> None:
    assert world_with_deleted_pod([status]).status.cause == expected


def test_the_deletion_is_named_the_same_from_the_request_to_the_end() -> None:
    world = world_with_pods([RUNNING])
    delete_pod(world, 0, 11)
    world.writes.clear()
    world.rest()
    world.set_pods(end_at(41, 137))
    world.rest()
    for pod in world.pods():
        world.delete("Pod", pod["metadata"]["name"])
    world.merge("Job", "demo-node-0", {"status": {"active": 0, "ready": 0, "failed": 1}})
    world.rest()
    assert world.status.cause == DELETED
    assert world.writes == ["patch status"]


def test_a_pod_that_is_deleted_after_another_failed_is_no_cause() -> None:
    world = world_with_deleted_pod([RUNNING, end_at(10, 5)], rank=0)
    assert world.status.cause is not None
    assert world.status.cause.message.endswith("(node, rank 1): container node exited with code 5")


def test_a_pod_that_is_deleted_because_another_succeeded_is_no_cause() -> None:
    world = world_with_deleted_pod([RUNNING, {"phase": "Succeeded"}], rank=0)
    assert world.status.cause is None


def test_what_an_evicted_pod_said_counts_while_the_others_are_deleted() -> None:
    """1. Rank 1 is evicted and gone; its Job has counted it. 2. The Job deletes rank 0."""
    evicted = {
        **RUNNING,
        "conditions": condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "x")["conditions"],
    }
    world = world_with_pods([RUNNING, evicted])
    said = world.status.cause
    assert said is not None
    [_, second] = sorted(str(pod["metadata"]["name"]) for pod in world.pods())
    world.delete("Pod", second)
    world.merge("Job", "demo-node-0", {"status": {"failed": 1}})
    delete_pod(world, 0, 11)
    world.rest()
    assert world.status.cause == said


@pytest.mark.parametrize("reason", sorted(DISRUPTIONS))
def test_who_disrupts_a_pod_is_the_reason(reason: str) -> None:
    told = condition("DisruptionTarget", "True", reason, "of interest")["conditions"]
    world = world_with_pods([{**RUNNING, "conditions": told}])
    assert world.status.cause == cause(reason, f"{WHO}: {reason}: of interest", 3)


def test_a_disruption_of_a_new_kind_is_told_in_its_own_words() -> None:
    told = condition("DisruptionTarget", "True", "Meteorite", "")["conditions"]
    world = world_with_pods([{**RUNNING, "conditions": told}])
    assert world.status.cause == cause("DisruptionTarget", f"{WHO}: Meteorite", 3)


NOT_READY = {**RUNNING, "conditions": condition("Ready", "False", "", "")["conditions"]}


def test_a_node_that_does_not_answer_is_named_until_its_pods_are_given_up() -> None:
    """1. The node is silent: Ready goes away, the containers stay. 2. The taint manager deletes the pod."""
    world = world_with_pods([NOT_READY])
    [pod] = world.pods()
    world.merge("Pod", POD, {"spec": {**pod["spec"], "nodeName": "gpu-7"}})
    world.rest()
    lost = cause(
        "NodeNotReady",
        f"{WHO}: its node gpu-7 does not answer",
        3,
        layer="Node",
        kind="Node",
        name="gpu-7",
    )
    assert world.status.cause is not None
    first_told = world.status.cause.since
    assert lost == world.status.cause
    tainted = condition("DisruptionTarget", "True", "DeletionByTaintManager", "Taint manager: deleting")
    world.set_pods({**NOT_READY, "conditions": [*NOT_READY["conditions"], *tainted["conditions"]]})
    delete_pod(world, 0, 60)
    world.writes.clear()
    world.rest()
    assert (world.status.cause, world.status.cause.since) == (lost, first_told)
    assert world.writes == []


READY_IN_VAIN = {
    "the kubelet says why": {**RUNNING, "conditions": condition("Ready", "False", "Gate", "")["conditions"]},
    "a container is not ready": {
        **NOT_READY,
        "containerStatuses": [container({"running": {"startedAt": at(0)}})],
    },
    "the pod is ready": {**RUNNING, "conditions": condition("Ready", "True", "", "")["conditions"]},
}


@pytest.mark.parametrize("status", READY_IN_VAIN.values(), ids=list(READY_IN_VAIN))
def test_a_node_is_not_lost_where(status: Json) -> None:
    assert world_with_pods([status]).status.cause is None


def test_an_evicted_pod_tells_without_a_space_at_the_end() -> None:
    world = world_with_pods([{**ended(137), "reason": "Evicted", "message": "limit of containers 10Mi. "}])
    assert world.status.cause is not None
    assert world.status.cause.message == f"{WHO}: limit of containers 10Mi."


def test_a_sidecar_that_is_ended_with_its_pod_explains_nothing() -> None:
    sidecar = {"terminated": {"exitCode": 143, "reason": "Error", "finishedAt": at(6)}}
    status = {**end_at(5, 3), "initContainerStatuses": [{"name": "proxy", "state": sidecar}]}
    world = world_with_pods([status])
    assert world.status.cause == cause(
        "NonZeroExit", f"{WHO}: container node exited with code 3", 5, layer="Container"
    )
