"""Where a reader of a container's log is, so that it can go on after a broken connection. Pure.

The API server sends each line with the time at which it was written and can be asked for lines since a whole
second. Lines of that second come again then: they are known by their times, in nanoseconds, which are
counted. Output and error output are stamped apart, so a line may be a little older than one that came before
it; a second more is asked for, so that such a line is not missed.

What a container printed before its log was rotated cannot be asked for again.
"""

from __future__ import annotations

from array import array
from collections import Counter
from datetime import UTC, datetime

_NANOSECONDS = 1_000_000_000
_SLACK_SECONDS = 1


class LogCursor:
    """Remembers the times of the lines of the last two seconds: 8 bytes for each."""

    def __init__(self) -> None:
        self._newest_second: int | None = None
        self._taken = array("q")
        self._replayed: Counter[int] = Counter()

    @property
    def has_read(self) -> bool:
        """Whether any line was taken."""
        return self._newest_second is not None

    def resume(self) -> str:
        """Begin again; return the time to ask from, as RFC 3339, empty for the beginning."""
        self._replayed = Counter(self._taken)
        if self._newest_second is None:
            return ""
        since = datetime.fromtimestamp(self._newest_second - _SLACK_SECONDS, UTC)
        return since.strftime("%Y-%m-%dT%H:%M:%SZ")

    def take(self, stamp: int) -> bool:
        """Say whether the line of this time is new, and remember it."""
        if self._replayed.get(stamp, 0) > 0:
            self._replayed[stamp] -= 1
            return False
        second = stamp // _NANOSECONDS
        if self._newest_second is None or second > self._newest_second:
            self._newest_second = second
            self._forget_before((second - _SLACK_SECONDS) * _NANOSECONDS)
        if second >= self._newest_second - _SLACK_SECONDS:
            self._taken.append(stamp)
        return True

    def _forget_before(self, limit: int) -> None:
        self._taken = array("q", [stamp for stamp in self._taken if stamp >= limit])


class StampedLines:
    """Splits a log into lines; what is not yet a whole line is kept for the next piece.

    A line longer than 1 MiB is cut, so that no output, however broken, fills the memory.
    """

    LONGEST_BYTES = 1 << 20

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their ends."""
        *complete, rest = piece.split(b"\n")
        lines = []
        for line in complete:
            self._parts.append(line)
            lines.append(self.finish())
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size >= self.LONGEST_BYTES:
                lines.append(self.finish())
        return lines

    def finish(self) -> bytes:
        """Return what is left, which is no whole line."""
        line = b"".join(self._parts)
        self._parts = []
        self._size = 0
        return line


def parse_stamped(line: bytes) -> tuple[int | None, str]:
    """Return the time of a line in nanoseconds, and its text; None where no time is in front."""
    stamp, space, text = line.partition(b" ")
    moment = _parse_time(stamp.decode("ascii", "replace"))
    if moment is None:
        return None, line.decode("utf-8", "replace")
    return moment, text.decode("utf-8", "replace") if space else ""


def _parse_time(text: str) -> int | None:
    """Return RFC 3339 with any number of digits below the second, as nanoseconds since 1970."""
    date, zone = (text[:-1], "+00:00") if text.endswith("Z") else (text[:-6], text[-6:])
    whole, _, fraction = date.partition(".")
    if fraction and not (fraction.isascii() and fraction.isdigit()):
        return None
    try:
        seconds = datetime.fromisoformat(whole + zone)
    except ValueError:
        return None
    if seconds.tzinfo is None or len(whole) != len("2026-01-01T00:00:00"):
        return None
    return int(seconds.timestamp()) * _NANOSECONDS + int(fraction[:9].ljust(9, "0") or "0")
