"""Tables of text as command lines print them: columns padded with blanks, nothing drawn. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_GAP = "   "


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the header and a line for each row. What would break a line, or the terminal, is escaped."""
    lines = [[escape_controls(cell) for cell in row] for row in (header, *rows)]
    widths = [max(measure_width(line[column]) for line in lines) for column in range(len(header))]
    return "".join(f"{_format_line(line, widths)}\n" for line in lines)


def escape_controls(text: str) -> str:
    """Return the text with control characters written out, so that data cannot steer the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def measure_width(text: str) -> int:
    """Return how many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _format_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (width - measure_width(cell)) for cell, width in zip(cells, widths, strict=True))
    return _GAP.join(padded).rstrip()
