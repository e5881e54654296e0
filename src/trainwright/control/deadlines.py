"""When a running job is out of time, and when a finished one is to be deleted. Our clock, never JobSet's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

# Longest time to sleep: a timer beyond it (`activeDeadlineSeconds` may be 2**63 - 1) is set again then.
MAX_REQUEUE_SECONDS: Final = 24 * 3600.0
MIN_REQUEUE_SECONDS: Final = 1.0

_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)


def add_seconds(start: datetime, seconds: float) -> datetime:
    """Return the moment so many seconds later (or earlier), within the time that there is.

    Seconds that users may set have no bounds: a pod may have 2**62 of grace.
    """
    try:
        return start + timedelta(seconds=seconds)
    except OverflowError:
        return _LATEST if seconds > 0 else _EARLIEST


def get_deadline(start: datetime | None, active_deadline_seconds: int | None) -> datetime | None:
    """Return when the job must have ended; None where it has no deadline or does not run.

    It counts from `status.startTime`, so from the last resume: every resume gives the whole time again, and
    waiting for pods counts. Source: spec 01, section 3.6.
    """
    if start is None or not active_deadline_seconds:
        return None
    return add_seconds(start, active_deadline_seconds)


def get_expiry(finished: datetime, ttl_seconds: int | None) -> datetime | None:
    """Return when a finished job is to be deleted; None where it stays.

    `finished` is the last transition of Complete or Failed, which we set ourselves: when the JobSet ended is
    told by the clock of another machine, which may be hours off, and a job that ended while no controller ran
    is there for the whole time before it goes.
    """
    return add_seconds(finished, ttl_seconds) if ttl_seconds is not None else None


def get_requeue_seconds(moment: datetime, now: datetime) -> float:
    """Return how long to sleep until the moment: at least a second, at most a day."""
    return min(max((moment - now).total_seconds(), MIN_REQUEUE_SECONDS), MAX_REQUEUE_SECONDS)
