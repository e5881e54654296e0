"""The words of messages: what a value is, which word was meant."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import msgspec


def describe(value: Any) -> str:
    """Return what a value is, for "found ..."."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"the boolean {str(value).lower()}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {shorten(value)}"
        case list():
            return "a list"
        case _:
            return "an object"


def shorten(text: str, longest: int = 60) -> str:
    """Return the text in quotes, cut where it is long."""
    cut = text if len(text) <= longest else text[: longest - 3] + "..."
    return msgspec.json.encode(cut).decode()


def suggest(word: str, known: Sequence[str], likeness: float = 0.7) -> str:
    """Return "; did you mean X?" where a known word is close, else nothing.

    Words that differ only in case, or in - and _, count as close.
    """
    if not known:
        return ""
    folded = {_fold(name): name for name in known}
    close = difflib.get_close_matches(_fold(word)[:60], folded, n=1, cutoff=likeness)
    return f"; did you mean {folded[close[0]]}?" if close else ""


def _fold(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")


def list_choices(values: Sequence[str]) -> str:
    """Return "a, b or c"."""
    return " or ".join(", ".join(value or '""' for value in values).rsplit(", ", 1))
