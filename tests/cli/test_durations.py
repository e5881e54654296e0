"""Lengths of time as people write and read them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.durations import format_age, format_duration, parse_duration
from trainwright.errors import UsageError

WRITTEN = {
    "0": 0,
    "90": 90,
    "90s": 90,
    "15m": 900,
    "1h30m": 5400,
    "2d": 172_800,
    "1d2h3m4s": 93_784,
    " 5s ": 5,
}
READ = {
    0: "0s",
    59: "59s",
    60: "1m",
    192: "3m12s",
    18_000: "5h",
    352_800: "4d2h",
    86_401: "1d",
    -5: "0s",
    0.9: "0s",
}


@pytest.mark.parametrize(("text", "seconds"), WRITTEN.items())
def test_a_length_of_time_is_read(text, seconds):
    assert parse_duration(text, "--ttl") == seconds


@pytest.mark.parametrize("text", ["", "h", "1x", "1.5h", "-3", "3m1h", "٣", "1 h", "1h30"])
def test_anything_else_is_refused_with_the_option_named(text):
    with pytest.raises(UsageError, match=r"--ttl: .* is not a length of time; write 90"):
        parse_duration(text, "--ttl")


@pytest.mark.parametrize(("seconds", "text"), READ.items())
def test_at_most_two_neighbouring_units_are_shown(seconds, text):
    assert format_duration(seconds) == text


@given(st.integers(0, 10**9))
def test_what_is_shown_reads_back_and_is_off_by_less_than_its_finest_unit(seconds):
    shown = parse_duration(format_duration(seconds), "x")
    assert 0 <= seconds - shown < max(1, seconds * 0.05)


def test_an_age_is_counted_from_now():
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert format_age(now - timedelta(minutes=5), now) == "5m"
    assert format_age(None, now) == "-"
