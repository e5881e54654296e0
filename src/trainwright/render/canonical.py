"""The form in which objects leave render: the same object has the same bytes, whoever wrote its parts.

A runtime read from a file has the author's order of keys, the one from an API server another. Lists keep
their order, which means something.
"""

from __future__ import annotations

from typing import Any

from trainwright.template.merge import EMPTY_MEANS_ABSENT


def canonicalize(value: Any) -> Any:
    """Return a copy that shares no map or list with the value: keys sorted, null and empty maps left out.

    An empty map stays where it means something (`emptyDir: {}`); see `template.merge.EMPTY_MEANS_ABSENT`.
    """
    if isinstance(value, dict):
        return _canonicalize_map(value)
    return [canonicalize(item) for item in value] if isinstance(value, list) else value


def _canonicalize_map(value: dict[str, Any]) -> dict[str, Any]:
    result = {}
    for key in sorted(value):
        item = canonicalize(value[key])
        if item is None or (item == {} and key in EMPTY_MEANS_ABSENT):
            continue
        result[key] = item
    return result
