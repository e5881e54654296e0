"""Events: what happened to an object, equal ones counted in one. Pure.

Two events are equal when they say the same about the same object; the name is made from that, so that the
second one is found without a search. Written as core/v1 with `firstTimestamp`, `lastTimestamp` and `count`,
the form that every client shows.
"""

from __future__ import annotations

from datetime import datetime

from trainwright.api.core import Event
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.event_names import build_event_name
from trainwright.cluster.local.objects import format_time, normalise_key


def build_event_key(event: Event) -> ObjectKey:
    """Return the key under which this event is counted."""
    namespace = event.metadata.namespace or event.involved_object.namespace
    return normalise_key(ObjectKey("Event", namespace, build_event_name(event)))


def build_event(event: Event, key: ObjectKey, now: datetime) -> Json:
    """Return the object of an event that is seen for the first time."""
    obj = build_object(event)
    moment = format_time(now)
    return {
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        **obj,
        "count": event.count or 1,
        "metadata": {**obj.get("metadata", {}), "namespace": key.namespace},
    }


def build_repeated_event(stored: Json, event: Event, now: datetime) -> Json:
    """Return the stored event, seen once more."""
    last = format_time(event.last_timestamp or now)
    return {**stored, "count": stored.get("count", 1) + (event.count or 1), "lastTimestamp": last}
