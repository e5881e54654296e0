"""What single objects tell about trouble: a pod's status, a container's state, Warning events.

Each function looks at one object, or the events about it, and returns the strongest evidence in it, or None
for an object that does well. Which evidence is the cause is decided in `cause`.
Source: cause layers, section 2 (where the truth stands) and section 3 (order of force).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Final

import msgspec

from trainwright.api.core import ContainerStateTerminated, ContainerStatus, Event, Pod, PodCondition
from trainwright.control.exits import OOM_KILLED, START_ERROR, build_tail, describe_exit, is_aftermath
from trainwright.control.view import Place, find_place

# Stands between what happened and the last words of the container.
LAST_LINES: Final = "; last log lines:\n"


class Force(IntEnum):
    """How much a piece of evidence counts: the lowest wins."""

    POD_REASON = 0
    DISRUPTION = 1
    OUT_OF_MEMORY = 2
    INIT_CONTAINER = 3
    EXIT = 4
    RESTARTING = 5
    WAITING = 6
    UNSCHEDULED = 7
    NOT_STARTED = 8


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with one object.

    `at` is when it happened, where the object says so. `is_end` marks what ended a pod, `is_aftermath` an
    end that another failure brought about. `is_brief` marks a message that another state of the same trouble
    tells better.
    """

    force: Force
    layer: str
    kind: str
    name: str
    reason: str
    message: str
    place: Place
    at: datetime | None = None
    is_end: bool = False
    is_aftermath: bool = False
    is_brief: bool = False


def find_pod_evidence(pod: Pod, events: Iterable[Event]) -> Evidence | None:
    """Return the strongest evidence in one pod, in the order of `Force`.

    `events` are the Warnings about it. A pod that ended well, or runs, tells nothing.
    """
    if pod.status.phase == "Succeeded":
        return None
    return (
        _find_pod_reason(pod)
        or _find_disruption(pod)
        or _find_out_of_memory(pod)
        or _find_init_failure(pod)
        or _find_exit(pod)
        or _find_restarting(pod)
        or _find_waiting(pod)
        or _find_unscheduled(pod)
        or _find_not_started(pod, events)
    )


def find_refused_pods(name: str, place: Place, events: Iterable[Event]) -> Evidence | None:
    """Return why the API server refuses the pods of a Job: the newest FailedCreate event about it."""
    event = find_newest_event("Job", name, events, {"FailedCreate"})
    if event is None:
        return None
    message = _RANDOM_NAME.sub(r"\1 ", event.message)
    return Evidence(
        force=Force.NOT_STARTED,
        layer="Job",
        kind="Job",
        name=name,
        reason=_classify_refused_pods(message),
        message=message,
        place=place,
        at=_get_first_time(event),
    )


def find_newest_event(
    kind: str, name: str, events: Iterable[Event], reasons: frozenset[str] | set[str] | None = None
) -> Event | None:
    """Return the newest Warning about an object; the text decides between two of one second."""
    about = [
        event
        for event in events
        if event.type == "Warning"
        and event.involved_object.kind == kind
        and event.involved_object.name == name
        and (reasons is None or event.reason in reasons)
    ]
    return max(about, key=lambda event: (_get_time_key(event), event.reason, event.message), default=None)


def describe_pod(pod: Pod) -> str:
    """Return the pod in words: name, role and rank."""
    place = find_place(pod.metadata)
    where = f" ({place.replicated_job}, rank {place.rank})" if place.replicated_job else ""
    return f"pod {pod.metadata.name}{where}"


def build_exit_evidence(
    pod: Pod, status: ContainerStatus, ended: ContainerStateTerminated, force: Force
) -> Evidence:
    """Return a container's end as evidence, with its last words."""
    what = describe_exit(ended)
    role = "init container" if force is Force.INIT_CONTAINER else "container"
    message = f"{describe_pod(pod)}: {role} {status.name} {what.words}"
    if status.restart_count:
        message += f" after {_count(status.restart_count, 'restart')} in place"
    if tail := build_tail(ended.message):
        message += (": " if what.reason == START_ERROR else LAST_LINES) + tail
    return Evidence(
        force=force,
        layer="Container",
        kind="Pod",
        name=pod.metadata.name,
        reason=what.reason,
        message=message,
        place=find_place(pod.metadata),
        at=ended.finished_at,
        is_end=True,
        is_aftermath=is_aftermath(ended),
    )


