"""How long the rest of a training takes, from the steps that this process has seen.

Measured, not averaged from the start: a job that goes on from a checkpoint at step 5,000 reports 5,000 within
seconds, and steps get slower or faster on the way. Pure: the time is an argument.
"""

from __future__ import annotations

import math
from collections import deque

_SAMPLES = 60
_SPACING_SECONDS = 1.0  # so that the window of fast loops spans a minute, not 60 steps
_JUMP = 10.0


class RemainingTime:
    """Estimates the remaining seconds from the last samples of (step, time)."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)

    def add(self, step: float, now: float) -> None:
        """Note that `step` was reached at `now`, a monotonic time in seconds. A smaller step starts anew."""
        samples = self._samples
        if samples and step < samples[-1][0]:
            samples.clear()
        if samples and step == samples[-1][0]:
            return
        if len(samples) >= 2 and now - samples[-2][1] < _SPACING_SECONDS:
            samples[-1] = (step, now)
        else:
            samples.append((step, now))

    def estimate(self, step: float, total: float) -> int | None:
        """Return the whole seconds from `step` to `total`; None while the speed is not known."""
        if step >= total:
            return 0
        speed = self._steps_per_second()
        seconds = (total - step) / speed if speed else math.inf
        return round(seconds) if math.isfinite(seconds) else None

    def _steps_per_second(self) -> float | None:
        """Return the mean speed without jumps.

        An interval ten times as fast as the median (weighted by its length) is not training: a checkpoint was
        loaded, or cached steps were skipped. Slow intervals count: evaluations come again.
        """
        samples = list(self._samples)
        intervals = sorted(
            ((later[0] - earlier[0]) / (later[1] - earlier[1]), later[1] - earlier[1])
            for earlier, later in zip(samples, samples[1:])  # noqa: B905, RUF007 (strict, pairwise: Python 3.10)
            if later[1] > earlier[1]
        )
        if not intervals:
            return None
        limit = _JUMP * _weighted_median(intervals)
        kept = [(speed, seconds) for speed, seconds in intervals if speed <= limit]
        return sum(speed * seconds for speed, seconds in kept) / sum(seconds for _, seconds in kept)


def _weighted_median(ascending: list[tuple[float, float]]) -> float:
    """Return the value at which half of the weight is reached."""
    half = sum(weight for _, weight in ascending) / 2
    reached = 0.0
    for value, weight in ascending:
        reached += weight
        if reached >= half:
            return value
    return ascending[-1][0]
