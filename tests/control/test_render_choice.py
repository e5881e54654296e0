"""A setting of the operator that changes what jobs become is not for those that wait."""

from __future__ import annotations

from functools import partial

import pytest

from control.builders import runtime, train_job
from control.lives import resume, suspend
from control.world import World
from trainwright.control.lifecycle import Render, RenderChoice
from trainwright.render import ProgressServer, RenderError, render

SERVER = ProgressServer(url="https://operator.svc:10443", authority_pem="pem")
ON: Render = partial(render, progress=SERVER)
ON_UNKNOWN: Render = partial(render, progress=ProgressServer(url=SERVER.url))
SWITCHED_ON = RenderChoice(ON, (render,))
SWITCHED_OFF = RenderChoice(render, (ON_UNKNOWN,))


def run(render_with: Render) -> World:
    world = World(train_job(), runtime())
    world.render = render_with
    world.settle()
    world.run_pods()
    world.settle()
    return world


def is_reporting(world: World) -> bool:
    [job_set] = world.of_kind("JobSet")
    return "kubeflow-trainer-token" in str(job_set)


@pytest.mark.parametrize(
    ("before", "after"), [(SWITCHED_OFF, SWITCHED_ON), (SWITCHED_ON, SWITCHED_OFF)], ids=["on", "off"]
)
def test_a_suspended_job_goes_on_with_its_job_set_after_a_switch(before: Render, after: Render) -> None:
    world = run(before)
    was_reporting = is_reporting(world)
    [made] = world.of_kind("JobSet")
    suspend(world)
    world.render = after
    resume(world)
    world.run_pods()
    world.settle()
    [kept] = world.of_kind("JobSet")
    assert kept["metadata"]["uid"] == made["metadata"]["uid"]
    assert is_reporting(world) is was_reporting
    assert (world.status.phase, world.conditions()) == ("Running", {})


def test_a_job_set_that_is_made_anew_is_made_by_the_present_setting() -> None:
    world = run(SWITCHED_OFF)
    suspend(world)
    world.render = SWITCHED_ON
    resume(world, trainer={"numNodes": 2})
    assert is_reporting(world)
    [authority] = [obj for obj in world.of_kind("ConfigMap") if obj["metadata"]["name"] == "demo-tls-config"]
    assert authority["data"] == {"ca.crt": "pem"}


def test_a_job_that_is_kept_needs_nothing_that_the_present_setting_lacks() -> None:
    def refuse(*_: object) -> list[dict[str, object]]:
        raise RenderError([], "Secret operator/certificate")

    world = run(SWITCHED_OFF)
    suspend(world)
    world.render = RenderChoice(refuse, (render,))
    resume(world)
    world.run_pods()
    world.settle()
    assert (world.status.phase, world.conditions()) == ("Running", {})
