"""Quantities are exact and print as Kubernetes prints them."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.quantity import (
    Notation,
    Quantity,
    QuantityError,
    build_quantity_text,
    is_quantity,
    parse_quantity,
)

LARGEST = 2**63 - 1

# text -> (exact amount, canonical text)
QUANTITIES: dict[str | int | float, tuple[Fraction, str]] = {
    "0": (Fraction(0), "0"),
    "500m": (Fraction(1, 2), "500m"),
    "0.5": (Fraction(1, 2), "500m"),
    ".5": (Fraction(1, 2), "500m"),
    "1.": (Fraction(1), "1"),
    "+2": (Fraction(2), "2"),
    "-1": (Fraction(-1), "-1"),
    "-250m": (Fraction(-1, 4), "-250m"),
    "0.1": (Fraction(1, 10), "100m"),
    "1500": (Fraction(1500), "1500"),
    "1000": (Fraction(1000), "1k"),
    "1Ki": (Fraction(1024), "1Ki"),
    "1Gi": (Fraction(2**30), "1Gi"),
    "1.5Gi": (Fraction(3 * 2**29), "1536Mi"),
    "1024": (Fraction(1024), "1024"),
    "0.5Ki": (Fraction(512), "512"),
    "0.5Gi": (Fraction(2**29), "512Mi"),
    "1025Ki": (Fraction(1025 * 1024), "1025Ki"),
    "0.001Ki": (Fraction(1024, 1000), "1024m"),
    "100k": (Fraction(10**5), "100k"),
    "1M": (Fraction(10**6), "1M"),
    "1E": (Fraction(10**18), "1E"),
    "1Ei": (Fraction(2**60), "1Ei"),
    "1e3": (Fraction(1000), "1e3"),
    "1E3": (Fraction(1000), "1e3"),
    "1e+3": (Fraction(1000), "1e3"),
    "1.5e3": (Fraction(1500), "1500"),
    "1e-3": (Fraction(1, 1000), "1e-3"),
    "12e1": (Fraction(120), "120"),
    "1n": (Fraction(1, 10**9), "1n"),
    "1u": (Fraction(1, 10**6), "1u"),
    "0.1n": (Fraction(1, 10**9), "1n"),
    "-0.1n": (Fraction(-1, 10**9), "-1n"),
    "10E": (Fraction(LARGEST), str(LARGEST)),
    "-10E": (Fraction(-LARGEST), str(-LARGEST)),
    "1e999999999999": (Fraction(LARGEST), str(LARGEST)),
    "1e-999999999999": (Fraction(1, 10**9), "1e-9"),
    "0e999999999999": (Fraction(0), "0"),
    1: (Fraction(1), "1"),
    -3: (Fraction(-3), "-3"),
    4.0: (Fraction(4), "4"),
    0.1: (Fraction(1, 10), "100m"),
    2.5: (Fraction(5, 2), "2500m"),
    1e300: (Fraction(LARGEST), str(LARGEST)),
    1e-300: (Fraction(1, 10**9), "1n"),
}


@pytest.mark.parametrize("text", QUANTITIES, ids=repr)
def test_a_quantity_has_its_exact_amount_and_its_canonical_text(text: str | int | float) -> None:
    quantity = parse_quantity(text)

    assert (quantity.exact(), str(quantity)) == QUANTITIES[text]


@pytest.mark.parametrize(
    "text",
    ["", " ", "lots", "1 Gi", "1gi", "1GB", ".", "-", "+-1", "1e", "1E+", "1ee3", "0x10", "1_000", "1,5",
     "1Gi2", "m", "--1", "1\n", "NaN", "inf", "Infinity", "٣", "1" * 200, None, True, [], {},
     float("nan"), float("inf"), Decimal("NaN")],
    ids=repr,
)  # fmt: skip
def test_what_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(QuantityError):
        parse_quantity(text)  # type: ignore[arg-type]
    assert not is_quantity(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("16GB", "16G"), ("16GiB", "16Gi"), ("1gi", "1Gi"), ("1 Gi", "1Gi"), ("2K", "2k"), ("8b", "8")],
)
def test_a_common_mistake_is_answered_with_what_was_meant(text: str, meant: str) -> None:
    with pytest.raises(QuantityError, match=f"did you mean '{meant}'"):
        parse_quantity(text)


def test_amounts_compare_by_amount_not_by_notation() -> None:
    assert parse_quantity("1Ki") == parse_quantity("1024") == parse_quantity("1.024k")
    assert hash(parse_quantity("1Ki")) == hash(parse_quantity("1024"))
    assert parse_quantity("999m") < parse_quantity("1") < parse_quantity("1Ki")


def test_a_sum_keeps_the_notation_of_its_first_amount_that_is_not_zero() -> None:
    assert str(parse_quantity("1Gi") + parse_quantity("1Gi")) == "2Gi"
    assert str(parse_quantity("0") + parse_quantity("1Gi")) == "1Gi"
    assert str(parse_quantity("1") + parse_quantity("500m")) == "1500m"
    assert str(parse_quantity("1Gi") - parse_quantity("512Mi")) == "512Mi"


def test_an_amount_is_multiplied_exactly() -> None:
    assert str(parse_quantity("100m") * 3) == "300m"
    assert str(3 * parse_quantity("16Gi")) == "48Gi"


@pytest.mark.parametrize(
    ("text", "whole"),
    [("700m", 1), ("2.5", 3), ("2500m", 3), ("3.7", 4), ("4", 4), ("0", 0), ("-700m", -1), ("1Gi", 2**30)],
)
def test_whole_units_are_rounded_away_from_zero(text: str, whole: int) -> None:
    assert parse_quantity(text).ceil() == whole


amounts = st.integers(min_value=-LARGEST * 10**9, max_value=LARGEST * 10**9)
quantities = st.builds(Quantity, amounts, st.sampled_from(Notation))


@given(quantities)
def test_the_canonical_text_gives_the_same_amount_back(quantity: Quantity) -> None:
    assert parse_quantity(build_quantity_text(quantity)) == quantity


@given(st.text(alphabet="0123456789.+-eEinumkKMGTPab ", max_size=12))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        quantity = parse_quantity(text)
    except QuantityError:
        return
    assert abs(quantity.exact()) <= LARGEST


@given(quantities, quantities)
def test_adding_and_subtracting_again_changes_nothing(one: Quantity, other: Quantity) -> None:
    if abs(one.nanos + other.nanos) <= LARGEST * 10**9:
        assert (one + other) - other == one


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))
def test_a_float_is_the_decimal_that_it_prints_as(value: float) -> None:
    assert parse_quantity(value) == parse_quantity(Decimal(repr(value)))
