"""Plain YAML words mean what they mean to kubectl."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.scalars import Scalar, ScalarError, parse_plain_scalar, parse_tagged_scalar

WORDS: dict[str, Scalar] = {
    "": None, "~": None, "null": None, "NULL": None, "none": "none",
    "true": True, "True": True, "TRUE": True, "tRUE": "tRUE",
    "on": True, "Yes": True, "off": False, "NO": False,
    "y": "y", "n": "n",
    "0": 0, "12": 12, "-3": -3, "+4": 4, "1_000": 1000, "0644": 420, "0o644": 420, "0x1F": 31, "0b101": 5,
    "00": 0, "089": 89.0, "0_7": 7,
    "1.5": 1.5, "1.": 1.0, ".5": 0.5, "-.5": -0.5, "1e3": 1000.0, "1E3": 1000.0, "6.02e23": 6.02e23,
    "1e999": "1e999", "12e4567": "12e4567", "9" * 41: "9" * 41,
    "2024-01-01": "2024-01-01", "12:30": "12:30", "2024-01-01T00:00:00Z": "2024-01-01T00:00:00Z",
    "500m": "500m", "1Gi": "1Gi", "0x": "0x", "-": "-", ".": ".", "1.2.3": "1.2.3", "a b": "a b",
}  # fmt: skip


@pytest.mark.parametrize("word", WORDS, ids=repr)
def test_a_plain_word_means_what_it_means_to_kubectl(word: str) -> None:
    value = parse_plain_scalar(word)

    assert (type(value), value) == (type(WORDS[word]), WORDS[word])


@pytest.mark.parametrize("word", [".inf", "-.INF", ".nan", ".NaN"])
def test_what_json_cannot_hold_is_refused(word: str) -> None:
    with pytest.raises(ScalarError, match="no number that JSON has"):
        parse_plain_scalar(word)


@pytest.mark.parametrize(
    ("tag", "text", "value"),
    [
        ("tag:yaml.org,2002:str", "1", "1"),
        ("!", "on", "on"),
        ("tag:yaml.org,2002:int", "0x10", 16),
        ("tag:yaml.org,2002:float", "1", 1),
        ("tag:yaml.org,2002:bool", "off", False),
        ("tag:yaml.org,2002:null", "", None),
    ],
)
def test_a_tag_decides_what_a_word_is(tag: str, text: str, value: Scalar) -> None:
    assert parse_tagged_scalar(tag, text) == value


@pytest.mark.parametrize(
    ("tag", "text"),
    [
        ("tag:yaml.org,2002:int", "abc"),
        ("tag:yaml.org,2002:bool", "1"),
        ("tag:yaml.org,2002:timestamp", "2024-01-01"),
        ("tag:yaml.org,2002:python/object/apply:os.system", "true"),
        ("!secret", "x"),
    ],
)
def test_a_tag_that_does_not_fit_or_is_unknown_is_refused(tag: str, text: str) -> None:
    with pytest.raises(ScalarError):
        parse_tagged_scalar(tag, text)


@given(st.text(max_size=50))
def test_any_word_has_a_meaning_that_json_can_hold(word: str) -> None:
    try:
        value = parse_plain_scalar(word)
    except ScalarError:
        return
    assert not isinstance(value, float) or math.isfinite(value)
