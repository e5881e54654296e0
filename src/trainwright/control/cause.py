"""The one cause why a job makes no progress, found by looking through every layer in a fixed order.

    TrainJob   suspended by a user                     JobSet   refused, foreign, or waited for
    Queue      suspended for a queue                   Job      the API server refuses its pods
    Runtime    missing, unusable, unrenderable         Pod, Container, Node, PodGroup   the pods' own words

The first layer that has something to say wins; within pods, the strongest evidence (`evidence.Force`), then
the one that happened first. Two looks at the same world give the same cause, byte for byte: messages
that alternate or count are evened out, because each difference is a status write.
Source: cause layers, section 3.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import msgspec

from trainwright.api.batch import Job, JobStatus
from trainwright.api.constants import TRAIN_JOB
from trainwright.api.core import Pod
from trainwright.api.meta import truncate_to_seconds
from trainwright.api.trainjob import Cause
from trainwright.control.evidence import Evidence, Force, find_newest_event, find_refused_pods, group_events
from trainwright.control.gang_evidence import GANG_NOT_COMPLETE, find_gang_evidence
from trainwright.control.hints import get_hint
from trainwright.control.pod_evidence import find_pod_evidence
from trainwright.control.problem import Problem
from trainwright.control.queue_wait import WAITING_FOR_QUEUE, find_next_queue_look, find_queue_wait
from trainwright.control.round_numbers import round_down
from trainwright.control.view import Place, View, find_place, is_job_finished, is_of_current_attempt

# Whose messages have numbers in them that move with the cluster: how much is missing, on how many nodes.
_MOVING: Final = frozenset({"Unschedulable", GANG_NOT_COMPLETE, WAITING_FOR_QUEUE, "Preempted"})
_NUMBERS: Final = re.compile(r"\d+")


def find_cause(view: View, problem: Problem | None, wait: Problem | None, now: datetime) -> Cause | None:
    """Return why the job, which has not ended, makes no progress; None where it does.

    A refused object comes before the suspension: it needs a hand, the suspension may be meant.
    """
    found = problem or (_find_suspension(view, now) if view.is_suspended else wait)
    if found is not None:
        return settle(build_cause(view, found, found.at or now), view.status.cause)
    found_evidence = find_strongest(view, now)
    if _is_still_told_by_before(view, found_evidence):
        return view.status.cause
    if found_evidence is not None:
        return settle(build_evidence_cause(found_evidence, view, now), view.status.cause)
    return None


def find_next_look(view: View, cause: Cause | None, now: datetime) -> datetime | None:
    """Return when this cause may go away by itself, None for one that only a change takes away.

    A container that was restarted in place counts as recovered after a while; a job that Kueue admitted
    should have been started by then.
    """
    if view.is_suspended:
        return find_next_queue_look(view, now)
    if cause is None or cause.layer != "Container":
        return None  # the usual case, without looking at every pod again
    found = find_strongest(view, now)
    return found[0].until if found is not None else None


def _is_still_told_by_before(view: View, found: tuple[Evidence, int] | None) -> bool:
    """Say whether what was seen of a pod that is gone tells more than what is left.

    A drained or deleted pod takes its evidence along. Its Job has counted the failure and ends the other
    pods; the JobSet has not acted on it yet.
    """
    before = view.status.cause
    if before is None or before.layer not in ("Pod", "Container", "Node"):
        return False
    if found is not None and not found[0].is_aftermath:
        return False
    if any(pod.metadata.deletion_timestamp is None for pod in view.live_pods):
        return False
    return any(
        job.status is not None and job.status.failed > 0 and is_of_current_attempt(job.metadata, view.job_set)
        for job in view.jobs
    )


def find_strongest(view: View, now: datetime) -> tuple[Evidence, int] | None:
    """Return the evidence that counts among the children, and how many pods say the same.

    None where all is well. Of what ended pods the first to have happened counts: other ranks follow it,
    killed, deleted, or with errors of their own. Among equals the lowest rank speaks.
    """
    about_pods = group_events("Pod", view.seen.events)
    done = _list_done_jobs(view)
    found = [
        evidence
        for pod in view.pods
        if is_of_current_attempt(pod.metadata, view.job_set)
        and (evidence := find_pod_evidence(pod, about_pods.get(pod.metadata.name, ()), now)) is not None
        and not (evidence.force is Force.DELETED and _find_job_place(pod) in done)
    ]
    if view.pod_group is not None:
        unplaced = [evidence for evidence in found if evidence.force is Force.UNSCHEDULED]
        first_unplaced = min(unplaced, key=_get_order, default=None)
        gang = find_gang_evidence(view.pod_group, first_unplaced)
        found += [gang] if gang is not None else []
    if not found:
        refused = _find_without_pods(view)
        return (refused, 1) if refused else None
    ends = [evidence for evidence in found if evidence.is_end and not evidence.is_aftermath]
    origins = [evidence for evidence in found if not evidence.is_aftermath]
    first = min(ends or origins or found, key=_get_order)
    return first, sum(1 for evidence in found if evidence.reason == first.reason)


def build_evidence_cause(found: tuple[Evidence, int], view: View, now: datetime) -> Cause:
    """Return the evidence as a cause, with the number of pods that say the same."""
    evidence, count = found
    before = view.status.cause
    message = evidence.message
    if evidence.is_brief and before is not None and before.reason == evidence.reason:
        message = before.message  # the pause between two tries tells less than the try did
    elif count > 1 and not evidence.is_end:
        message += f" ({_describe_count(count - 1)} the same)"
    problem = Problem(
        reason=evidence.reason,
        message=message,
        layer=evidence.layer,
        kind=evidence.kind,
        name=evidence.name,
    )
    return build_cause(view, problem, evidence.at or now)


def build_cause(view: View, problem: Problem, since: datetime) -> Cause:
    """Return the problem as a cause, with what to do about it."""
    return Cause(
        layer=problem.layer,
        kind=problem.kind,
        name=problem.name,
        reason=problem.reason,
        message=problem.message,
        hint=get_hint(problem.reason, problem.layer).replace("NAME", view.job.metadata.name),
        since=truncate_to_seconds(since),
    )


def build_own_cause(view: View, reason: str, message: str, since: datetime) -> Cause:
    """Return a cause that stands in the TrainJob itself."""
    return build_cause(view, build_own_problem(view, reason, message), since)


def build_own_problem(view: View, reason: str, message: str) -> Problem:
    """Return a problem that stands in the TrainJob itself."""
    return Problem(
        reason=reason, message=message, layer=TRAIN_JOB, kind=TRAIN_JOB, name=view.job.metadata.name
    )


def settle(cause: Cause, before: Cause | None) -> Cause:
    """Return the cause with what does not change of it, where it was the cause already.

    That is the time at which it was first seen; and the message, where it differs in nothing but numbers that
    move with the cluster: in a busy one each would be a status write, for every job that waits.
    """
    if before is None or (before.layer, before.reason) != (cause.layer, cause.reason):
        return cause
    is_same = cause.reason in _MOVING and _level(cause.message) == _level(before.message)
    return msgspec.structs.replace(
        cause, since=before.since, message=before.message if is_same else cause.message
    )


def _level(message: str) -> str:
    return _NUMBERS.sub("0", message)


def _find_suspension(view: View, now: datetime) -> Problem:
    return find_queue_wait(view, now) or build_own_problem(view, "Suspended", "spec.suspend is true")


def _find_without_pods(view: View) -> Evidence | None:
    """Return what the events say where no pod that is there tells of trouble.

    A Job that has fewer pods than it should: the API server refuses them, all or those that a quota has no
    room for, and only an event on the Job tells. Without any Job, an event on the JobSet does.
    """
    job_set = view.job_set
    if job_set is None:
        return None
    idle = sorted((find_place(job.metadata), job.metadata.name) for job in view.jobs if _lacks_pods(job))
    about_jobs = group_events("Job", view.seen.events) if idle else {}
    for place, name in idle:
        if evidence := find_refused_pods(name, place, about_jobs.get(name, ())):
            return evidence
    if view.jobs:
        return None
    # What JobSet did about a failure (DefaultFailurePolicy, RestartJobSetFailurePolicyAction, ...) is no
    # cause: it stands between two attempts.
    events = [event for event in view.seen.events if "FailurePolicy" not in event.reason]
    event = find_newest_event("JobSet", job_set.metadata.name, events)
    if event is None:
        return None
    return Evidence(
        force=Force.NOT_STARTED,
        layer="JobSet",
        kind="JobSet",
        name=job_set.metadata.name,
        reason=event.reason if event.reason.isalnum() else "Unknown",
        message=event.message,
        place=Place("", 0, 0),
        at=event.first_timestamp or event.event_time,
    )


def _lacks_pods(job: Job) -> bool:
    """Say whether the Job should have more pods than there are; those in their grace period count."""
    if is_job_finished(job):
        return False
    status = job.status or JobStatus()
    wanted = 1 if job.spec.parallelism is None else job.spec.parallelism
    if job.spec.completions is not None:
        wanted = min(wanted, job.spec.completions - status.succeeded)
    elif status.succeeded:
        return False  # one success is all that it is for
    return status.active + status.terminating < wanted


def _get_order(evidence: Evidence) -> tuple[float, int, Place, str]:
    """Order ends by time, since the first brought the others down; then all by force, then by rank.

    An eviction of which nobody wrote the time down comes first, any other end without a time last.
    """
    if not evidence.is_end:
        moment = float("inf")
    elif evidence.at is not None:
        moment = evidence.at.timestamp()
    else:
        moment = 0.0 if evidence.force <= Force.DISRUPTION else float("inf")
    return (moment, evidence.force, evidence.place, evidence.name)


def _list_done_jobs(view: View) -> frozenset[Place]:
    """Return the Jobs that have what they need: their other pods are deleted once one has succeeded."""
    return frozenset(_find_job_place(pod) for pod in view.pods if pod.status.phase == "Succeeded")


def _find_job_place(pod: Pod) -> Place:
    """Return where the Job of a pod stands."""
    return msgspec.structs.replace(find_place(pod.metadata), rank=0)


def _describe_count(others: int) -> str:
    return "1 other pod says" if others == 1 else f"{round_down(others)} other pods say"
