"""Completion indexes: which one a pod has, and how a set of them is written ("0,2-4")."""

from __future__ import annotations

from collections.abc import Collection

from trainwright.api.constants import COMPLETION_INDEX
from trainwright.api.core import Pod


def get_completion_index(pod: Pod) -> int | None:
    """Return the pod's completion index; None where it has none that makes sense."""
    value = (pod.metadata.annotations or {}).get(COMPLETION_INDEX, "")
    return int(value) if value.isdecimal() else None


def format_indexes(indexes: Collection[int]) -> str:
    """Return the indexes in ascending order, three or more in a row as a range, as batch/v1 writes them."""
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(indexes), None]:
        if run and index == run[-1] + 1:
            run.append(index)
            continue
        if len(run) > 2:
            parts.append(f"{run[0]}-{run[-1]}")
        else:
            parts += map(str, run)
        run = [] if index is None else [index]
    return ",".join(parts)


def parse_indexes(text: str) -> set[int]:
    """Return the set that `format_indexes` wrote."""
    result: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        result.update(range(int(first), int(last or first) + 1))
    return result
