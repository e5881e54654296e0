"""What one report looks like on the wire, and the limits that a server holds it to.

Source: spec 03, section 1.4. A server refuses a whole report for one long name or one fraction of a percent,
so everything is cut and rounded here. Pure.
"""

from __future__ import annotations

import math
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

_MAX_METRICS = 256
_MAX_CHARACTERS = 64
_MAX_INT32 = 2**31 - 1


def build_request(
    *,
    percent: int | None,
    remaining_seconds: int | None,
    metrics: Iterable[tuple[str, str]],
    reported_at: float,
) -> dict[str, Any]:
    """Return the body of a report made at `reported_at` (Unix seconds). Absent parts are left out."""
    status: dict[str, Any] = {"lastUpdatedTime": format_time(reported_at)}
    if percent is not None:
        status["progressPercentage"] = percent
    if remaining_seconds is not None:
        status["estimatedRemainingSeconds"] = max(0, min(_MAX_INT32, remaining_seconds))
    listed = [{"name": name, "value": value} for name, value in metrics if name and value]
    if listed:
        status["metrics"] = listed[:_MAX_METRICS]
    return {"trainerStatus": status}


def compute_percent(step: float, total: float) -> int | None:
    """Return `step` of `total` in whole percent, 0 to 100; 100 only when done; None for no total."""
    if total <= 0:
        return None
    if step >= total:
        return 100
    return min(99, round(100 * (step / total))) if step > 0 else 0


def read_count(value: object) -> int | float | None:
    """Return a step, a total or an epoch; None for what is not a finite number."""
    number = read_number(value)
    return number if number is not None and math.isfinite(number) else None


def read_number(value: object) -> int | float | None:
    """Return a number, or a one-element array or tensor, as int or float; None for anything else."""
    item = getattr(value, "item", None)
    number: Any = item() if callable(item) else value
    return number if isinstance(number, (int, float)) else None


def format_metrics(metrics: Mapping[str, object]) -> dict[str, str | None]:
    """Return names and values as texts within the limits; None stays None."""
    return {
        str(name)[:_MAX_CHARACTERS]: None if value is None else format_value(value)
        for name, value in metrics.items()
    }


def format_value(value: object) -> str:
    """Return a value as text: floats with six digits, integers exactly, anything else as `str` has it."""
    number = read_number(value)
    text = f"{number:.6g}" if isinstance(number, float) else str(value if number is None else number)
    return text[:_MAX_CHARACTERS]


def format_time(unix_seconds: float) -> str:
    """Return the time as RFC 3339 in UTC, with microseconds."""
    microseconds = round(unix_seconds * 1_000_000)
    seconds, fraction = divmod(microseconds, 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:06d}Z"
