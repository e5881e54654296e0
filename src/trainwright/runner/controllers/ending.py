"""Ends a job whose processes are gone although nobody asked for that, and says so at every layer.

Pods, Jobs and the JobSet fail with one reason and message; the TrainJob follows its JobSet as it always does,
and its cause is found in the pods as it always is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from trainwright.api.batch import Job, JobStatus
from trainwright.api.constants import JOB_SET
from trainwright.api.core import ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus
from trainwright.api.encoding import build_json, parse_object
from trainwright.api.jobset import JobSet, JobSetStatus
from trainwright.api.meta import Json, ObjectKey, truncate_to_seconds
from trainwright.runner.controllers.actions import WriteStatus
from trainwright.runner.controllers.conditions import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    TRUE,
    build_job_condition,
    has_condition,
    set_job_condition,
)
from trainwright.runner.controllers.failure_policy import fail
from trainwright.runner.controllers.jobset import is_finished

SUPERVISOR_LOST: Final = "SupervisorLost"
SUPERVISOR_STOPPED: Final = "SupervisorStopped"

_KILLED: Final = 137  # 128 + SIGKILL


class End(msgspec.Struct, frozen=True):
    """Why, in the words of a condition."""

    reason: str
    message: str


def build_end(
    job_set: Json, jobs: Sequence[Json], pods: Sequence[Json], end: End, now: datetime
) -> list[WriteStatus]:
    """Return the status writes that end a JobSet with its Jobs and pods; nothing where it has ended.

    Pods come first and the JobSet last: a crash in between leaves what is done again.
    """
    view = parse_object(job_set, JobSet)
    if is_finished(view.status):
        return []
    writes = [
        _write("Pod", body, _end_pod(parse_object(body, Pod), end, now))
        for body in pods
        if (body.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}
    ]
    for body in jobs:
        status = parse_object(body, Job).status or JobStatus()
        if not (has_condition(status.conditions, COMPLETE) or has_condition(status.conditions, FAILED)):
            writes.append(_write("Job", body, _end_job(status, end, now)))
    return [
        *writes,
        _write(JOB_SET, job_set, fail(view.status or JobSetStatus(), end.reason, end.message, now)),
    ]


def _end_pod(pod: Pod, end: End, now: datetime) -> PodStatus:
    def close(containers: list[ContainerStatus] | None) -> list[ContainerStatus] | None:
        return [_end_container(container, end, now) for container in containers or ()] or None

    return msgspec.structs.replace(
        pod.status,
        phase="Failed",
        reason=end.reason,
        message=end.message,
        init_container_statuses=close(pod.status.init_container_statuses),
        container_statuses=close(pod.status.container_statuses),
    )


def _end_container(container: ContainerStatus, end: End, now: datetime) -> ContainerStatus:
    running = container.state.running
    if running is None:
        return container
    terminated = ContainerStateTerminated(
        exit_code=_KILLED,
        reason=end.reason,
        message=end.message,
        started_at=running.started_at,
        finished_at=truncate_to_seconds(now),
    )
    return msgspec.structs.replace(container, ready=False, state=ContainerState(terminated=terminated))


def _end_job(status: JobStatus, end: End, now: datetime) -> JobStatus:
    conditions = status.conditions
    for type_ in (FAILURE_TARGET, FAILED):
        conditions = set_job_condition(
            conditions, build_job_condition(type_, TRUE, end.reason, end.message, now)
        )
    failed = status.failed + status.active + status.terminating
    return msgspec.structs.replace(
        status, active=0, ready=0, terminating=0, failed=failed, conditions=conditions
    )


def _write(kind: str, body: Json, status: msgspec.Struct) -> WriteStatus:
    metadata = body["metadata"]
    key = ObjectKey(kind, metadata.get("namespace") or "", metadata["name"])
    return WriteStatus(key=key, status=build_json(status), before=body.get("status") or {})
