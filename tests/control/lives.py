"""Steps that many lives have in common."""

from __future__ import annotations

from typing import Any

from control.builders import runtime, train_job
from control.world import World
from trainwright.api.encoding import build_object
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob


def start(job: TrainJob | None = None, rt: Runtime | None = None) -> World:
    """A world whose job runs."""
    world = World(job or train_job(num_nodes=2), rt or runtime())
    world.settle()
    world.run_pods()
    world.settle()
    return world


def suspend(world: World) -> None:
    world.patch_job(suspend=True)
    world.settle()


def resume(world: World, **spec: Any) -> None:
    world.patch_job(suspend=False, **spec)
    world.settle()


def as_json(rt: Runtime) -> dict[str, Any]:
    return build_object(rt)


def get_image(world: World) -> str:
    assert world.job_set is not None
    pod = world.job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    image: str = pod["containers"][0]["image"]
    return image
