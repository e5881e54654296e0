"""When two ways to write a part of an object mean the same, so that the difference is no change.

Clients that are written in Go write a whole object back in their own words: without lists and maps that are
empty, with amounts in one notation, and with some fields that were absent. Kueue does so with each TrainJob
that it admits. The peer compares as they do. Source: spec 01 sections 2.3 and 2.4, "semantic".
"""

from __future__ import annotations

from typing import Any, Final

from trainwright.api.encoding import build_json
from trainwright.api.quantity import is_quantity, parse_quantity

# Where an empty object is the same as none. Elsewhere it may mean something: `emptyDir: {}`.
_EMPTY_IS_ABSENT: Final = frozenset(
    {"labels", "annotations", "nodeSelector", "matchLabels", "limits", "requests"}
    | {"resources", "metadata", "status"}
)
_MAPS_OF_AMOUNTS: Final = frozenset({"limits", "requests"})
_AMOUNTS: Final = frozenset({"divisor", "sizeLimit"})


def is_same(one: Any, other: Any) -> bool:
    """Say whether two values of the same field mean the same."""
    return bool(one == other or _normalize(build_json(one)) == _normalize(build_json(other)))


def _normalize(value: Any, key: str = "", parent: str = "") -> Any:
    """Return plain JSON in the one form that all ways to write the same have; None for what is absent."""
    if isinstance(value, dict):
        items = {name: _normalize(item, name, key) for name, item in value.items()}
        kept = {name: item for name, item in items.items() if item is not None}
        return kept if kept or key not in _EMPTY_IS_ABSENT else None
    if isinstance(value, list):
        return [_normalize(item) for item in value] or None
    if (parent in _MAPS_OF_AMOUNTS or key in _AMOUNTS) and is_quantity(value):
        amount = parse_quantity(value).nanos
        return amount if amount or key != "divisor" else None
    return value
