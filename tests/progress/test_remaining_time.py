from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.progress.remaining_time import RemainingTime

# (step, time) as reported; the total; the remaining seconds after the last of them.
CASES = {
    "one report says nothing about speed": ([(10, 0.0)], 100, None),
    "steady": ([(0, 0.0), (10, 5.0), (20, 10.0)], 100, 40),
    "went on from a checkpoint: steps before are not ours": ([(5000, 100.0), (5010, 110.0)], 5100, 90),
    "started at 0, then loaded a checkpoint": (
        [(0, 0.0), (5000, 0.1), (5010, 10.1), (5020, 20.1)],
        5100,
        80,
    ),
    "started anew: what was before does not count": ([(0, 0.0), (90, 9.0), (0, 10.0), (10, 20.0)], 100, 90),
    "an evaluation in between counts": ([(0, 0.0), (10, 10.0), (20, 20.0), (30, 60.0)], 60, 60),
    "done": ([(100, 7.0)], 100, 0),
    "beyond the total": ([(0, 0.0), (120, 7.0)], 100, 0),
    "many quick reports": ([(step, step / 1000) for step in range(5001)], 10_000, 5),
    "the same step again": ([(0, 0.0), (10, 5.0), (10, 50.0)], 100, 45),
    "no time has passed": ([(0, 1.0), (10, 1.0)], 100, None),
}


@pytest.mark.parametrize(("reports", "total", "seconds"), CASES.values(), ids=CASES)
def test_remaining_seconds(reports: list[tuple[float, float]], total: float, seconds: int | None):
    remaining = RemainingTime()
    for step, now in reports:
        remaining.add(step, now)
    assert remaining.estimate(reports[-1][0], total) == seconds


def test_a_training_that_slows_down_is_noticed_within_the_window():
    remaining = RemainingTime()
    for second in range(1000):
        remaining.add(second * 10, second)
    for second in range(1000, 1060):
        remaining.add(9990 + (second - 999) * 2, second)
    assert remaining.estimate(10_110, 10_210) == 50


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(FINITE, st.floats(0, 1e9)), min_size=1), FINITE)
def test_an_estimate_is_a_number_of_seconds_or_unknown(reports: list[tuple[float, float]], total: float):
    remaining = RemainingTime()
    now = 0.0
    for step, seconds_later in reports:
        now += seconds_later
        remaining.add(step, now)
    seconds = remaining.estimate(reports[-1][0], total)
    assert seconds is None or seconds >= 0
