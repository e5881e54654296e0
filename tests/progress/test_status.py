from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.control.progress_protocol import JobProgress, read_report
from trainwright.progress import endpoint, status


class Tensor:
    """As torch and numpy have it: one element, read by `item()`."""

    def __init__(self, value: float) -> None:
        self._value = value

    def item(self) -> float:
        return self._value


VALUES = {
    "a float has six digits": (0.12345678, "0.123457"),
    "a small float": (3e-05, "3e-05"),
    "an integer is exact": (12345678901, "12345678901"),
    "a tensor": (Tensor(0.25), "0.25"),
    "a tensor of an integer": (Tensor(7), "7"),
    "not a number": (float("nan"), "nan"),
    "infinity": (float("inf"), "inf"),
    "a truth": (True, "True"),
    "a text": ("warm-up", "warm-up"),
    "a long text is cut": ("x" * 100, "x" * 64),
    "a long integer is cut": (10**100, "1" + "0" * 63),
}


@pytest.mark.parametrize(("value", "text"), VALUES.values(), ids=VALUES)
def test_values_as_text(value: object, text: str):
    assert status.format_value(value) == text


PERCENTS = [
    (0, 10, 0),
    (1, 3, 33),
    (2, 3, 67),
    (29, 100, 29),
    (999, 1000, 99),
    (1000, 1000, 100),
    (1001, 1000, 100),
    (-1, 10, 0),
    (0.5, 1, 50),
    (5, 0, None),
    (5, -1, None),
]


@pytest.mark.parametrize(("step", "total", "percent"), PERCENTS)
def test_percent_is_whole_and_100_only_when_done(step: float, total: float, percent: int | None):
    assert status.compute_percent(step, total) == percent


def test_what_is_not_a_finite_number_is_no_step():
    assert [status.read_count(x) for x in (float("nan"), float("inf"), "7", None, Tensor(3))] == [
        None
    ] * 4 + [3]


def test_a_time_is_written_in_utc_with_microseconds():
    assert status.format_time(1_772_366_400.9999996) == "2026-03-01T12:00:01.000000Z"


NUMBERS = st.floats(allow_nan=True) | st.integers() | st.text() | st.none()


@given(
    step=st.floats(-1e12, 1e12),
    total=st.floats(-1e12, 1e12),
    remaining=st.none() | st.integers(-(10**12), 10**12),
    metrics=st.dictionaries(st.text(max_size=100), NUMBERS, max_size=20),
    copies=st.integers(1, 40),
)
def test_a_server_accepts_whatever_is_reported(
    step: float, total: float, remaining: int | None, metrics: dict[str, object], copies: int
):
    texts = status.format_metrics(metrics)
    request = status.build_request(
        percent=status.compute_percent(step, total),
        remaining_seconds=remaining,
        metrics=[(name, value) for name, value in texts.items() if value is not None] * copies,
        reported_at=1_772_366_400.25,
    )
    now = datetime(2026, 3, 1, 13, tzinfo=UTC)
    answer = read_report(endpoint.encode_request(request), JobProgress(name="demo"), now)
    assert answer.code == 200
    assert answer.report is not None


def test_metrics_too_large_for_a_body_lose_the_last_of_them():
    metrics = [(f"{index:03}" + "ü" * 61, "é" * 64) for index in range(256)]
    request = status.build_request(percent=1, remaining_seconds=2, metrics=metrics, reported_at=0.0)
    body = endpoint.encode_request(request)
    assert len(body) <= 65_536
    sent = json.loads(body)["trainerStatus"]
    assert (sent["progressPercentage"], sent["estimatedRemainingSeconds"]) == (1, 2)
    assert [metric["name"][:3] for metric in sent["metrics"]] == [
        f"{i:03}" for i in range(len(sent["metrics"]))
    ]
    assert len(sent["metrics"]) > 50
