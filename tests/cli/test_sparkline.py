from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.sparkline import sparkline

CASES = {
    "nothing": ([], 10, ""),
    "no room": ([1, 2], 0, ""),
    "low to high": ([0, 1, 2, 3, 4, 5, 6, 7], 8, "▁▂▃▄▅▆▇█"),
    "a loss": ([2.0, 1.0, 0.5, 0.25], 8, "█▄▂▁"),
    "fewer values than room": ([1, 2], 40, "▁█"),
    "one value": ([5], 40, "▄"),
    "no ups and downs": ([3, 3, 3], 40, "▄▄▄"),
    "groups are averaged": ([0, 0, 10, 10, 0, 10], 3, "▁█▅"),
    "not a number is left out": ([float("nan"), 0, float("inf"), 1], 40, "▁█"),
    "the ends of what a float can hold": ([-1.7e308, 1.7e308], 40, "▁█"),
}


@pytest.mark.parametrize(("values", "width", "line"), CASES.values(), ids=CASES)
def test_sparkline(values: list[float], width: int, line: str):
    assert sparkline(values, width) == line


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "no such encoding"])
def test_a_terminal_without_block_characters_gets_letters(encoding: str):
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8, encoding=encoding) == "_.-=+*#@"


@given(st.lists(st.floats(allow_nan=True)), st.integers(1, 50))
def test_a_line_is_never_longer_than_its_width(values: list[float], width: int):
    assert len(sparkline(values, width)) <= width
