"""The status of a TrainJob, computed as a whole from what is seen and what is about to be done.

Our conditions are exactly Suspended, Complete and Failed, and ResourcesCreated while it is False; those of
other controllers stay. Suspended goes away on resume: the public SDK calls a job Running only while it has no
condition (clients, section 1.2). The first three hold whatever is edited, so they name no generation: to
`kubectl wait` one that names an older generation than the object's is not there, and to raise it would be a
write between two of Kueue's.
A time in the status is written once, when what it tells begins; all else follows from the observations, so
the same world gives the same status in whatever order it was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from trainwright.api.constants import ANCESTOR_CONTAINERS, ANCESTOR_LABEL, ANCESTOR_TRAINER
from trainwright.api.jobset import ReplicatedJobStatus
from trainwright.api.kueue import QUEUE_LABEL
from trainwright.api.meta import Condition, Json, truncate_to_seconds
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import MAX_CONDITIONS, MAX_STEPS, JobStatus, RuntimeSnapshotRef, TrainJobStatus
from trainwright.control.cause import find_cause
from trainwright.control.ending import Ending
from trainwright.control.lifecycle import Plan
from trainwright.control.problem import OWN_REASONS, RESOURCES_CREATED, Problem
from trainwright.control.slices import fold_slices
from trainwright.control.snapshot import build_snapshot_ref
from trainwright.control.view import COMPLETE, FAILED, View, find_place, is_live, is_of_current_attempt

SUSPENDED: Final = "Suspended"

CREATED: Final = "Created"
QUEUED: Final = "Queued"
RUNNING: Final = "Running"


def build_status(view: View, plan: Plan, problem: Problem | None, now: datetime) -> TrainJobStatus:
    """Return the status of a job that goes on; `problem` is the plan's own, or the refusal of a write.

    What an API server refused stays in the status until the write went through (the JobSet is seen), not
    only until it is tried again: otherwise each try would be two writes.
    """
    before = view.status
    refused = get_condition(before, RESOURCES_CREATED)
    keeps_refusal = (
        problem is None and plan.has_actions and refused is not None and refused.reason not in OWN_REASONS
    )
    conditions = [
        _build_suspended(view, now) if view.is_suspended else None,
        refused if keeps_refusal else _build_refused(view, problem, now),
    ]
    counted = _count_jobs(view, plan)
    restarts = _get_restarts(view, counted)
    return TrainJobStatus(
        conditions=_join_conditions(before, conditions),
        jobs_status=fold_slices(counted, view.job_set or view.deleted_job_set) or None,
        # Shown as long as the job rests; what runs next has not reported yet (spec 03, section 1.7).
        trainer_status=None if _is_just_resumed(view) else before.trainer_status,
        phase=_derive_phase(view, plan, counted, restarts),
        start_time=get_start_time(view, now),
        restarts=restarts,
        cause=before.cause if keeps_refusal else find_cause(view, problem, plan.wait, now),
        runtime_snapshot=_build_snapshot_ref(view, plan),
    )


def build_final_status(view: View, runtime: Runtime | None, ending: Ending, now: datetime) -> TrainJobStatus:
    """Return the status of a job that has just ended. Nothing in it changes afterwards.

    Counters of work that goes on are zero: the pods that are left are being ended (cases R07, B013).
    """
    before = view.status
    started, ended = get_start_time(view, now), truncate_to_seconds(ending.at)
    counted = _count_at_end(view) or build_jobs_status(view, Plan(runtime=runtime)) or ()
    end = Condition(
        type=ending.type,
        status="True",
        reason=ending.reason,
        message=ending.message,
        # When we saw it, by the clock that a TTL is counted on; `completionTime` is when it was.
        last_transition_time=truncate_to_seconds(now),
    )
    jobs_status = [
        JobStatus(
            name=entry.name, ready=0, succeeded=entry.succeeded, failed=entry.failed, active=0, suspended=0
        )
        for entry in counted
    ]
    return TrainJobStatus(
        conditions=_join_conditions(
            before, [_build_suspended(view, now) if view.is_suspended else None, end]
        ),
        jobs_status=jobs_status or None,
        trainer_status=before.trainer_status,
        phase=ending.type,
        start_time=started,
        # By the clock of JobSet's controller, which may be behind ours: nothing ends before it began.
        completion_time=max(ended, started or ended),
        restarts=_get_restarts(view, counted),
        cause=ending.cause,
        runtime_snapshot=before.runtime_snapshot,
    )


def _count_at_end(view: View) -> Sequence[JobStatus] | None:
    """Return the last counters there are of a job whose JobSet is gone; None where it is there."""
    if view.job_set is not None:
        return None
    last = view.deleted_job_set.status if view.deleted_job_set else None
    counted = last.replicated_jobs_status if last else None
    if not counted:
        return view.status.jobs_status
    return fold_slices([_copy(entry) for entry in counted[:MAX_STEPS]], view.deleted_job_set)


def complete_final_status(before: TrainJobStatus, finished: Condition) -> TrainJobStatus:
    """Return the status of a finished job with what another controller did not write: phase, times."""
    return msgspec.structs.replace(
        before,
        phase=finished.type,
        completion_time=before.completion_time or truncate_to_seconds(finished.last_transition_time),
    )


def find_finished_condition(status: TrainJobStatus | None) -> Condition | None:
    """Return Complete or Failed if it is True: the job is finished, whatever happens to its children."""
    for type_ in (COMPLETE, FAILED):
        condition = get_condition(status, type_)
        if condition is not None and condition.status == "True":
            return condition
    return None


def get_condition(status: TrainJobStatus | None, type_: str) -> Condition | None:
    """Return the condition of this type."""
    conditions = (status.conditions if status else None) or ()
    return next((condition for condition in conditions if condition.type == type_), None)


def get_start_time(view: View, now: datetime) -> datetime | None:
    """Return since when the job runs: from its first pass or its last resume; None while it is suspended.

    As batch/v1 Job keeps it. Under the peer, which keeps Suspended=False instead of a time, that
    condition tells, or the age of the JobSet.
    """
    if view.is_suspended:
        return None
    if _is_just_resumed(view):
        return truncate_to_seconds(now)
    if view.status.start_time is not None:
        return view.status.start_time
    suspended = get_condition(view.status, SUSPENDED)
    if suspended is not None:
        return suspended.last_transition_time
    made = view.job_set.metadata.creation_timestamp if view.job_set else None
    return truncate_to_seconds(made or now)


def _is_just_resumed(view: View) -> bool:
    """Say whether the job is to run, and its status still says that it rests."""
    suspended = get_condition(view.status, SUSPENDED)
    return not view.is_suspended and suspended is not None and suspended.status == "True"


def build_jobs_status(view: View, plan: Plan) -> list[JobStatus] | None:
    """Return the counters of child Jobs, one entry per replicated job, names descending as JobSet lists them.

    They are JobSet's own, but for slices (`control.slices`). Before it has counted: zeros for a job that
    runs, its replicas as suspended for one that does not. `active` holds while any pod lives, from before
    JobSet has counted it until its grace period is over: Kueue gives the devices to the next job as soon as
    it is zero (clients, section 2.4).
    """
    return fold_slices(_count_jobs(view, plan), view.job_set or view.deleted_job_set) or None


def _count_jobs(view: View, plan: Plan) -> list[JobStatus]:
    counted = view.job_set.status.replicated_jobs_status if view.job_set and view.job_set.status else None
    if counted:
        entries = [_copy(entry) for entry in counted[:MAX_STEPS]]
    else:
        entries = [
            JobStatus(
                name=name,
                ready=0,
                succeeded=0,
                failed=0,
                active=0,
                suspended=replicas if view.is_suspended else 0,
            )
            for name, replicas in sorted(_list_replicas(view, plan).items(), reverse=True)[:MAX_STEPS]
        ]
    return _hold_active(entries, _count_live_jobs(view))


def _hold_active(entries: Sequence[JobStatus], live: dict[str, int]) -> list[JobStatus]:
    return [
        msgspec.structs.replace(entry, active=max(entry.active, live.get(entry.name, 0))) for entry in entries
    ]


def _count_live_jobs(view: View) -> dict[str, int]:
    """Return per replicated job how many child Jobs have a pod that has not ended."""
    places = {find_place(pod.metadata) for pod in (*view.live_pods, *view.leftover_pods) if is_live(pod)}
    indexes = {(place.replicated_job, place.job_index) for place in places}
    for job in (*view.jobs, *view.leftover_jobs):
        if job.status and job.status.active + job.status.terminating > 0:
            place = find_place(job.metadata)
            indexes.add((place.replicated_job, place.job_index))
    counts: dict[str, int] = {}
    for name, _ in indexes:
        counts[name] = counts.get(name, 0) + 1
    return counts


def _list_replicas(view: View, plan: Plan) -> dict[str, int]:
    """Return how many Jobs each replicated job has, from the JobSet, else from the runtime.

    A replicated job with an ancestor step is rendered with one (spec 02, section 3.2), and its slices are
    told as one.
    """
    if view.job_set is not None:
        return {entry.name: entry.replicas for entry in view.job_set.spec.replicated_jobs}
    return {
        entry["name"]: 1 if _get_ancestor(entry) in ANCESTOR_CONTAINERS else entry.get("replicas", 1)
        for entry in _list_templates(plan.runtime)
    }


def _list_templates(runtime: Runtime | None) -> Iterable[Json]:
    template = runtime.spec.template if runtime and runtime.spec else None
    return ((template.spec if template else None) or {}).get("replicatedJobs") or ()


def _get_ancestor(replicated_job: Json) -> str | None:
    metadata = (replicated_job.get("template") or {}).get("metadata") or {}
    step: str | None = (metadata.get("labels") or {}).get(ANCESTOR_LABEL)
    return step


def _derive_phase(
    view: View, plan: Plan, jobs_status: Sequence[JobStatus] | None, restarts: int | None
) -> str:
    """Return the one word for people.

    Running once every Job of the trainer is ready, has succeeded, or has all its pods at work or done (case
    B006), initializers aside; a job that was restarted has been there. The counters alone would not do: a pod
    that is about to end is no longer ready, and not yet counted. Queued is suspended for a queue.
    """
    if view.is_suspended:
        return QUEUED if QUEUE_LABEL in (view.job.metadata.labels or {}) else SUSPENDED
    if view.job_set is None:
        return CREATED
    if restarts:
        return RUNNING
    replicas = _list_replicas(view, plan)
    trainers = {
        entry.name
        for entry in view.job_set.spec.replicated_jobs
        if _get_ancestor({"template": entry.template}) == ANCESTOR_TRAINER
    } or set(replicas)
    started = _count_started_jobs(view)
    up = {entry.name: max(entry.ready + entry.succeeded, started[entry.name]) for entry in jobs_status or ()}
    is_running = bool(trainers) and all(up.get(name, 0) >= max(replicas[name], 1) for name in trainers)
    return RUNNING if is_running else CREATED


def _count_started_jobs(view: View) -> Counter[str]:
    """Return per replicated job how many Jobs have all their pods at work, or ended since.

    Pods that failed and are gone are still counted by their Job.
    """
    begun: dict[tuple[str, int], set[int]] = {}
    failed: Counter[tuple[str, int]] = Counter()
    for pod in view.pods:
        if pod.status.phase not in ("Pending", "Unknown") and is_of_current_attempt(
            pod.metadata, view.job_set
        ):
            place = find_place(pod.metadata)
            begun.setdefault((place.replicated_job, place.job_index), set()).add(place.rank)
            failed[place.replicated_job, place.job_index] += pod.status.phase == "Failed"
    started: Counter[str] = Counter()
    for job in view.jobs:
        place = find_place(job.metadata)
        index = (place.replicated_job, place.job_index)
        gone = max(job.status.failed - failed[index], 0) if job.status else 0
        ranks = len(begun.get(index, ()))
        started[place.replicated_job] += ranks + gone >= max(job.spec.parallelism or 1, 1)
    return started


def _get_restarts(view: View, jobs_status: Sequence[JobStatus] | None) -> int | None:
    """Return how often the JobSet started again; None until a child Job was seen at work (`has_begun`)."""
    before = view.status.restarts
    job_set = view.job_set or view.deleted_job_set
    if job_set is None or job_set.status is None:
        return before
    worked = any(e.active or e.ready or e.succeeded or e.failed for e in jobs_status or ())
    restarts = job_set.status.restarts
    return restarts if worked or restarts or before is not None else None


def _join_conditions(before: TrainJobStatus, own: Iterable[Condition | None]) -> list[Condition] | None:
    """Return our conditions, then those of other controllers, whose types are qualified by a domain.

    Whatever else is there an older version wrote. As many of others are kept as the list has room for: our
    own must go in.
    """
    ours = [condition for condition in own if condition is not None]
    others = [condition for condition in before.conditions or () if "/" in condition.type]
    return [*ours, *others[: MAX_CONDITIONS - len(ours)]] or None


def _build_suspended(view: View, now: datetime) -> Condition:
    before = get_condition(view.status, SUSPENDED)
    if before is not None and before.status == "True":
        return before
    return Condition(
        type=SUSPENDED,
        status="True",
        reason="Suspended",
        message="TrainJob is suspended",
        last_transition_time=truncate_to_seconds(now),
    )


def _build_refused(view: View, problem: Problem | None, now: datetime) -> Condition | None:
    if problem is None:
        return None
    before = get_condition(view.status, RESOURCES_CREATED)
    return Condition(
        type=RESOURCES_CREATED,
        status="False",
        reason=problem.reason,
        message=problem.message,
        last_transition_time=before.last_transition_time if before else truncate_to_seconds(now),
        observed_generation=view.job.metadata.generation,
    )


def _build_snapshot_ref(view: View, plan: Plan) -> RuntimeSnapshotRef | None:
    """Return which runtime the job is made from; what is named already is not hashed again."""
    named, runtime = view.status.runtime_snapshot, plan.runtime
    if runtime is None or (named is not None and runtime is view.seen.snapshot):
        return named
    return build_snapshot_ref(runtime, view.seen.runtime)


def _copy(entry: ReplicatedJobStatus) -> JobStatus:
    return JobStatus(
        name=entry.name,
        ready=entry.ready,
        succeeded=entry.succeeded,
        failed=entry.failed,
        active=entry.active,
        suspended=entry.suspended,
    )
