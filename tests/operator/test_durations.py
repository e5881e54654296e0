"""Durations as Go writes them."""

import pytest

from trainwright.operator.durations import parse_duration_seconds

CASES = {
    "15s": 15.0,
    "1m30s": 90.0,
    "500ms": 0.5,
    "1.5h": 5400.0,
    ".5s": 0.5,
    "0": 0.0,
    "1h2m3s4ms": 3723.004,
}


@pytest.mark.parametrize(("text", "seconds"), CASES.items(), ids=CASES)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "15", "s", "15 s", "-15s", "15d", "1s ", "."])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration_seconds(text)
