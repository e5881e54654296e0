"""A gang of which not all pods can be placed, as its PodGroup and its pods tell it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from control.builders import runtime, train_job
from control.troubled_pods import WHO, at, condition, container, crash_loop
from control.world import JOB, NOW, World
from trainwright.api.meta import Json
from trainwright.api.trainjob import Cause
from trainwright.control.hints import HINTS

NO_ROOM = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
UNPLACED = condition("PodScheduled", "False", "Unschedulable", NO_ROOM)
PENDING: Json = {"phase": "Pending"}
VOLCANO_SAYS = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable"


def pod_group(version: str, phase: str, *conditions: Json, owner: str = "uid-job") -> Json:
    reference = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": JOB,
        "uid": owner,
        "controller": True,
    }
    return {
        "apiVersion": version,
        "kind": "PodGroup",
        "metadata": {"name": JOB, "namespace": "ns", "ownerReferences": [reference]},
        "spec": {"minMember": 2, "minResources": {"nvidia.com/gpu": "2"}},
        "status": {"phase": phase, **({"conditions": list(conditions)} if conditions else {})},
    }


def coscheduling(phase: str) -> Json:
    return pod_group("scheduling.x-k8s.io/v1alpha1", phase)


def volcano(phase: str, status: str = "True", owner: str = "uid-job") -> Json:
    unschedulable = {
        "type": "Unschedulable",
        "status": status,
        "reason": "NotEnoughResources",
        "message": VOLCANO_SAYS,
        "transitionID": "9d8",
        "lastTransitionTime": at(4),
    }
    return pod_group("scheduling.volcano.sh/v1beta1", phase, unschedulable, owner=owner)


def gang_cause(message: str, seconds: int) -> Cause:
    return Cause(
        layer="PodGroup",
        kind="PodGroup",
        name=JOB,
        reason="GangNotComplete",
        message=f"PodGroup demo needs 2 pods at once: {message}",
        hint=HINTS["GangNotComplete"],
        since=NOW + timedelta(seconds=seconds),
    )


def world_with_gang(gang: Json, *statuses: Json) -> World:
    world = World(train_job(num_nodes=2), runtime())
    world.settle()
    world.wait(10)
    world.put(gang)
    for pod, status in zip(
        sorted(world.pods(), key=lambda pod: str(pod["metadata"]["name"])), statuses, strict=True
    ):
        world.set_pod(pod, status)
    world.rest()
    return world


INCOMPLETE = {
    "Volcano has no room": (volcano("Inqueue"), [PENDING, PENDING], gang_cause(VOLCANO_SAYS, 4)),
    "Volcano has no room, and wrote it into the pods": (
        volcano("Inqueue"),
        [UNPLACED, UNPLACED],
        gang_cause(VOLCANO_SAYS, 4),
    ),
    "Volcano's queue has no room": (volcano("Pending"), [PENDING, PENDING], gang_cause(VOLCANO_SAYS, 4)),
    "scheduler-plugins have no room": (
        coscheduling("Pending"),
        [PENDING, UNPLACED],
        gang_cause(f"pod demo-node-0-1-00001 (node, rank 1): {NO_ROOM}", 3),
    ),
    "scheduler-plugins have no room, and no controller": (
        coscheduling(""),
        [UNPLACED, UNPLACED],
        gang_cause(f"{WHO}: {NO_ROOM}", 3),
    ),
    "scheduler-plugins placed a part": (
        coscheduling("Scheduling"),
        [UNPLACED, PENDING],
        gang_cause(f"{WHO}: {NO_ROOM}", 3),
    ),
}


@pytest.mark.parametrize(("gang", "statuses", "expected"), INCOMPLETE.values(), ids=list(INCOMPLETE))
def test_a_gang_is_not_complete_where(gang: Json, statuses: list[Json], expected: Cause) -> None:
    assert world_with_gang(gang, *statuses).status.cause == expected


RUNNING: Json = {
    "phase": "Running",
    "containerStatuses": [{**container({"running": {"startedAt": at(0)}}), "ready": True}],
}
COMPLETE = {
    "it has just been made": (coscheduling(""), [PENDING, PENDING]),
    "its pods have not been looked at": (coscheduling("Pending"), [PENDING, PENDING]),
    "it runs": (coscheduling("Running"), [RUNNING, RUNNING]),
    "Volcano placed it": (volcano("Running"), [RUNNING, RUNNING]),
    "Volcano takes its words back": (volcano("Inqueue", status="False"), [PENDING, PENDING]),
    "it is another job's": (volcano("Inqueue", owner="uid-other"), [PENDING, PENDING]),
}


@pytest.mark.parametrize(("gang", "statuses"), COMPLETE.values(), ids=list(COMPLETE))
def test_a_gang_is_no_cause_where(gang: Json, statuses: list[Json]) -> None:
    assert world_with_gang(gang, *statuses).status.cause is None


def test_a_pod_that_fails_counts_more_than_the_gang() -> None:
    world = world_with_gang(volcano("Unknown"), crash_loop(3, 1), UNPLACED)
    assert world.status.cause is not None
    assert world.status.cause.reason == "CrashLoopBackOff"


def test_an_incomplete_gang_is_told_in_one_event() -> None:
    world = world_with_gang(volcano("Inqueue"), PENDING, PENDING)
    world.writes.clear()
    world.put(volcano("Pending"))
    world.rest()
    assert [(event.type, event.reason) for event in world.events] == [("Warning", "GangNotComplete")]
    assert world.writes == []
