"""What a pod's status tells about trouble: its reason, its conditions, and the states of its containers.

In: one pod and the Warnings about it. Out: the strongest evidence, None for a pod that does well.
Source: cause layers, section 2 (where the truth stands) and section 3 (order of force).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from trainwright.api.core import ContainerStatus, Event, Pod, PodCondition
from trainwright.control.container_failures import Failure, list_failures
from trainwright.control.deadlines import add_seconds
from trainwright.control.evidence import (
    LAST_LINES,
    Evidence,
    Force,
    find_newest_event,
    get_first_time,
)
from trainwright.control.exits import OOM_KILLED, START_ERROR, build_tail, describe_exit, is_aftermath
from trainwright.control.round_numbers import count_times
from trainwright.control.view import find_place, is_live

POD_DELETED: Final = "PodDeleted"
NODE_NOT_READY: Final = "NodeNotReady"
CRASH_LOOP: Final = "CrashLoopBackOff"
PROBE_FAILED: Final = "ProbeFailed"

# Who may disrupt a pod, as its condition DisruptionTarget says it.
# Source: Kubernetes, "Pod disruption conditions".
DISRUPTIONS: Final = frozenset(
    {
        "PreemptionByScheduler",
        "DeletionByTaintManager",
        "EvictionByEvictionAPI",
        "DeletionByPodGC",
        "TerminationByKubelet",
    }
)


def find_pod_evidence(pod: Pod, events: Sequence[Event], now: datetime) -> Evidence | None:
    """Return the strongest evidence in one pod, in the order of `Force`.

    `events` are the Warnings about it. A pod that ended well, or runs, tells nothing.
    """
    if pod.status.phase == "Succeeded":
        return None
    return (
        _find_pod_reason(pod)
        or _find_lost_node(pod)
        or _find_disruption(pod)
        or _find_failure(pod, events, now)
        or _find_deletion(pod)
        or _find_waiting(pod)
        or _find_unscheduled(pod)
        or _find_not_started(pod, events)
    )


def describe_pod(pod: Pod) -> str:
    """Return the pod in words: name, role and rank."""
    place = find_place(pod.metadata)
    where = f" ({place.replicated_job}, rank {place.rank})" if place.replicated_job else ""
    return f"pod {pod.metadata.name}{where}"


def _find_pod_reason(pod: Pod) -> Evidence | None:
    """Evicted, NodeLost, Preempting, UnexpectedAdmissionError, ...: the kubelet ended the pod as a whole."""
    if pod.status.phase != "Failed" or not pod.status.reason:
        return None
    told = (pod.status.message or pod.status.reason).strip()
    ends = [status.state.terminated for status in (*_list_init(pod), *_list_main(pod))]
    at = max((end.finished_at for end in ends if end and end.finished_at), default=None)
    evidence = _build(pod, Force.POD_REASON, pod.status.reason, f"{describe_pod(pod)}: {told}")
    return msgspec.structs.replace(evidence, at=at, is_end=True)


def _find_lost_node(pod: Pod) -> Evidence | None:
    """Return that the pod's node does not answer.

    The node lifecycle controller sets Ready to False and nothing else: no kubelet says so, without a reason,
    of a pod whose containers are all ready. A pod that the taint manager deletes afterwards stays like that.
    """
    ready = _find_condition(pod, "Ready", "False")
    containers = _list_main(pod)
    if ready is None or ready.reason or not containers or not all(c.ready for c in containers):
        return None
    node = (pod.spec or {}).get("nodeName", "")
    message = f"{describe_pod(pod)}: its node{f' {node}' if node else ''} does not answer"
    evidence = _build(pod, Force.NODE_LOST, NODE_NOT_READY, message)
    if node:
        evidence = msgspec.structs.replace(evidence, layer="Node", kind="Node", name=node)
    return msgspec.structs.replace(evidence, at=ready.last_transition_time, is_end=True)


def _find_disruption(pod: Pod) -> Evidence | None:
    condition = _find_condition(pod, "DisruptionTarget", "True")
    if condition is None:
        return None
    reason = condition.reason if condition.reason in DISRUPTIONS else "DisruptionTarget"
    message = f"{describe_pod(pod)}: {condition.reason}: {condition.message}".strip().rstrip(":")
    evidence = _build(pod, Force.DISRUPTION, reason, message)
    return msgspec.structs.replace(evidence, at=condition.last_transition_time, is_end=True)


def _find_failure(pod: Pod, events: Sequence[Event], now: datetime) -> Evidence | None:
    """Return how a container failed: out of memory first, then init containers, then the others.

    An init container that failed keeps the others from starting; one that runs beside them (a sidecar) is
    ended with them, and its end explains nothing. Of several containers the first to end counts; unlike its
    victims it was not killed. One that is restarted in place counts until its new run is a recovery.
    """
    failures = _list_last_failures(pod, now)
    if not failures:
        return None
    init = {id(status) for status in _list_init(pod)}
    has_begun = any(c.state.waiting is None or c.last_state.terminated for c in _list_main(pod))
    tellers: Sequence[tuple[Force, Callable[[Failure], bool]]] = (
        (Force.OUT_OF_MEMORY, lambda failure: failure.ended.reason == OOM_KILLED),
        (Force.INIT_CONTAINER, lambda failure: id(failure.status) in init and not has_begun),
        (Force.EXIT, lambda failure: id(failure.status) not in init and not failure.is_restarted),
        (Force.RESTARTING, lambda failure: id(failure.status) not in init and failure.is_restarted),
    )
    for force, tells in tellers:
        if told := [failure for failure in failures if tells(failure)]:
            failure = min(told, key=_get_failure_order)
            evidence = _build_failure(pod, failure, force)
            return _find_probe(pod, failure, events, evidence) or evidence
    return None


def _find_probe(pod: Pod, failure: Failure, events: Sequence[Event], evidence: Evidence) -> Evidence | None:
    """Return that a probe ended the container, where the kubelet said so before it sent the signal."""
    if not is_aftermath(failure.ended):
        return None
    failed = [event for event in events if event.message.startswith(_DEADLY_PROBES)]
    event = find_newest_event("Pod", pod.metadata.name, failed, {"Unhealthy"})
    if event is None:
        return None
    told, last_lines, tail = evidence.message.partition(LAST_LINES)
    message = f"{told}: {event.message.strip()}{last_lines}{tail}"
    return msgspec.structs.replace(evidence, reason=PROBE_FAILED, message=message, is_aftermath=False)


def _build_failure(pod: Pod, failure: Failure, force: Force) -> Evidence:
    """Return a container's failure as evidence, with its last words."""
    what = describe_exit(failure.ended)
    role = "init container" if force is Force.INIT_CONTAINER else "container"
    message = f"{describe_pod(pod)}: {role} {failure.status.name} {what.words}"
    if failure.is_restarted:
        message += f" (failed {count_times(failure.count)}, restarted in place)"
    if tail := build_tail(failure.ended.message):
        message += (": " if what.reason == START_ERROR else LAST_LINES) + tail
    # A trouble with a name of its own keeps it: what to do about it does not depend on the restarts.
    reason = CRASH_LOOP if failure.is_restarted and what.reason in _COMMON_EXITS else what.reason
    evidence = _build(pod, force, reason, message)
    return msgspec.structs.replace(
        evidence,
        layer="Container",
        at=failure.ended.finished_at,
        is_end=not failure.is_restarted or not is_live(pod),
        is_aftermath=not failure.is_restarted and is_aftermath(failure.ended),
        until=failure.recovers_at,
    )


