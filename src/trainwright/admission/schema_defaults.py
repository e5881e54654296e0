"""Defaults that the schema of a kind gives, for any kind."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from trainwright.api.encoding import build_object, parse_object
from trainwright.api.schema import fill_defaults

ObjectT = TypeVar("ObjectT", bound=msgspec.Struct)


def fill_schema_defaults(value: ObjectT) -> ObjectT:
    """Return the object with the defaults of its schema; nothing below an absent object is filled in.

    An object that its schema does not allow stays as it is: programs can build such ones, and validation,
    which comes next, says what is wrong with them.
    """
    kind = type(value)
    try:
        return parse_object(fill_defaults(kind, build_object(value)), kind)
    except msgspec.ValidationError:
        return value
