"""From text to plain values: syntax, places, limits; never an exception."""

# ruff: noqa: E501 (texts and messages of a table stay on one line)

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.documents import MAX_BYTES, MAX_DEPTH, parse_documents
from trainwright.api.positions import Positions
from trainwright.field_errors import Position


def values(text: str | bytes) -> list[Any]:
    """Return the values of a text without errors."""
    documents = parse_documents(text)
    assert [*documents.errors, *(e for d in documents.items for e in d.errors)] == []
    return [document.value for document in documents.items]


def errors(text: str | bytes) -> list[str]:
    """Return all errors of a text as a user sees them."""
    documents = parse_documents(text)
    return [str(error) for error in [*documents.errors, *(e for d in documents.items for e in d.errors)]]


def test_several_documents_are_read_and_empty_ones_are_left_out() -> None:
    assert values("---\na: 1\n---\n---\n# only a comment\n---\nb: [x, {c: d}]\n...\n") == [
        {"a": 1},
        {"b": ["x", {"c": "d"}]},
    ]


@pytest.mark.parametrize("text", ["", "\n", "# nothing", "---", "---\n---\n", "\ufeff"])
def test_a_text_without_content_has_no_documents(text: str) -> None:
    assert values(text) == []


def test_text_in_quotes_and_blocks_stays_text() -> None:
    assert values("a: '1'\nb: \"on\"\nc: |\n  x\n  y\nd: >-\n  x\n  y\n") == [
        {"a": "1", "b": "on", "c": "x\ny\n", "d": "x y"}
    ]


def test_utf_8_is_read_with_and_without_byte_order_mark() -> None:
    assert values("a: é".encode()) == values("\ufeffa: é".encode()) == values("\ufeffa: é") == [{"a": "é"}]


def test_an_alias_repeats_its_anchor_and_a_merge_gives_way_to_own_keys() -> None:
    text = """
    base: &base {a: 1, b: 2}
    again: *base
    one:
      <<: *base
      b: 3
    two:
      <<: [{a: 9}, *base]
    """
    assert values(textwrap.dedent(text)) == [
        {
            "base": {"a": 1, "b": 2},
            "again": {"a": 1, "b": 2},
            "one": {"b": 3, "a": 1},
            "two": {"a": 9, "b": 2},
        }
    ]


def test_every_value_knows_its_line_and_column() -> None:
    document = parse_documents("a:\n  b: 1\nlist:\n- x\n- name: y\n  value: z\n").items[0]
    positions = Positions(document.place)

    assert positions.find("a.b") == Position(2, 3)
    assert positions.find("list[0]") == Position(4, 3)
    assert positions.find("list[1].value") == Position(6, 3)
    assert positions.find("list[name=y].value") == Position(6, 3)


def test_what_is_not_in_the_text_is_placed_at_what_is_around_it() -> None:
    positions = Positions(parse_documents("a:\n  b: {c: 1}\n").items[0].place)

    assert positions.find("a.b.missing.deeper") == Position(2, 3)
    assert Positions().find("a") is None


