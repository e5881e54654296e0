"""What counts as evidence of trouble, how strong it is, and what events tell of Jobs that get no pods.

Which piece of evidence is the cause is decided in `cause`; pods are looked at in `pod_evidence`.
Source: cause layers, section 2 (where the truth stands) and section 3 (order of force).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Final

import msgspec

from trainwright.api.core import Event
from trainwright.control.view import Place

# Stands between what happened and the last words of the container.
LAST_LINES: Final = "; last log lines:\n"


class Force(IntEnum):
    """How much a piece of evidence counts: the lowest wins."""

    POD_REASON = 0
    NODE_LOST = 1
    DISRUPTION = 2
    OUT_OF_MEMORY = 3
    INIT_CONTAINER = 4
    EXIT = 5
    DELETED = 6
    RESTARTING = 7
    WAITING = 8
    GANG = 9
    UNSCHEDULED = 10
    NOT_STARTED = 11


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with one object.

    `at` is when it happened, where the object says so. `is_end` marks what ended a pod, `is_aftermath` an
    end that another failure brought about. `is_brief` marks a message that another state of the same trouble
    tells better. `until` is when it stops to count, where nothing else happens.
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
    until: datetime | None = None


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
        at=get_first_time(event),
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


def group_events(kind: str, events: Iterable[Event]) -> dict[str, list[Event]]:
    """Return the events about objects of a kind by the name of the object, in their order."""
    grouped: dict[str, list[Event]] = {}
    for event in events:
        if event.involved_object.kind == kind:
            grouped.setdefault(event.involved_object.name, []).append(event)
    return grouped


def get_first_time(event: Event) -> datetime | None:
    """Return when what the event tells was first seen."""
    return event.first_timestamp or event.event_time or event.last_timestamp


def _get_time_key(event: Event) -> float:
    moment = event.last_timestamp or event.event_time or event.first_timestamp
    return moment.timestamp() if moment else 0.0


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
