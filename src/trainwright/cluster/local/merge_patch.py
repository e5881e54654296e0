"""JSON merge patch (RFC 7386): null removes, maps merge, everything else replaces. Pure."""

from __future__ import annotations

from typing import Any

from trainwright.api.meta import Json


def merge_patch(target: Any, patch: Json) -> Json:
    """Return the target with the patch applied; neither argument changes. Source: RFC 7386, section 2."""
    merged: Json = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = merge_patch(merged.get(name), value)
        else:
            merged[name] = value
    return merged
