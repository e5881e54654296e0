"""Paths of fields as users write them: `spec.trainer.env[2].name`, `metadata.labels[app.io/name]`.

Checking code passes a linked path down (one small tuple per level) and makes text of it only for an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple


class Key(str):
    """A key that a user chose (of a label, a limit, a file in a ConfigMap), not the name of a field."""

    __slots__ = ()


Token = str | int  # a field, a Key, or the position in a list


class Path(NamedTuple):
    """One step, and how one got there."""

    parent: Path | None
    token: Token

    def __str__(self) -> str:
        return build_path_text(list(self.tokens()))

    def tokens(self) -> Iterator[Token]:
        """Yield the steps from the outermost on."""
        steps: list[Token] = []
        here: Path | None = self
        while here is not None:
            steps.append(here.token)
            here = here.parent
        return reversed(steps)


def build_path_text(tokens: list[Token]) -> str:
    """Return the path as text."""
    text = ""
    for token in tokens:
        if isinstance(token, int) or type(token) is Key:
            text += f"[{token}]"
        else:
            text += f".{token}" if text else token
    return text


_STEP: Final = re.compile(r"\[([^\[\]]*)\]|\.?([^.\[\]]+)")


def parse_path(text: str) -> list[Token]:
    """Return the steps of a path; the inverse of `build_path_text`.

    What stands in brackets is a position if it is a number, else a Key; `[name=node]` is the Key "name=node".
    """
    tokens: list[Token] = []
    for match in _STEP.finditer(text):
        inner, field = match.groups()
        if field is not None:
            tokens.append(field)
        else:
            tokens.append(int(inner) if inner.isascii() and inner.isdigit() else Key(inner))
    return tokens
