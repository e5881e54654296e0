"""What a plain YAML word means.

The same as for `kubectl`, so that a file means the same to both: `on`, `yes` and their kin are booleans,
`0644` is octal, `1e3` a number; dates and times (`2024-01-01`, `12:30`) stay text, which is what people who
write them into a label want. Where a word was meant as text, the check of the field says so and shows it in
quotes.
"""

from __future__ import annotations

import math
import re
from typing import Final

Scalar = str | int | float | bool | None


class ScalarError(ValueError):
    """The word has no meaning in JSON, or not the one that its tag asks for."""


_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{form: True for word in ("true", "yes", "on") for form in (word, word.capitalize(), word.upper())},
    **{form: False for word in ("false", "no", "off") for form in (word, word.capitalize(), word.upper())},
}
_NUMBER_STARTS: Final = frozenset("0123456789+-.")
_INTEGER: Final = re.compile(
    r"([-+]?)(?:0[bB]([01_]+)|0[xX]([0-9a-fA-F_]+)|0[oO]?([0-7_]+)|(0|[1-9][0-9_]*))", re.ASCII
)
_BASES: Final = (2, 16, 8, 10)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_NOT_IN_JSON: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_LONGEST_NUMBER: Final = 40  # longer digits are an identifier, not an amount

_TAG_PREFIX: Final = "tag:yaml.org,2002:"
_TAGGED: Final[dict[str, tuple[type, ...]]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
}


def parse_plain_scalar(text: str) -> Scalar:
    """Return what an unquoted word means. Raises `ScalarError` for infinities and NaN."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _NUMBER_STARTS or len(text) > _LONGEST_NUMBER:
        return text
    if match := _INTEGER.fullmatch(text):
        sign, *digits = match.groups()
        for base, found in zip(_BASES, digits, strict=True):
            if found and (bare := found.replace("_", "")):
                return int(sign + bare, base)
    if _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    if _NOT_IN_JSON.fullmatch(text):
        raise ScalarError(f"{text} is no number that JSON has; put it in quotes if it is text")
    return text


def parse_tagged_scalar(tag: str, text: str) -> Scalar:
    """Return what a word with an explicit tag (`!!str 1`) means. Raises `ScalarError`."""
    name = tag.removeprefix(_TAG_PREFIX)
    if name in {"str", "!"}:
        return text
    if name not in _TAGGED:
        shown = f"!!{name}" if tag != name else tag
        raise ScalarError(f"the tag {shown} is not supported; use !!str, !!int, !!float, !!bool or none")
    value = parse_plain_scalar(text)
    if type(value) not in _TAGGED[name]:
        raise ScalarError(f"{text!r} is no {name}, which its tag !!{name} asks for")
    return value
