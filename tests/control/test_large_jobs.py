"""Looking at a job of many pods takes as many steps as it has pods, whatever state they are in.

A job of 10,000 nodes is looked at for each change of each of its pods.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from control.builders import runtime, step, train_job
from control.world import NOW
from trainwright.api.batch import Job
from trainwright.api.constants import COMPLETION_INDEX, JOB_INDEX, JOBSET_UID, REPLICATED_JOB_NAME
from trainwright.api.core import Event, Pod
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json
from trainwright.api.trainjob import MAX_STEPS
from trainwright.control import Seen, decide
from trainwright.control.actions import PatchStatus
from trainwright.render import render_job_set
from work import assert_linear

GONE = {"deletionTimestamp": "2026-01-31T12:00:00Z", "deletionGracePeriodSeconds": 30}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
CREATING = [{"name": "node", "state": {"waiting": {"reason": "ContainerCreating"}}}]
AT_WORK = [{"name": "node", "state": {"running": {}}, "ready": True}]
ENDED = [{"name": "node", "state": {"terminated": {"exitCode": 1}}}]


def labels(job: int, rank: int = 0) -> Json:
    names = {REPLICATED_JOB_NAME: "node", JOBSET_UID: "uid-js"}
    return {**names, JOB_INDEX: str(job), COMPLETION_INDEX: str(rank)}


def pod(rank: int, status: Json, **metadata: Any) -> Pod:
    meta = {"name": f"demo-node-0-{rank}-xxxxx", "labels": labels(0, rank), **metadata}
    return msgspec.convert({"metadata": meta, "status": status}, Pod)


def child(index: int, pods: int = 1, **status: int) -> Job:
    meta = {"name": f"demo-node-{index}", "labels": labels(index)}
    return msgspec.convert(
        {"metadata": meta, "spec": {"parallelism": pods, "template": {}}, "status": status}, Job
    )


def event(number: int, kind: str, name: str, reason: str) -> Event:
    about = {"kind": kind, "name": name}
    words = {"type": "Warning", "reason": reason, "message": "refused"}
    return msgspec.convert({"metadata": {"name": f"e{number}"}, "involvedObject": about, **words}, Event)


def pods(size: int, status: Json, **metadata: Any) -> Json:
    return {
        "pods": tuple(pod(rank, status, **metadata) for rank in range(size)),
        "jobs": (child(0, size, active=size),),
    }


def many_jobs_without_pods(size: int) -> Json:
    refused = (event(i, "Job", f"another-{i}", "FailedCreate") for i in range(size))
    return {"jobs": tuple(map(child, range(size))), "events": tuple(refused)}


def pods_with_events(size: int) -> Json:
    mounts = (event(i, "Pod", f"demo-node-0-{i}-xxxxx", "FailedMount") for i in range(size))
    return {**pods(size, {"phase": "Pending", "containerStatuses": CREATING}), "events": tuple(mounts)}


WORLDS: dict[str, Callable[[int], Json]] = {
    "all at work": lambda size: pods(size, {"phase": "Running", "containerStatuses": AT_WORK}),
    "none fits": lambda size: pods(size, {"phase": "Pending", "conditions": [UNSCHEDULABLE]}),
    "all deleted": lambda size: pods(size, {"phase": "Running"}, **GONE),
    "all failed": lambda size: pods(size, {"phase": "Failed", "containerStatuses": ENDED}),
    "all without their volumes": pods_with_events,
    "as many Jobs whose pods are refused": many_jobs_without_pods,
}


@pytest.mark.parametrize("build", WORLDS.values(), ids=WORLDS)
def test_deciding_takes_steps_in_proportion_to_the_children(build: Callable[[int], Json]) -> None:
    rt = runtime()

    def prepare(size: int) -> Callable[[], object]:
        job = train_job(num_nodes=size)
        rendered = render_job_set(job, rt)
        rendered["metadata"]["uid"] = "uid-js"
        counters = {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
        rendered["status"] = {"replicatedJobsStatus": [counters]}
        job_set = msgspec.convert(rendered, JobSet)
        seen = Seen(train_job=job, runtime=rt, snapshot=rt, job_set=job_set, **build(size))
        return lambda: decide(seen, NOW)

    assert_linear(prepare)


def test_the_status_tells_of_no_more_replicated_jobs_than_an_api_server_takes() -> None:
    """No such runtime is admitted, but one may be there from before."""
    rt = runtime(step(), *(step(f"s{i}", ancestor=None) for i in range(150)))
    [patch] = decide(Seen(train_job=train_job(suspend=True), runtime=rt, snapshot=rt), NOW)
    assert isinstance(patch, PatchStatus)
    assert patch.status.jobs_status is not None
    assert len(patch.status.jobs_status) == MAX_STEPS
