"""Times: from when, how long, and at most."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trainwright.control.deadlines import (
    MAX_REQUEUE_SECONDS,
    get_deadline,
    get_expiry,
    get_requeue_seconds,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("start", "seconds"), [(None, 5), (NOW, None), (NOW, 0)])
def test_without_a_start_or_a_limit_there_is_no_deadline(start: datetime | None, seconds: int | None) -> None:
    assert get_deadline(start, seconds) is None


def test_a_deadline_is_the_start_and_the_limit() -> None:
    assert get_deadline(NOW, 90) == NOW + timedelta(seconds=90)


@pytest.mark.parametrize("seconds", [10**12, 2**63 - 1])
def test_a_limit_beyond_all_time_is_the_end_of_time(seconds: int) -> None:
    deadline = get_deadline(NOW, seconds)
    assert deadline is not None
    assert deadline > NOW + timedelta(days=365 * 1000)


def test_a_ttl_of_zero_expires_at_the_end_and_none_never() -> None:
    assert get_expiry(NOW, 0) == NOW
    assert get_expiry(NOW, None) is None


@pytest.mark.parametrize(
    ("seconds", "sleep"), [(-5, 1.0), (0, 1.0), (0.5, 1.0), (30, 30.0), (10**9, MAX_REQUEUE_SECONDS)]
)
def test_the_sleep_is_between_a_second_and_a_day(seconds: float, sleep: float) -> None:
    assert get_requeue_seconds(NOW + timedelta(seconds=seconds), NOW) == sleep
