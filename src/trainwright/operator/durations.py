"""Durations as Go's `time.ParseDuration` reads them: `15s`, `1m30s`, `500ms`."""

from __future__ import annotations

import re
from typing import Final

_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration_seconds(text: str) -> float:
    """Return the duration in seconds. Raises ValueError for what is no duration."""
    if text == "0":
        return 0.0
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no duration; write it as 15s, 1m30s or 500ms")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