def _find_pod_reason(pod: Pod) -> Evidence | None:
    """Evicted, NodeLost, Preempting, UnexpectedAdmissionError, ...: the kubelet ended the pod as a whole."""
    if pod.status.phase != "Failed" or not pod.status.reason:
        return None
    message = f"{describe_pod(pod)}: {pod.status.message or pod.status.reason}"
    at = max((end.finished_at for _, end in _list_ends(pod) if end.finished_at), default=None)
    told = _build(pod, Force.POD_REASON, "Pod", pod.status.reason, message)
    return msgspec.structs.replace(told, at=at, is_end=True)


def _find_disruption(pod: Pod) -> Evidence | None:
    condition = _find_condition(pod, "DisruptionTarget", "True")
    if condition is None:
        return None
    message = f"{describe_pod(pod)}: {condition.reason}: {condition.message}".rstrip(": ")
    told = _build(pod, Force.DISRUPTION, "Pod", "DisruptionTarget", message)
    return msgspec.structs.replace(told, at=condition.last_transition_time, is_end=True)


def _find_out_of_memory(pod: Pod) -> Evidence | None:
    for status in (*_list_init(pod), *_list_main(pod)):
        for ended in (status.state.terminated, status.last_state.terminated):
            if ended is not None and ended.reason == OOM_KILLED:
                return build_exit_evidence(pod, status, ended, Force.OUT_OF_MEMORY)
    return None


def _find_init_failure(pod: Pod) -> Evidence | None:
    for status in _list_init(pod):
        ended = status.state.terminated or (status.last_state.terminated if status.restart_count else None)
        if ended is not None and ended.exit_code != 0:
            return build_exit_evidence(pod, status, ended, Force.INIT_CONTAINER)
    return None


def _find_exit(pod: Pod) -> Evidence | None:
    """Return the first container of the pod to end with an error; unlike its victims it was not killed."""
    ends = [
        (is_aftermath(ended), ended.finished_at is None, ended.finished_at, index, status, ended)
        for index, status in enumerate(_list_main(pod))
        if (ended := status.state.terminated) is not None and ended.exit_code != 0
    ]
    if not ends:
        return None
    first = min(ends, key=lambda end: (end[0], end[1], end[2].timestamp() if end[2] else 0.0, end[3]))
    return build_exit_evidence(pod, first[4], first[5], Force.EXIT)


def _find_restarting(pod: Pod) -> Evidence | None:
    """Return a container that the kubelet restarts in place: the pod is Running all that time."""
    for status in _list_main(pod):
        ended = status.last_state.terminated
        if status.restart_count == 0 or ended is None or ended.exit_code == 0 or status.ready:
            continue
        told = build_exit_evidence(pod, status, ended, Force.RESTARTING)
        return msgspec.structs.replace(told, reason="CrashLoopBackOff", is_end=False)
    return None


def _find_waiting(pod: Pod) -> Evidence | None:
    for status in (*_list_init(pod), *_list_main(pod)):
        waiting = status.state.waiting
        if waiting is None or waiting.reason in _NORMAL_WAITING:
            continue
        reason = _SAME_REASONS.get(waiting.reason, waiting.reason)
        detail = _BACK_OFF.sub("", waiting.message).strip()
        is_brief = not detail or _ONLY_BACK_OFF.fullmatch(detail) is not None
        message = f"{describe_pod(pod)}: container {status.name}: {detail or waiting.reason}"
        told = _build(pod, Force.WAITING, "Container", reason, message)
        return msgspec.structs.replace(told, is_brief=is_brief)
    return None


def _find_unscheduled(pod: Pod) -> Evidence | None:
    condition = _find_condition(pod, "PodScheduled", "False")
    if condition is None:
        return None
    message = f"{describe_pod(pod)}: {condition.message or condition.reason}"
    reason = condition.reason or "Unschedulable"
    told = _build(pod, Force.UNSCHEDULED, "Pod", reason, message)
    return msgspec.structs.replace(told, at=condition.last_transition_time)


