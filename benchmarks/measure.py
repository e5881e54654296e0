"""What every benchmark here shares: how a figure is taken, and how it is shown.

A benchmark is a module `bench_*.py` with a docstring that states its question, its data and its own bias,
and a function `measure() -> list[Figure]`. A figure is a duration of ours beside a baseline's, taken in the
same run on the same machine: the ratio is what counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Ours beside a baseline, both in seconds; `limit` is what ours must stay below, in seconds."""

    name: str
    ours: float
    baseline_name: str
    baseline: float
    limit: float | None = None

    @property
    def ratio(self) -> float:
        """How many times the baseline ours takes."""
        return self.ours / self.baseline if self.baseline else float("inf")

    @property
    def is_within_limit(self) -> bool:
        """Whether the goal holds in this run."""
        return self.limit is None or self.ours <= self.limit


def best_of(runs: int, function: Callable[[], object], *, number: int = 1) -> float:
    """Return the best mean duration of one call, in seconds, over `runs` runs of `number` calls each."""
    durations = []
    for _ in range(runs):
        start = time.perf_counter()
        for _ in range(number):
            function()
        durations.append((time.perf_counter() - start) / number)
    return min(durations)


def format_seconds(seconds: float) -> str:
    """Return a duration in the unit that reads best."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds:.2f} s"


def format_table(figures: list[Figure]) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| figure | ours | baseline | ratio | goal |", "|---|---|---|---|---|"]
    for figure in figures:
        goal = "-"
        if figure.limit is not None:
            mark = "held" if figure.is_within_limit else "**missed**"
            goal = f"under {format_seconds(figure.limit)}: {mark}"
        lines.append(
            f"| {figure.name} | {format_seconds(figure.ours)} | {figure.baseline_name}: "
            f"{format_seconds(figure.baseline)} | {figure.ratio:.2f} | {goal} |"
        )
    return "\n".join(lines)


def show(figures: list[Figure]) -> None:
    """Print the figures of one benchmark run on its own."""
    print(format_table(figures))
