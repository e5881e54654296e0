"""Amounts as Kubernetes writes them ("500m", "1Gi", "1e3"), exact.

The finest amount that Kubernetes keeps is a billionth, so an amount is a whole number of billionths: no
float and no rounding anywhere. What is finer is rounded away from zero (some of a resource stays some of it),
what is larger than a 64-bit integer is cut to that, both as the API server does it.

Source: the serialisation rules of `resource.Quantity` in the Kubernetes API conventions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Final


class QuantityError(ValueError):
    """The text is no quantity; the message says what would be one and is fit for a field error."""


class Notation(Enum):
    """How an amount was written, which is how it is printed again."""

    DECIMAL = "500m, 2, 3k"
    BINARY = "1Gi"
    EXPONENT = "1e3"


_NANO: Final = 10**9
_LARGEST: Final = (2**63 - 1) * _NANO
_LONGEST_TEXT: Final = 128  # bounds the work; nothing meaningful is longer
_PATTERN: Final = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)([A-Za-z]*)([+-]?[0-9]*)")
_DECIMAL_EXPONENTS: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_DECIMAL_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
# 10**60 is beyond every limit for every mantissa of up to _LONGEST_TEXT digits that is not cut anyway.
_LARGEST_EXPONENT: Final = 60 + _LONGEST_TEXT


@dataclass(frozen=True, order=True, slots=True)
class Quantity:
    """An amount. Two are equal when they are the same amount, however they were written."""

    nanos: int
    notation: Notation = field(default=Notation.DECIMAL, compare=False)

    def __add__(self, other: Quantity) -> Quantity:
        notation = self.notation if self.nanos else other.notation
        return _bounded(self.nanos + other.nanos, notation)

    def __sub__(self, other: Quantity) -> Quantity:
        notation = self.notation if self.nanos else other.notation
        return _bounded(self.nanos - other.nanos, notation)

    def __mul__(self, factor: int) -> Quantity:
        return _bounded(self.nanos * factor, self.notation)

    __rmul__ = __mul__

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __str__(self) -> str:
        return build_quantity_text(self)

    def ceil(self) -> int:
        """Return the amount in whole units, rounded away from zero."""
        return _divide_away_from_zero(self.nanos, _NANO)

    def exact(self) -> Fraction:
        """Return the amount as a fraction."""
        return Fraction(self.nanos, _NANO)


ZERO: Final = Quantity(0)


def parse_quantity(value: str | int | float | Decimal) -> Quantity:
    """Return the amount that a string or a JSON number stands for.

    Raises `QuantityError` for anything else, NaN, infinities and booleans included.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        raise QuantityError(f"expected a quantity such as 2, 500m or 1Gi, found {_describe(value)}")
    if isinstance(value, int):
        return _bounded(value * _NANO, Notation.DECIMAL)
    if isinstance(value, float | Decimal):
        # The shortest decimal that gives this float back: 0.1 is a tenth, as whoever wrote it meant.
        exact = Decimal(repr(value)) if isinstance(value, float) else value
        if not exact.is_finite():
            raise QuantityError(f"expected a quantity such as 2, 500m or 1Gi, found {value}")
        return _scaled(Fraction(exact) if abs(exact.adjusted()) < _LARGEST_EXPONENT else exact)
    return _parse_text(value)


def is_quantity(value: object) -> bool:
    """Say whether a value is a quantity."""
    try:
        parse_quantity(value)  # type: ignore[arg-type]
    except QuantityError:
        return False
    return True


def build_quantity_text(quantity: Quantity) -> str:
    """Return the canonical text: no fraction, the largest suffix that needs none, in the notation it came in.

    Amounts below 1024, and fractions, written in powers of two are printed in decimal, as Kubernetes does.
    """
    if not quantity.nanos:
        return "0"
    units, rest = divmod(quantity.nanos, _NANO)
    if quantity.notation is Notation.BINARY and not rest and abs(units) >= 1024:
        power = 0
        while units % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
            units //= 1024
            power += 1
        return f"{units}{_BINARY_SUFFIXES[power]}"
    mantissa, exponent = quantity.nanos, -9
    while mantissa % 1000 == 0 and exponent < 18:
        mantissa //= 1000
        exponent += 3
    if quantity.notation is Notation.EXPONENT:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIXES[exponent]}"


def _parse_text(text: str) -> Quantity:
    match = _PATTERN.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise QuantityError(_explain_text(text))
    sign, digits, suffix, exponent_digits = match.groups()
    number = Fraction(Decimal(sign + digits))
    if suffix in {"e", "E"} and exponent_digits.strip("+-"):
        exponent = int(exponent_digits)
        capped = max(-_LARGEST_EXPONENT, min(_LARGEST_EXPONENT, exponent))
        return _scaled(number * Fraction(10) ** capped, Notation.EXPONENT)
    if not exponent_digits and suffix in _DECIMAL_EXPONENTS:
        return _scaled(number * Fraction(10) ** _DECIMAL_EXPONENTS[suffix])
    if not exponent_digits and suffix in _BINARY_SUFFIXES:
        return _scaled(number * 1024 ** _BINARY_SUFFIXES.index(suffix), Notation.BINARY)
    raise QuantityError(_explain_text(text))


def _explain_text(text: str) -> str:
    shown = text if len(text) <= 40 else text[:40] + "..."
    message = f"{shown!r} is no quantity; write a number with a suffix: 500m, 2, 1.5, 16Gi, 1e3"
    if (compact := re.sub(r"\s", "", text)) != text and is_quantity(compact):
        return f"{message} (did you mean {compact!r}, without spaces?)"
    for wrong, right in _COMMON_MISTAKES.items():
        number = text.removesuffix(wrong)
        if number != text and is_quantity(number + right):
            return f"{message} (did you mean {number + right!r}?)"
    return message


# Longest first: "gb" must not be taken for a "b".
_COMMON_MISTAKES: Final = {
    "GiB": "Gi", "MiB": "Mi", "KiB": "Ki", "TiB": "Ti", "GB": "G", "MB": "M", "KB": "k", "kB": "k", "TB": "T",
    "gb": "G", "mb": "M", "kb": "k", "tb": "T", "gi": "Gi", "mi": "Mi", "ki": "Ki", "KI": "Ki",
    "GI": "Gi", "MI": "Mi", "K": "k", "g": "G", "t": "T", "B": "", "b": "",
}  # fmt: skip


def _scaled(value: Fraction | Decimal, notation: Notation = Notation.DECIMAL) -> Quantity:
    if isinstance(value, Decimal):  # its exponent is far out of range: only its sign and direction matter
        magnitude = 0 if not value else (_LARGEST if value.adjusted() > 0 else 1)
        return _bounded(magnitude if value >= 0 else -magnitude, notation)
    nanos = value * _NANO
    return _bounded(_divide_away_from_zero(nanos.numerator, nanos.denominator), notation)


def _bounded(nanos: int, notation: Notation) -> Quantity:
    return Quantity(max(-_LARGEST, min(_LARGEST, nanos)), notation)


def _divide_away_from_zero(numerator: int, denominator: int) -> int:
    magnitude = -(-abs(numerator) // denominator)
    return magnitude if numerator >= 0 else -magnitude


def _describe(value: object) -> str:
    return {bool: "a boolean", type(None): "nothing", list: "a list", dict: "an object"}.get(
        type(value), type(value).__name__
    )
