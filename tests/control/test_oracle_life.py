"""Our statuses through whole lives against those of the peer, Kubeflow Trainer v2.3.0, recorded on a real API
server (`tests/control/oracle/<case>.yaml`).

Each TrainJob of a case gets a world of its own and lives through the same steps. Where ours differs, by
intent, the difference stands below with its reason; an entry that is no difference any more fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from control.world import World, refuse_kind
from trainwright.api.meta import ObjectMeta
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime, TrainingRuntime
from trainwright.api.trainjob import TrainJob

FOLDER = Path(__file__).parent / "oracle"
COUNTERS = ("ready", "succeeded", "failed", "active", "suspended")

RESUMED = "Suspended goes away on resume: the public SDK calls a job Running only without any condition"
TERMINAL = "a failed job is final: deleting its JobSet does not run it again"
MESSAGE = "the message of Failed names pod, rank, container and exit code"
REFUSED = "what the API server refuses is a condition, not only an event"
FOREIGN = "a JobSet of somebody else is refused, and its counters are not the job's"
CLAIMS = "a job with volume claims can be suspended and resumed: its claims are sent as they are stored"
ZEROS = "after the deadline nothing is active"
NO_RUNTIME = "the snapshot counts: the peer's webhook refuses every update once the live runtime is gone"

# (case, TrainJob, step) -> why what was recorded is not what we say
DIFFERENT = {
    ("life-deadline", "running", 1): ZEROS,
    ("life-deadline", "running", 2): ZEROS,
    ("life-deadline", "running", 3): ZEROS,
    ("life-deadline", "suspended", 2): RESUMED,
    ("life-deadline", "suspended", 3): f"{RESUMED}; {ZEROS}",
    ("life-failed", "alpha", 2): MESSAGE,
    ("life-failed", "alpha", 3): TERMINAL,
    ("life-failed-restarts", "alpha", 2): MESSAGE,
    ("life-foreign-jobset-suspended", "alpha", 0): FOREIGN,
    ("life-quota", "alpha", 0): REFUSED,
    ("life-runtime-deleted", "alpha", 2): NO_RUNTIME,
    ("life-runtime-deleted", "alpha", 3): NO_RUNTIME,
    ("life-runtime-deleted", "beta", 2): NO_RUNTIME,
    ("life-runtime-deleted", "beta", 3): NO_RUNTIME,
    ("life-runtime-edited", "alpha", 2): RESUMED,
    ("life-runtime-edited", "alpha", 3): RESUMED,
    ("life-suspend-running", "alpha", 3): RESUMED,
    ("life-suspend-running", "alpha", 4): RESUMED,
    ("life-suspend-volume-claims", "alpha", 1): CLAIMS,
    ("life-suspend-volume-claims", "beta", 1): CLAIMS,
}


def cases() -> Iterator[Any]:
    for file in sorted(FOLDER.glob("life-*.yaml")):
        case = yaml.safe_load(file.read_text())
        names = {name for step in case["steps"] for name in step["statuses"]}
        for name in sorted(names):
            yield pytest.param(file.stem, name, case["steps"], id=f"{file.stem}/{name}")


@pytest.mark.parametrize(("case", "name", "steps"), list(cases()))
def test_a_job_lives_as_recorded_or_differs_for_a_reason(case: str, name: str, steps: list[Any]) -> None:
    world = build_world(name, steps[0]["documents"])
    expected: dict[str, Any] = {}
    for number, step in enumerate(steps):
        play(world, step["documents"], is_first=number == 0)
        expected = step["statuses"].get(name, expected)
        found = describe(world)
        reason = DIFFERENT.get((case, name, number))
        if reason is None:
            assert found == expected, f"step {number}"
        else:
            assert found != expected, f"step {number} is as recorded: {reason!r} is no difference"


def describe(world: World) -> dict[str, Any]:
    status = world.status
    return {
        "conditions": [[c.type, c.status, c.reason, c.message] for c in status.conditions or ()],
        "counters": {s.name: [getattr(s, key) for key in COUNTERS] for s in status.jobs_status or ()},
    }


def build_world(name: str, documents: list[Any]) -> World:
    body = next(d for d in documents if d.get("kind") == "TrainJob" and d["metadata"]["name"] == name)
    job = msgspec.convert(body, TrainJob)
    job = msgspec.structs.replace(job, metadata=ObjectMeta(name=name, namespace="ns", uid="uid-job"))
    kind = job.spec.runtime_ref.kind or "ClusterTrainingRuntime"  # type: ignore[union-attr]
    found = next(d for d in documents if d.get("kind") == kind)
    runtime: Runtime = msgspec.convert(
        found, TrainingRuntime if kind == "TrainingRuntime" else ClusterTrainingRuntime
    )
    return World(job, runtime)


def play(world: World, documents: list[Any], *, is_first: bool) -> None:
    """Do the step's actions, then let the world come to rest."""
    for document in documents:
        match document:
            case {"action": "patch", "kind": "ResourceQuota"} | {"action": "wait", "seconds": 1}:
                pass
            case {"action": "patch", "kind": kind, "name": name, "patch": patch}:
                if (kind, name) in world.objects and (kind != "TrainJob" or name == world.name):
                    world.merge(kind, name, patch)
            case {"action": "delete", "kind": "ResourceQuota"}:
                world.refuse = lambda _: None
            case {"action": "delete", "kind": kind, "name": name}:
                if kind != "TrainJob":
                    world.delete(kind, name)
            case {"action": "pods", "phase": phase, "replicatedJob": role}:
                set_pods(world, phase, role, document.get("indexes"))
            case {"action": "wait", "seconds": seconds}:
                world.settle()
                world.wait(seconds + 1)
            case {"kind": "ResourceQuota"}:
                world.refuse = refuse_kind("ConfigMap")
            case {"kind": "JobSet"} if is_first:
                world.put({**document, "status": {"replicatedJobsStatus": []}})
    world.settle()


def set_pods(world: World, phase: str, role: str, ranks: list[int] | None) -> None:
    world.settle()
    match phase:
        case "Running":
            world.run_pods(role)
        case "Succeeded":
            world.finish_pods(role)
        case "Failed":
            for rank in ranks or [0]:
                world.fail_pod(rank, 1, role)


def test_every_difference_is_of_a_case_that_is_there() -> None:
    known = {(param.values[0], param.values[1]) for param in cases()}
    assert {(case, name) for case, name, _ in DIFFERENT} <= known
