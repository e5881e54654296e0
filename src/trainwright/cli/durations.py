"""Lengths of time as people write and read them: `90`, `90s`, `1h30m`; `5d`, `3m12s`."""

from __future__ import annotations

import re
from datetime import datetime

from trainwright.errors import UsageError

_UNIT_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_FORM = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def parse_duration(text: str, option: str) -> int:
    """Return whole seconds of `90`, `90s`, `15m`, `1h30m` or `2d`. Raises UsageError naming the option."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    match = _FORM.fullmatch(text)
    if not text or match is None:
        raise UsageError(f"{option}: {text!r} is not a length of time; write 90, 90s, 15m, 1h30m or 2d")
    parts = zip(match.groups(), _UNIT_SECONDS.values(), strict=True)
    return sum(int(number) * seconds for number, seconds in parts if number)


def format_duration(seconds: float) -> str:
    """Return at most two units, the coarser first: `12s`, `3m12s`, `5h`, `4d2h`; never negative."""
    left = max(0, int(seconds))
    parts: list[tuple[int, str]] = []
    for unit, size in _UNIT_SECONDS.items():
        number, left = divmod(left, size)
        if number or parts:
            parts.append((number, unit))
    return "".join(f"{number}{unit}" for number, unit in parts[:2] if number) or "0s"


def format_age(since: datetime | None, now: datetime) -> str:
    """Return how long ago something was, `-` where it never was."""
    return "-" if since is None else format_duration((now - since).total_seconds())
