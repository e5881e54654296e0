"""Where in a text each value stands, so that an error found much later still names its line.

A `Place` is a shadow of a parsed document: the same tree, with lines and columns for values.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trainwright.api.field_path import Key, Token, parse_path
from trainwright.field_errors import FieldError, Position


class Place(msgspec.Struct, gc=False):
    """Where a value stands: at its key if it has one, else where it begins.

    `text` is what was written for a scalar, before YAML made something else of it (`on`, `0644`, `1e3`):
    messages quote it.
    """

    line: int
    column: int
    text: str | None = None
    children: dict[Token, Place] | None = None

    @property
    def position(self) -> Position:
        """Line and column, counted from 1."""
        return Position(self.line, self.column)


class Positions(msgspec.Struct, frozen=True):
    """The places of one document; without a root nothing is known."""

    root: Place | None = None

    def find(self, path: str) -> Position | None:
        """Return where the field stands, or the nearest object around it that does stand in the text."""
        place, _ = self._walk(path)
        return place.position if place else None

    def find_text(self, path: str) -> str | None:
        """Return what was written for exactly this field, if it is a scalar."""
        place, is_exact = self._walk(path)
        return place.text if place and is_exact else None

    def attach(self, errors: Iterable[FieldError]) -> list[FieldError]:
        """Return the errors with their positions; those that have one keep it."""
        return [
            error if error.position else msgspec.structs.replace(error, position=self.find(error.path))
            for error in errors
        ]

    def _walk(self, path: str) -> tuple[Place | None, bool]:
        place = self.root
        for token in parse_path(path):
            child = _step(place, token) if place else None
            if child is None:
                return place, False
            place = child
        return place, True


def _step(place: Place, token: Token) -> Place | None:
    children = place.children or {}
    if (child := children.get(token)) is not None:
        return child
    if isinstance(token, int):  # a key of digits in an object: `data[1]`
        return children.get(str(token))
    if type(token) is Key and "=" in token:  # an entry of a keyed list: `[name=node]`
        key, _, value = token.partition("=")
        for entry in children.values():
            named = (entry.children or {}).get(key)
            if named is not None and named.text == value:
                return entry
    return None