def _find_not_started(pod: Pod, events: Iterable[Event]) -> Evidence | None:
    """Return why a pod on its node does not get containers; only an event tells (volumes, sandbox).

    Where the kubelet says that the pod is ready to start containers, such events are history.
    """
    if pod.status.phase != "Pending" or _find_condition(pod, "PodReadyToStartContainers", "True"):
        return None
    if not any(s.state.waiting and s.state.waiting.reason in _NORMAL_WAITING for s in _list_main(pod)):
        return None
    telling = [event for event in events if event.reason not in _TOLD_ELSEWHERE]
    event = find_newest_event("Pod", pod.metadata.name, telling)
    if event is None:
        return None
    message = f"{describe_pod(pod)}: {event.message}"
    told = _build(pod, Force.NOT_STARTED, "Pod", event.reason, message)
    return msgspec.structs.replace(told, at=_get_first_time(event))


def _build(pod: Pod, force: Force, layer: str, reason: str, message: str) -> Evidence:
    return Evidence(
        force=force,
        layer=layer,
        kind="Pod",
        name=pod.metadata.name,
        reason=reason if reason.isalnum() else "Unknown",
        message=message,
        place=find_place(pod.metadata),
    )


# Waiting that belongs to a normal start.
_NORMAL_WAITING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})

# Scheduling is history for a pod on its node. Of the others the kubelet writes the event a moment before the
# state of the container says the same, in more words.
_TOLD_ELSEWHERE: Final = frozenset(
    {"FailedScheduling", "Failed", "InspectFailed", "BackOff", "ErrImageNeverPull"}
)

# The two alternate as the kubelet tries and pauses: one reason, else each turn would be a status write.
_SAME_REASONS: Final = {"ErrImagePull": "ImagePullBackOff"}
_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*": (?:ErrImagePull: )?')
_ONLY_BACK_OFF: Final = re.compile(r'Back-off pulling image "[^"]*"')

# `pods "demo-node-0-0-x7k2p"`: each try has another name, and would be another status write.
_RANDOM_NAME: Final = re.compile(r'\b(pods?|Pod) "[^"]*" ')

# The API server's words for what it refuses, most telling first.
_REFUSED_PODS: Final[Sequence[tuple[str, str]]] = (
    ("exceeded quota", "QuotaExceeded"),
    ("failed quota", "QuotaNeedsRequests"),
    ("violates PodSecurity", "PodSecurityViolated"),
    ("error looking up service account", "ServiceAccountNotFound"),
    ("limit of", "LimitRangeViolated"),
    ("per Container is", "LimitRangeViolated"),
    ("per Pod is", "LimitRangeViolated"),
)


def _classify_refused_pods(message: str) -> str:
    """Return a reason for a refusal of pods.

    By the text, against the rule for errors: the event has no other field that tells them apart, and a
    text that is not known is still shown whole, as FailedCreate.
    """
    return next((reason for words, reason in _REFUSED_PODS if words in message), "FailedCreate")


def _list_ends(pod: Pod) -> list[tuple[ContainerStatus, ContainerStateTerminated]]:
    return [
        (status, status.state.terminated)
        for status in (*_list_init(pod), *_list_main(pod))
        if status.state.terminated is not None
    ]


def _list_main(pod: Pod) -> list[ContainerStatus]:
    return pod.status.container_statuses or []


def _list_init(pod: Pod) -> list[ContainerStatus]:
    return pod.status.init_container_statuses or []


def _find_condition(pod: Pod, type_: str, status: str) -> PodCondition | None:
    return next((c for c in pod.status.conditions or () if c.type == type_ and c.status == status), None)


def _get_first_time(event: Event) -> datetime | None:
    return event.first_timestamp or event.event_time or event.last_timestamp


def _get_time_key(event: Event) -> float:
    moment = event.last_timestamp or event.event_time or event.first_timestamp
    return moment.timestamp() if moment else 0.0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
