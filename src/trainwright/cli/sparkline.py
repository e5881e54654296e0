"""A metric's course as one line of text. Pure.

loss      █▅▃▂▁▁▁▁  0.0156
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

_BLOCKS = "▁▂▃▄▅▆▇█"
_LETTERS = "_.-=+*#@"  # for terminals whose encoding has no blocks


def sparkline(values: Sequence[float], width: int, *, encoding: str = "utf-8") -> str:
    """Return the values, oldest first, as at most `width` characters from low to high.

    More values than characters are averaged in even groups, so that the last character stands for the last
    values; values that are not finite are left out. A course without ups and downs is a line at half height.
    Nothing is returned for no values.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite or width < 1:
        return ""
    means = [sum(value / len(group) for value in group) for group in _split_evenly(finite, width)]
    low, high = min(means), max(means)
    marks = _choose_marks(encoding)
    if not math.isfinite(high - low):  # beyond what a float can hold
        means = [value / 4 for value in means]
        low, high = low / 4, high / 4
    if high == low:
        return marks[len(marks) // 2 - 1] * len(means)
    steps = len(marks) - 1
    return "".join(marks[round((value - low) / (high - low) * steps)] for value in means)


def _choose_marks(encoding: str) -> str:
    try:
        _BLOCKS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _LETTERS
    return _BLOCKS


def _split_evenly(values: Sequence[float], most: int) -> list[Sequence[float]]:
    """Return the values in order in at most so many groups whose sizes differ by one at the most."""
    count = min(len(values), most)
    edges = [index * len(values) // count for index in range(count + 1)]
    return [values[start:end] for start, end in pairwise(edges)]
