"""The log of one supervisor: a constant message and key-value pairs, one line each (logfmt).

Not by structlog, whose import takes 90 ms of a core (most of it for tracebacks in colour) just when the
training starts; what is needed of it is here.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from datetime import datetime
from io import RawIOBase
from typing import Any, BinaryIO, Final

_PLAIN: Final = re.compile(r"[^\s\"=]+")


class SupervisorLog:
    """Writes to an unbuffered stream, a whole line at a time. A full disk costs lines, never the job."""

    def __init__(self, stream: RawIOBase | BinaryIO, clock: Callable[[], datetime]) -> None:
        self._stream = stream
        self._clock = clock

    def info(self, event: str, **context: Any) -> None:
        """Say that something changed."""
        self._write("info", event, context)

    def warning(self, event: str, **context: Any) -> None:
        """Say that something did not work, and is tried again."""
        self._write("warning", event, context)

    def exception(self, event: str, error: BaseException, **context: Any) -> None:
        """Say that something went wrong for good; the traceback follows the line."""
        self._write("error", event, {**context, "error": f"{type(error).__name__}: {error}"})
        self._put("".join(traceback.format_exception(error)))

    def _write(self, level: str, event: str, context: dict[str, Any]) -> None:
        pairs = {
            "timestamp": self._clock().isoformat(timespec="milliseconds"),
            "level": level,
            "event": event,
        }
        self._put(" ".join(f"{key}={_format(value)}" for key, value in {**pairs, **context}.items()) + "\n")

    def _put(self, text: str) -> None:
        try:
            self._stream.write(text.encode("utf-8", "backslashreplace"))
        except OSError:
            return


def _format(value: Any) -> str:
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
