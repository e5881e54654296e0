"""When a running job is out of time, and when a finished one is to be deleted. Our clock, never JobSet's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

# Longest time to sleep: a timer beyond it (`activeDeadlineSeconds` may be 2**63 - 1) is set again then.
MAX_REQUEUE_SECONDS: Final = 24 * 3600.0
MIN_REQUEUE_SECONDS: Final = 1.0

_LATEST: Final = datetime.max.replace(tzinfo=UTC)


def add_seconds(start: datetime, seconds: int) -> datetime:
    """Return the moment so many seconds later, at most the last one there is."""
    try:
        return start + timedelta(seconds=seconds)
    except OverflowError:
        return _LATEST


def get_deadline(start: datetime | None, active_deadline_seconds: int | None) -> datetime | None:
    """Return when the job must have ended; None where it has no deadline or does not run.

    It counts from `status.startTime`, so from the last resume: every resume gives the whole time again, and
    waiting for pods counts. Source: spec 01, section 3.6.
    """
    if start is None or not active_deadline_seconds:
        return None
    return add_seconds(start, active_deadline_seconds)


def get_expiry(completion_time: datetime | None, ttl_seconds: int | None) -> datetime | None:
    """Return when a finished job is to be deleted; None where it stays."""
    if completion_time is None or ttl_seconds is None:
        return None
    return add_seconds(completion_time, ttl_seconds)


def get_requeue_seconds(moment: datetime, now: datetime) -> float:
    """Return how long to sleep until the moment: at least a second, at most a day."""
    return min(max((moment - now).total_seconds(), MIN_REQUEUE_SECONDS), MAX_REQUEUE_SECONDS)