def _find_deletion(pod: Pod) -> Evidence | None:
    """Return that the pod is being deleted, and nothing on it says why.

    Controllers delete pods too, after a failure: so it is the aftermath of one where there is one.
    """
    began = _get_deletion_start(pod)
    if began is None:
        return None
    evidence = _build(pod, Force.DELETED, POD_DELETED, f"{describe_pod(pod)} was deleted while it was needed")
    return msgspec.structs.replace(evidence, at=began, is_end=True, is_aftermath=True)


def _find_waiting(pod: Pod) -> Evidence | None:
    for status in (*_list_init(pod), *_list_main(pod)):
        waiting = status.state.waiting
        if waiting is None or waiting.reason in _NORMAL_WAITING:
            continue
        reason = _SAME_REASONS.get(waiting.reason, waiting.reason)
        detail = _BACK_OFF.sub("", waiting.message).strip()
        is_brief = not detail or _ONLY_BACK_OFF.fullmatch(detail) is not None
        message = f"{describe_pod(pod)}: container {status.name}: {detail or waiting.reason}"
        evidence = _build(pod, Force.WAITING, reason, message)
        return msgspec.structs.replace(evidence, layer="Container", is_brief=is_brief)
    return None


def _find_unscheduled(pod: Pod) -> Evidence | None:
    condition = _find_condition(pod, "PodScheduled", "False")
    if condition is None:
        return None
    message = f"{describe_pod(pod)}: {condition.message or condition.reason}"
    evidence = _build(pod, Force.UNSCHEDULED, condition.reason or "Unschedulable", message)
    return msgspec.structs.replace(evidence, at=condition.last_transition_time)


