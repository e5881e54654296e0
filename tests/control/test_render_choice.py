"""A setting of the operator that changes what jobs become is not for those that wait."""

from __future__ import annotations

from functools import partial

import pytest

from control.builders import runtime, train_job
from control.lives import resume, suspend
from control.world import World
from trainwright.control.lifecycle import Render, RenderChoice
from trainwright.render import AuthorityUnknown, ProgressServer, render

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


def refuse(*_: object) -> list[dict[str, object]]:
    raise AuthorityUnknown("Secret operator/certificate", "ca.crt")


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
    world = run(SWITCHED_OFF)
    suspend(world)
    world.render = RenderChoice(refuse, (render,))
    resume(world)
    world.run_pods()
    world.settle()
    assert (world.status.phase, world.conditions()) == ("Running", {})


def test_a_job_whose_pods_could_not_trust_the_server_waits_and_says_why() -> None:
    world = run(RenderChoice(refuse, (render,)))
    assert world.of_kind("JobSet") == []
    cause = world.status.cause
    assert cause is not None
    assert (cause.layer, cause.kind, cause.name, cause.reason) == (
        "TrainJob",
        "TrainJob",
        "demo",
        "ProgressAuthorityUnknown",
    )
    assert cause.message.startswith("Secret operator/certificate: data[ca.crt]: ")
    assert "TrainJobStatus" in cause.hint
    world.render = SWITCHED_ON
    world.settle()
    assert is_reporting(world)
    assert world.conditions() == {}
