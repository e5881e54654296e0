"""Conditions that other controllers set stay theirs; what an older version left behind goes."""

from __future__ import annotations

import msgspec
import pytest

from control.builders import runtime, train_job
from control.world import NOW, World
from trainwright.api.meta import Condition
from trainwright.api.trainjob import MAX_CONDITIONS, TrainJobStatus
from trainwright.control import Seen, decide
from trainwright.control.actions import PatchStatus


def condition(type_: str, status: str = "True") -> Condition:
    return Condition(type=type_, status=status, reason="X", message="", last_transition_time=NOW)


def add(world: World, *conditions: Condition) -> None:
    told = {"status": {"conditions": [*msgspec.to_builtins(world.status.conditions or []), *conditions]}}
    world.merge("TrainJob", "demo", msgspec.to_builtins(told))


def test_they_stay_through_the_life_of_a_job_and_cost_no_write() -> None:
    world = World(train_job(suspend=True), runtime())
    world.settle()
    add(world, condition("example.com/Checked"))
    assert [action for action in decide(world.seen(), NOW) if isinstance(action, PatchStatus)] == []
    world.patch_job(suspend=False)
    world.settle()
    assert world.conditions() == {"example.com/Checked": ("True", "X")}
    world.finish_pods()
    world.settle()
    assert list(world.conditions()) == ["Complete", "example.com/Checked"]


@pytest.mark.parametrize("type_", ["Created", "Running", "Suspended"])
def test_what_an_older_version_says_of_a_job_that_runs_goes(type_: str) -> None:
    status = TrainJobStatus(conditions=[condition(type_, "False")])
    job = msgspec.structs.replace(train_job(), status=status)
    patch = next(
        action
        for action in decide(Seen(train_job=job, runtime=runtime()), NOW)
        if isinstance(action, PatchStatus)
    )
    assert patch.status.conditions is None


def test_where_the_list_is_full_our_own_goes_in() -> None:
    others = [condition(f"example.com/{i}") for i in range(MAX_CONDITIONS)]
    job = msgspec.structs.replace(train_job(suspend=True), status=TrainJobStatus(conditions=others))
    [patch] = decide(Seen(train_job=job, runtime=runtime(), snapshot=runtime()), NOW)
    assert isinstance(patch, PatchStatus)
    assert [entry.type for entry in patch.status.conditions or ()] == [
        "Suspended",
        *(entry.type for entry in others[:-1]),
    ]
