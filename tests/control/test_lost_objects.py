"""What pods of a running job no longer find, and the job was made with, is written again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from control.builders import train_job
from control.lives import suspend
from control.troubled_pods import event, waiting
from control.world import NOW, World
from frameworks.mpi.builders import mpi_runtime
from trainwright.api.core import Event
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.runtime import TrainingRuntime
from trainwright.control.actions import Apply, EnsureSecret
from trainwright.control.decide import decide

KEYS = ("Secret", "demo-mpi-ssh-auth")
HOSTS = ("ConfigMap", "demo-mpi-hostfile")
SET_UP = 'MountVolume.SetUp failed for volume "x" : '
WITHOUT_KEYS = f'{SET_UP}secret "{KEYS[1]}" not found'
WITHOUT_HOSTS = f'{SET_UP}configmap "{HOSTS[1]}" not found'
WITHOUT_BOTH = f'{SET_UP}[secret "{KEYS[1]}" not found, configmap "{HOSTS[1]}" not found]'


def mpi_world(*lost: tuple[str, str]) -> World:
    """A job whose pods are about to start, of whose objects some were deleted."""
    meta = ObjectMeta(name="rt", namespace="ns", uid="uid-rt", generation=3)
    world = World(train_job(num_nodes=2), TrainingRuntime(metadata=meta, spec=mpi_runtime()))
    world.settle()
    for pod in world.pods():
        world.set_pod(pod, waiting("ContainerCreating"))
    world.rest()
    for kind, name in lost:
        world.delete(kind, name)
    world.writes.clear()
    return world


def tell(world: World, message: str, reason: str = "FailedMount", seconds: int = 0) -> None:
    """The kubelet says it of every pod."""
    for number, pod in enumerate(world.pods()):
        told: Event = event("Pod", pod["metadata"]["name"], reason, message, seconds)
        named = ObjectMeta(name=f"{reason}-{number}", namespace="ns")
        world.put(build_object(msgspec.structs.replace(told, metadata=named)))


def list_written(world: World) -> list[tuple[str, str]]:
    """Return which objects besides the status are written now."""
    written: list[Json] = [
        action.object
        for action in decide(world.seen(), NOW, world.render)
        if isinstance(action, Apply | EnsureSecret)
    ]
    return [(obj["kind"], obj["metadata"]["name"]) for obj in written]


CASES: dict[str, tuple[Sequence[tuple[str, str]], str]] = {
    "the keys": ([KEYS], WITHOUT_KEYS),
    "the hosts": ([HOSTS], WITHOUT_HOSTS),
    "both": ([KEYS, HOSTS], WITHOUT_BOTH),
}


@pytest.mark.parametrize(("lost", "message"), CASES.values(), ids=CASES)
def test_it_is_written_again_once_and_the_cause_tells_of_it(
    lost: Sequence[tuple[str, str]], message: str
) -> None:
    world = mpi_world(*lost)
    world.rest()
    assert world.writes == []  # nobody misses it yet
    tell(world, message)
    assert sorted(list_written(world)) == sorted(lost)
    world.rest()
    assert all(key in world.objects for key in lost)
    assert len(world.writes) == len(lost) + 1
    assert world.status.cause is not None
    assert world.status.cause.reason == "FailedMount"
    tell(world, message, seconds=2)  # again, a moment later
    world.rest()
    assert len(world.writes) == len(lost) + 1


def test_one_after_the_other_as_the_kubelet_tells_them() -> None:
    world = mpi_world(KEYS, HOSTS)
    tell(world, WITHOUT_KEYS)
    world.rest()
    assert (KEYS in world.objects, HOSTS in world.objects) == (True, False)
    tell(world, WITHOUT_HOSTS, seconds=1)
    world.rest()
    assert HOSTS in world.objects


def test_a_refused_write_is_told_and_tried_again() -> None:
    world = mpi_world(KEYS)
    tell(world, WITHOUT_KEYS)
    world.refuse = lambda action: (
        ("Forbidden", "exceeded quota: small") if isinstance(action, EnsureSecret) else None
    )
    world.reconcile()
    assert world.conditions()["ResourcesCreated"] == ("False", "Forbidden")
    world.refuse = lambda _: None
    world.wait(120)
    world.rest()
    assert KEYS in world.objects
    world.run_pods()
    world.rest()
    assert world.conditions() == {}


def test_it_is_written_again_also_after_a_crash_before_the_status() -> None:
    world = mpi_world(KEYS)
    tell(world, WITHOUT_KEYS)
    first, *_ = decide(world.seen(), NOW, world.render)
    assert isinstance(first, EnsureSecret)  # before anything says that it was done
    assert list_written(world) == [KEYS]


OTHERS: dict[str, tuple[str, str]] = {
    "a Secret of the user": (f'{SET_UP}secret "own" not found', "FailedMount"),
    "one of that name of another kind": (f'{SET_UP}configmap "{KEYS[1]}" not found', "FailedMount"),
    "another trouble with it": (f'{SET_UP}secret "{KEYS[1]}" is forbidden', "FailedMount"),
    "another event": (WITHOUT_KEYS, "FailedAttachVolume"),
}


@pytest.mark.parametrize(("message", "reason"), OTHERS.values(), ids=OTHERS)
def test_nothing_is_written_for(message: str, reason: str) -> None:
    world = mpi_world(KEYS)
    tell(world, message, reason)
    assert list_written(world) == []


def test_a_pod_that_has_started_since_misses_nothing() -> None:
    world = mpi_world(KEYS)
    tell(world, WITHOUT_KEYS)
    world.run_pods()
    assert list_written(world) == []


def test_a_suspended_job_gets_it_when_it_goes_on() -> None:
    world = mpi_world()
    suspend(world)
    world.delete(*KEYS)
    tell(world, WITHOUT_KEYS)
    world.rest()
    assert KEYS not in world.objects
    world.patch_job(suspend=False)
    world.settle()
    assert KEYS in world.objects
