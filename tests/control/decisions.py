"""What tests of `decide` expect again and again: keys, statuses, and a job that runs."""

from __future__ import annotations

from typing import Any

import msgspec

from control.builders import runtime, train_job
from control.world import JOB, NOW, World
from trainwright.api.meta import Condition, ObjectKey
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import Cause, JobStatus, RuntimeSnapshotRef, TrainJob, TrainJobStatus
from trainwright.control.snapshot import hash_runtime

KEY = ObjectKey("TrainJob", "ns", JOB)
JOB_SET_KEY = ObjectKey("JobSet", "ns", JOB)
SUSPENDED = Condition(
    type="Suspended",
    status="True",
    reason="Suspended",
    message="TrainJob is suspended",
    last_transition_time=NOW,
)


def named(runtime: Runtime) -> RuntimeSnapshotRef:
    return RuntimeSnapshotRef(
        name="rt",
        uid=runtime.metadata.uid,
        generation=runtime.metadata.generation,
        hash=hash_runtime(runtime),
    )


def counters(name: str = "node", **counts: int) -> JobStatus:
    zeros = {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    return JobStatus(name=name, **{**zeros, **counts})


def own_cause(reason: str, message: str, hint: str, **fields: Any) -> Cause:
    where = {"layer": "TrainJob", "kind": "TrainJob", "name": JOB, **fields}
    return Cause(reason=reason, message=message, hint=hint, since=NOW, **where)


BY_USER = own_cause(
    "Suspended",
    "spec.suspend is true",
    f"resume it: `trainwright resume {JOB}`, or set spec.suspend to false",
)


def status_of(job: TrainJob, status: TrainJobStatus) -> TrainJob:
    return msgspec.structs.replace(job, status=status)


def failed(reason: str, message: str) -> Condition:
    return Condition(
        type="Failed",
        status="True",
        reason=reason,
        message=message,
        last_transition_time=NOW,
    )


def running(**spec: Any) -> World:
    """A world whose job runs."""
    world = World(train_job(num_nodes=2, **spec), runtime())
    world.settle()
    world.run_pods()
    world.settle()
    return world