def _find_not_started(pod: Pod, events: Sequence[Event]) -> Evidence | None:
    """Return why a pod on its node does not get containers; only an event tells (volumes, sandbox).

    Where the kubelet says that the pod is ready to start containers, such events are history.
    """
    if pod.status.phase != "Pending" or _find_condition(pod, "PodReadyToStartContainers", "True"):
        return None
    if not any(s.state.waiting and s.state.waiting.reason in _NORMAL_WAITING for s in _list_main(pod)):
        return None
    telling = [event for event in events if event.reason not in _TOLD_ELSEWHERE and not _is_passing(event)]
    event = find_newest_event("Pod", pod.metadata.name, telling)
    if event is None:
        return None
    evidence = _build(pod, Force.NOT_STARTED, event.reason, f"{describe_pod(pod)}: {event.message}")
    return msgspec.structs.replace(evidence, at=get_first_time(event))


def _is_passing(event: Event) -> bool:
    """Say whether the kubelet only was too early: it tries again after half a second."""
    return _TOO_EARLY.search(event.message) is not None and (event.count or 1) < _TRIES_TO_BELIEVE


def _build(pod: Pod, force: Force, reason: str, message: str) -> Evidence:
    return Evidence(
        force=force,
        layer="Pod",
        kind="Pod",
        name=pod.metadata.name,
        reason=reason if reason.isalnum() else "Unknown",
        message=message,
        place=find_place(pod.metadata),
    )


# Ways to fail that say nothing more than that the program failed, or was ended.
_COMMON_EXITS: Final = frozenset({"NonZeroExit", "Killed", "Terminated", "KilledBySignal"})

# What the kubelet says of probes for which it ends a container; another is for services alone.
_DEADLY_PROBES: Final = ("Liveness probe", "Startup probe")

# Waiting that belongs to a normal start.
_NORMAL_WAITING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})

# Scheduling is history for a pod on its node. Of the others the kubelet writes the event a moment before the
# state of the container says the same, in more words.
_TOLD_ELSEWHERE: Final = frozenset(
    {"FailedScheduling", "Failed", "InspectFailed", "BackOff", "ErrImageNeverPull"}
)

# The node authorizer learns by a watch of its own that a pod was given to a node, and refuses the node all
# that belongs to the pod until then, tokens too. What a pod mounts the kubelet has to read first, and waits
# for a second.
_TOO_EARLY: Final = re.compile(
    r"no relationship found between node|failed to sync (?:secret|configmap) cache"
)
_TRIES_TO_BELIEVE: Final = 3

# The two alternate as the kubelet tries and pauses: one reason, else each turn would be a status write.
_SAME_REASONS: Final = {"ErrImagePull": "ImagePullBackOff"}
_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*": (?:ErrImagePull: )?')
_ONLY_BACK_OFF: Final = re.compile(r'Back-off pulling image "[^"]*"')


def _list_last_failures(pod: Pod, now: datetime) -> list[Failure]:
    """Return the last failure of each container that failed by itself and has not recovered."""
    began = _get_deletion_start(pod)
    last = (
        next((f for f in list_failures(pod, status) if not _is_of_deletion(f, began)), None)
        for status in (*_list_init(pod), *_list_main(pod))
    )
    return [f for f in last if f is not None and not (f.recovers_at and f.recovers_at <= now)]


def _get_failure_order(failure: Failure) -> tuple[bool, bool, float]:
    """Order the failures of one pod; `min` takes the first of equals."""
    at = failure.ended.finished_at
    return is_aftermath(failure.ended), at is None, at.timestamp() if at else 0.0


def _get_deletion_start(pod: Pod) -> datetime | None:
    """Return when somebody asked for the pod's deletion: its grace period ends at `deletionTimestamp`."""
    meta = pod.metadata
    if meta.deletion_timestamp is None:
        return None
    return add_seconds(meta.deletion_timestamp, -(meta.deletion_grace_period_seconds or 0))


def _is_of_deletion(failure: Failure, began: datetime | None) -> bool:
    """Say whether the container ended because its pod was deleted: asked to end, then killed."""
    at = failure.ended.finished_at
    if began is None or failure.ended.reason == OOM_KILLED:
        return False
    if at is None or is_aftermath(failure.ended):
        return at is None or at >= began
    return at > began


def _list_main(pod: Pod) -> list[ContainerStatus]:
    return pod.status.container_statuses or []


def _list_init(pod: Pod) -> list[ContainerStatus]:
    return pod.status.init_container_statuses or []


def _find_condition(pod: Pod, type_: str, status: str) -> PodCondition | None:
    return next((c for c in pod.status.conditions or () if c.type == type_ and c.status == status), None)
