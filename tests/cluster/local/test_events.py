"""Which events are equal, and what is counted."""

from datetime import UTC, datetime

import msgspec

from cluster.samples import event_about, train_job
from trainwright.cluster.local.events import build_event, build_event_key, build_repeated_event

JOB = train_job("demo", uid="u1")
EVENT = event_about(JOB)
NOW = datetime(2026, 1, 1, 12, 30, 0, 999_999, tzinfo=UTC)


def test_equal_events_have_one_name_and_others_another():
    others = [
        event_about(JOB, reason="Other"),
        event_about(JOB, message="other"),
        event_about(JOB, type_="Normal"),
        event_about(train_job("demo", uid="u2")),
        msgspec.structs.replace(EVENT, reporting_component="kubelet"),
    ]
    keys = {build_event_key(event) for event in [EVENT, *others]}
    assert build_event_key(event_about(JOB)) == build_event_key(EVENT)
    assert len(keys) == 6


def test_the_name_of_an_event_begins_with_what_it_is_about_and_is_not_too_long():
    key = build_event_key(event_about(train_job("d" * 253, uid="u1")))
    assert key.name.startswith("d" * 200)
    assert len(key.name) <= 253
    assert key.namespace == "default"


def test_an_event_counts_from_one_and_keeps_the_times_it_brings():
    first = datetime(2026, 1, 1, tzinfo=UTC)
    brought = msgspec.structs.replace(EVENT, first_timestamp=first, last_timestamp=first)
    new = build_event(brought, build_event_key(brought), NOW)
    assert (new["count"], new["firstTimestamp"], new["lastTimestamp"]) == (
        1,
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z",
    )
    again = build_repeated_event(new, EVENT, NOW)
    assert again == {**new, "count": 2, "lastTimestamp": "2026-01-01T12:30:00Z"}
