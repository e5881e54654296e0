"""Field errors: what is wrong with an object, by path. Values only; nothing is raised here.

Every reading and validation function returns a list of these, never the first one alone.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Rule(StrEnum):
    """The kind of rule that a value breaks; the names are those of Kubernetes field errors."""

    REQUIRED = "Required"
    INVALID = "Invalid"
    TYPE = "TypeInvalid"
    UNKNOWN = "UnknownField"
    DUPLICATE = "Duplicate"
    NOT_SUPPORTED = "NotSupported"
    FORBIDDEN = "Forbidden"
    NOT_FOUND = "NotFound"
    TOO_LONG = "TooLong"
    TOO_MANY = "TooMany"
    SYNTAX = "Syntax"


class Position(msgspec.Struct, frozen=True):
    """A place in a text; line and column count from 1."""

    line: int
    column: int


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """One broken rule.

    `path` is written as users know it: `spec.trainer.env[2].name`; an entry of a keyed list may be
    written `[name=node]`. `detail` says what is expected and what to do, without the path.
    `value` is the offending value (shortened when printed), None where there is none.
    """

    path: str
    rule: Rule
    detail: str
    value: Any = None
    position: Position | None = None

    def __str__(self) -> str:
        where = f"{self.position.line}:{self.position.column}: " if self.position else ""
        path = f"{self.path}: " if self.path else ""
        return f"{where}{path}{self.detail}"
