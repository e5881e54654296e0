"""The PodGroup of a job lives as long as it has pods to place."""

from __future__ import annotations

import msgspec
import pytest

from control.builders import runtime, train_job
from control.lives import resume, start, suspend
from control.world import World
from trainwright.api.runtime import CoschedulingPolicy, PodGroupPolicy, TrainingRuntime, VolcanoPolicy
from trainwright.control.actions import Delete

POLICIES = {
    "PodGroup.scheduling.x-k8s.io": PodGroupPolicy(coscheduling=CoschedulingPolicy()),
    "PodGroup.scheduling.volcano.sh": PodGroupPolicy(volcano=VolcanoPolicy()),
}


def gang_runtime(policy: PodGroupPolicy) -> TrainingRuntime:
    live = runtime()
    return msgspec.structs.replace(live, spec=msgspec.structs.replace(live.spec, pod_group_policy=policy))


def list_writes(world: World, since: int) -> list[str]:
    return [write for write in world.writes[since:] if "status" not in write]


@pytest.fixture
def world() -> World:
    return start(rt=gang_runtime(POLICIES["PodGroup.scheduling.x-k8s.io"]))


def test_the_pod_group_is_made_before_the_job_set(world: World) -> None:
    applied = [write for write in world.writes if write.startswith("apply")]
    assert applied == ["apply ConfigMap", "apply PodGroup", "apply JobSet"]


def test_a_suspended_job_gives_it_back_once_its_pods_are_gone(world: World) -> None:
    world.patch_job(suspend=True)
    world.settle(ends_pods=False)
    assert len(world.of_kind("PodGroup")) == 1  # the pods have their grace period
    world.settle()
    assert world.of_kind("PodGroup") == []


def test_a_resumed_job_has_one_of_its_new_size(world: World) -> None:
    suspend(world)
    resume(world, trainer={"numNodes": 5})
    [group] = world.of_kind("PodGroup")
    assert group["spec"]["minMember"] == 5
    assert len(world.pods()) == 5


@pytest.mark.parametrize("kind", POLICIES)
def test_a_finished_job_gives_it_back_and_then_nothing_is_written(kind: str) -> None:
    world = start(rt=gang_runtime(POLICIES[kind]))
    world.finish_pods()
    deleted = []
    while not world.conditions().get("Complete") or world.of_kind("PodGroup"):
        deleted += [action.key.kind for action in world.reconcile() if isinstance(action, Delete)]
        world.run_controllers()
    assert deleted == [kind]
    since = len(world.writes)
    world.settle()
    assert world.writes[since:] == []


def test_the_pod_group_of_somebody_else_stays(world: World) -> None:
    [group] = world.of_kind("PodGroup")
    group["metadata"]["ownerReferences"][0]["uid"] = "uid-other"
    suspend(world)
    assert world.of_kind("PodGroup") == [group]


def test_a_job_without_a_gang_asks_for_no_deletion() -> None:
    world = start(train_job(num_nodes=2))
    since = len(world.writes)
    suspend(world)
    assert "delete PodGroup" not in list_writes(world, since)
