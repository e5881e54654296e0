"""How much work a function does, counted and not timed: the same on a busy machine as on an idle one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(function: Callable[[], object]) -> int:
    """Return how many lines of Python the function runs; a loop counts for each turn."""
    steps = 0

    def count(_frame: FrameType, _event: str, _arg: Any) -> Any:
        nonlocal steps
        steps += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        function()
    finally:
        sys.settrace(before)
    return steps


def assert_linear(build: Callable[[int], Callable[[], object]], size: int = 100) -> None:
    """Assert that four times the size makes about four times the steps, at most six.

    `build` prepares the work for a size, and returns what is measured.
    """
    build(size)()  # fills caches
    small, large = count_steps(build(size)), count_steps(build(4 * size))
    assert large < 6 * small, f"{small} steps for {size}, {large} for {4 * size}"
