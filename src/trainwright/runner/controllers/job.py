"""The Job controller, as a function: a batch/v1 Job and its pods in, actions out.

Indexed and not Indexed Jobs, with backoff limits, pod failure policy, success policy, deadline and
suspension. Reasons and messages are those of Kubernetes, because JobSet's failure rules match them.

Two things differ, because there is one machine and no kubelet to be polite to. A pod is replaced only when
the old one is gone for good (batch/v1 calls that `podReplacementPolicy: Failed`): two processes of one rank
would meet at the same address. And the pause before a replacement starts at one second instead of ten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from trainwright.api.batch import Job, JobCondition, JobStatus
from trainwright.api.core import Pod
from trainwright.api.encoding import build_json, parse_object
from trainwright.api.meta import Json, ObjectKey, truncate_to_seconds
from trainwright.runner.controllers.actions import (
    Action,
    Create,
    MarkDeleted,
    Remove,
    RequeueAfter,
    WriteStatus,
)
from trainwright.runner.controllers.conditions import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    FALSE,
    SUCCESS_CRITERIA_MET,
    SUSPENDED,
    TRUE,
    build_job_condition,
    has_condition,
    set_job_condition,
)
from trainwright.runner.controllers.job_end import (
    Indexes,
    JobEnd,
    find_failure,
    find_indexes,
    find_success,
    get_completions,
    get_parallelism,
    get_seconds_left,
    is_indexed,
)
from trainwright.runner.controllers.job_indexes import format_indexes, get_completion_index
from trainwright.runner.controllers.job_pods import EARLIEST, JobPods, classify_pods, get_end, group_by_index
from trainwright.runner.controllers.pod_template import build_pod

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0


def decide_job(job: Json, pods: Sequence[Json], now: datetime, new_suffix: Callable[[], str]) -> list[Action]:
    """Return what to do about a Job, given the pods of its namespace that may be its own.

    `new_suffix` gives the random end of a pod's name. Given the result of its own actions, the function asks
    for nothing. A finished Job is left as it is; one that is being deleted goes once its pods are gone.
    """
    view = parse_object(job, Job)
    own = classify_pods(view, pods)
    before = view.status or JobStatus()
    if view.metadata.deletion_timestamp is not None:
        return _delete(view, own, job)
    if has_condition(before.conditions, COMPLETE) or has_condition(before.conditions, FAILED):
        return []
    if not view.spec.suspend and before.start_time is None:
        # The deadline counts from here, so the rest of this pass must see it.
        before = msgspec.structs.replace(before, start_time=truncate_to_seconds(now))
        view = msgspec.structs.replace(view, status=before)
    indexes = find_indexes(view, own)
    failure = find_failure(view, own, indexes, now)
    success = None if failure else find_success(view, own, indexes)
    if failure or success:
        actions = _delete_pods(own.active)
        conditions = _build_end(before, own, failure, success, now)
    elif view.spec.suspend:
        actions = _delete_pods(own.active)
        conditions = set_job_condition(
            before.conditions, build_job_condition(SUSPENDED, TRUE, "JobSuspended", "Job suspended", now)
        )
    else:
        actions = _scale(view, own, indexes, now, new_suffix)
        conditions = set_job_condition(
            before.conditions, build_job_condition(SUSPENDED, FALSE, "JobResumed", "Job resumed", now)
        )
        if (left := get_seconds_left(view, now)) is not None:
            actions.append(RequeueAfter(seconds=left))
    status = _build_status(view, own, indexes, conditions, failed=failure is not None, now=now)
    return [*actions, *_write(view, job, status)]


def _scale(
    job: Job, pods: JobPods, indexes: Indexes, now: datetime, new_suffix: Callable[[], str]
) -> list[Action]:
    """Return the pods to make and to end so that as many run as should, one per index."""
    surplus = _find_surplus(job, pods, indexes)
    actions = _delete_pods(surplus)
    room = get_parallelism(job) - len(pods.active) - len(pods.terminating)
    pause = 0.0
    for index in _find_open(job, pods, indexes):
        if room <= 0:
            break
        wait = _get_pause(job, pods, index, now)
        if wait > 0:
            pause = min(pause or wait, wait)
            continue
        actions.append(Create(object=build_pod(job, index, new_suffix())))
        room -= 1
    return [*actions, RequeueAfter(seconds=pause)] if pause else actions


def _find_open(job: Job, pods: JobPods, indexes: Indexes) -> list[int | None]:
    """Return the indexes that need a pod, ascending; one None per pod in a Job that is not Indexed."""
    completions = get_completions(job)
    if is_indexed(job):
        taken = {get_completion_index(pod) for pod in (*pods.active, *pods.terminating)}
        return [
            index
            for index in range(completions or 0)
            if index not in taken and index not in indexes.completed and index not in indexes.failed
        ]
    running = len(pods.active) + len(pods.terminating)
    if completions is None:
        return [] if pods.succeeded else [None] * (get_parallelism(job) - running)
    return [None] * (completions - len(pods.succeeded) - running)


def _find_surplus(job: Job, pods: JobPods, indexes: Indexes) -> list[Pod]:
    """Return active pods that should not run: a second one of an index, one that is done, one too many."""
    if is_indexed(job):
        groups = group_by_index(pods.active, get_completions(job) or 0)
        kept = [
            groups[i][0] for i in sorted(groups) if i not in indexes.completed and i not in indexes.failed
        ]
    else:
        kept = list(pods.active)
    names = {pod.metadata.name for pod in kept[: get_parallelism(job)]}
    return [pod for pod in pods.active if pod.metadata.name not in names]


def _get_pause(job: Job, pods: JobPods, index: int | None, now: datetime) -> float:
    """Return how many seconds to wait before a pod that takes the place of failed ones."""
    failed: Sequence[Pod] = pods.failed
    if job.spec.backoff_limit_per_index is not None and index is not None:
        failed = [pod for pod in failed if get_completion_index(pod) == index]
    last_success = max(map(get_end, pods.succeeded), default=EARLIEST)
    ends = [end for end in map(get_end, failed) if end > last_success]
    if not ends:
        return 0.0
    pause = min(FIRST_PAUSE_SECONDS * 2 ** (len(ends) - 1), LONGEST_PAUSE_SECONDS)
    return (max(ends) + timedelta(seconds=pause) - now).total_seconds()


def _build_end(
    before: JobStatus, pods: JobPods, failure: JobEnd | None, success: JobEnd | None, now: datetime
) -> list[JobCondition]:
    """Return the conditions of a Job that ends: the verdict at once, the end when no pod is left."""
    announced, final = (FAILURE_TARGET, FAILED) if failure else (SUCCESS_CRITERIA_MET, COMPLETE)
    end = failure or success
    assert end is not None  # noqa: S101 (the caller ends a Job for one of the two)
    conditions = set_job_condition(
        before.conditions, build_job_condition(announced, TRUE, end.reason, end.message, now)
    )
    if pods.active or pods.terminating:
        return conditions
    return set_job_condition(conditions, build_job_condition(final, TRUE, end.reason, end.message, now))


def _build_status(
    job: Job, pods: JobPods, indexes: Indexes, conditions: list[JobCondition], *, failed: bool, now: datetime
) -> JobStatus:
    before = job.status or JobStatus()
    count = len(pods.counted)
    if failed:
        # Pods that a failing Job takes along count as failed, also after they are gone.
        count = max(before.failed, count + len(pods.active) + len(pods.terminating))
    done = has_condition(conditions, COMPLETE)
    return JobStatus(
        active=len(pods.active),
        ready=pods.ready,
        succeeded=len(indexes.completed) if is_indexed(job) else len(pods.succeeded),
        failed=count,
        terminating=len(pods.terminating),
        completed_indexes=format_indexes(indexes.completed),
        failed_indexes=format_indexes(indexes.failed),
        start_time=None if job.spec.suspend else before.start_time,
        completion_time=truncate_to_seconds(now) if done else None,
        conditions=conditions or None,
    )


def _delete(job: Job, pods: JobPods, body: Json) -> list[Action]:
    finished = (*pods.succeeded, *pods.failed)
    if not (pods.active or pods.terminating or finished):
        return [Remove(key=_get_key("Job", job), uid=job.metadata.uid)]
    before = job.status or JobStatus()
    status = msgspec.structs.replace(
        before, active=len(pods.active), ready=0, terminating=len(pods.terminating)
    )
    return [*_delete_pods((*pods.active, *finished)), *_write(job, body, status)]


def _write(job: Job, body: Json, status: JobStatus) -> list[Action]:
    built: Json = build_json(status)
    known: Json = body.get("status") or {}
    return [] if built == known else [WriteStatus(key=_get_key("Job", job), status=built, before=known)]


def _delete_pods(pods: Sequence[Pod]) -> list[Action]:
    return [MarkDeleted(key=_get_key("Pod", pod)) for pod in pods]


def _get_key(kind: str, obj: Job | Pod) -> ObjectKey:
    return ObjectKey(kind, obj.metadata.namespace or "", obj.metadata.name)