# text -> what the user is told
BROKEN = {
    "duplicate key": ("a: 1\nb: 2\na: 3\n", ["3:1: a: the key 'a' is there already, in line 1"]),
    "duplicate key further in": (
        "x:\n- {k: 1, k: 2}\n",
        ["2:10: x[0].k: the key 'k' is there already, in line 2"],
    ),
    "duplicate key in JSON": ('{"a": 1,\n "a": 2}', ["2:2: a: the key 'a' is there already, in line 1"]),
    "tab": (
        "a:\n\tb: 1\n",
        [
            "2:1: invalid YAML: found character that cannot start any token; "
            "is it a tab? YAML indents with spaces; text that begins with @ ` or % needs quotes"
        ],
    ),
    "two colons": (
        "a: b: c",
        [
            "1:5: invalid YAML: mapping values are not allowed in this context; text with ': ' in it needs quotes"
        ],
    ),
    "open quote": (
        "a: 'x\n",
        [
            "2:1: invalid YAML: found unexpected end of stream (while scanning a quoted scalar, which began in "
            "line 1); is a closing quote or bracket missing?"
        ],
    ),
    "NUL": (
        "a: \0",
        ["1:4: a NUL byte is not allowed in YAML or JSON; remove it, or write it as an escape in quotes"],
    ),
    "number beyond all numbers": (
        '{"a": 1e308,\n "b": [-1e400]}',
        ["2:8: -1e400 is larger than any number can be; write it in quotes if it is text"],
    ),
    "lone surrogate": (
        "a: \ud800",
        [
            "1:4: the character U+D800 is not allowed in YAML or JSON; remove it, or write it as an escape in quotes"
        ],
    ),
    "not UTF-8": (b"a: 1\nb: \xe4\n", ["2:4: the byte 0xe4 is not UTF-8; save the file as UTF-8"]),
    "UTF-16": ("a: 1".encode("utf-16"), ["1:1: the text is UTF-16; save it as UTF-8"]),
    "alias without anchor": ("a: *b", ["1:4: a: the alias *b has no anchor &b before it"]),
    "alias in itself": ("a: &x [*x]", ["1:8: a[0]: the alias *x stands inside of what it repeats"]),
    "list as key": ("? [1]\n: 2\n", ["1:3: a key must be text, not an object or a list"]),
    "boolean as key": ("on: 1", ["1:1: on: YAML takes the key on for a boolean; put it in quotes"]),
    "no key": ("~: 1", ["1:1: ~: the key ~ is no text for YAML; put it in quotes"]),
    "python object": (
        "a: !!python/object/apply:os.system [x]",
        ["1:4: a: the tag tag:yaml.org,2002:python/object/apply:os.system is not supported; remove it"],
    ),
    "timestamp tag": (
        "a: !!timestamp 2024-01-01",
        ["1:4: a: the tag !!timestamp is not supported; use !!str, !!int, !!float, !!bool or none"],
    ),
    "merge of text": ("<<: x", ["1:1: << merges an object or a list of objects, nothing else"]),
    "half a character": (
        '{"a": "\\ud800"}',
        ["invalid JSON: a \\u escape is half of a character (a lone surrogate); write both halves"],
    ),
    "broken JSON": ('{"a": 1,\n "b" 2}', ["2:6: invalid JSON: Expecting ':' delimiter"]),
    "not a number": ("a: .nan", ["1:4: a: .nan is no number that JSON has; put it in quotes if it is text"]),
}


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_broken_text_is_answered_with_line_column_and_remedy(case: tuple[str | bytes, list[str]]) -> None:
    text, expected = case

    assert errors(text) == expected


def test_a_broken_document_does_not_hide_the_ones_after_it() -> None:
    documents = parse_documents("a: [1,\n---\nb: 2\n---\n\tc: 1\n---\nd: 4\n")

    assert [document.value for document in documents.items] == [{"b": 2}, {"d": 4}]
    assert [error.position and error.position.line for error in documents.errors] == [2, 5]


def test_json_is_read_as_json_with_tabs_escapes_and_surrogates() -> None:
    text = '{\n\t"a": "\\ud83d\\ude00",\n\t"b": [1, 2.5, null, true], "c": "\\/"}'

    assert values(text) == [{"a": "😀", "b": [1, 2.5, None, True], "c": "/"}]


def test_json_values_may_follow_each_other() -> None:
    assert values('{"a": 1}\n{"b": [2]} {"c": 3}\n') == [{"a": 1}, {"b": [2]}, {"c": 3}]


def test_flow_yaml_that_is_no_json_is_read_as_yaml() -> None:
    assert values("{a: 1, b: [x, y,]}") == [{"a": 1, "b": ["x", "y"]}]


@pytest.mark.parametrize("opening", ["[", "{a: ", '{"a":', "- "], ids=repr)
def test_nesting_is_bounded_without_a_crash(opening: str) -> None:
    [message] = errors(opening * 20_000)

    assert "nest" in message


def test_the_deepest_allowed_nesting_is_read() -> None:
    text = "[" * MAX_DEPTH + "]" * MAX_DEPTH

    assert json.dumps(values(text)[0]) == json.dumps(values(f"- {text[1:-1]}")[0]) == text


def test_aliases_that_expand_beyond_all_bounds_are_refused_at_once() -> None:
    laughs = "\n".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    [message] = errors(f"a: &a [x]\n{laughs}\n")

    assert "more than 500,000 values with all aliases expanded" in message


def test_many_documents_of_aliases_are_bounded_together() -> None:
    document = f"a: &a [{'x, ' * 500}]\nb: [{'*a, ' * 200}]\n"

    assert any("500,000 values" in message for message in errors("---\n".join([document] * 10)))


def test_a_text_beyond_the_size_limit_is_refused() -> None:
    [message] = errors(b" " * (MAX_BYTES + 1))

    assert message == "the text is larger than 8 MiB; split it into several files"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_any_json_object_is_read_as_json_reads_it(body: dict[str, Any]) -> None:
    assert values(json.dumps(body)) == [body]


@given(st.text() | st.text(alphabet=" \n\t-:[]{}&*!|>'\"%@`#,?ab1.~<="))
def test_no_text_raises(text: str) -> None:
    parse_documents(text)


@given(st.binary())
def test_no_bytes_raise(text: bytes) -> None:
    parse_documents(text)
