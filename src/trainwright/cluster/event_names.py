"""What an event is called: equal ones alike, so that the second is found, and counted, without a search."""

from __future__ import annotations

import hashlib

import msgspec

from trainwright.api.core import Event

_NAME_LIMIT = 253


def build_event_name(event: Event) -> str:
    """Return the name under which events that say the same about the same object are counted."""
    about = event.involved_object
    said = [
        about.kind,
        about.namespace,
        about.name,
        about.uid,
        event.type,
        event.reason,
        event.message,
        event.reporting_component,
    ]
    digest = hashlib.sha256(msgspec.json.encode(said)).hexdigest()[:16]
    base = (about.name or "event")[: _NAME_LIMIT - len(digest) - 1]
    return f"{base}.{digest}"
