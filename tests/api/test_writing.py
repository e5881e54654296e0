"""What is written reads back to the same, and looks as people want it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.documents import parse_documents
from trainwright.api.writing import build_document, build_yaml

OBJECT = {
    "status": {"phase": "Running"},
    "spec": {"b": 1, "a": ["x", {"c": "on"}], "script": "import os\nprint(1)\n", "empty": {}, "none": []},
    "kind": "TrainJob",
    "metadata": {"labels": {"a": "1e3"}, "uid": "u", "name": "demo"},
    "apiVersion": "v1",
}


def test_yaml_has_the_fields_people_look_for_first_and_text_as_blocks() -> None:
    assert (
        build_yaml([OBJECT, {"kind": "B", "apiVersion": "v1"}])
        == """\
apiVersion: v1
kind: TrainJob
metadata:
  name: demo
  labels:
    a: '1e3'
  uid: u
spec:
  b: 1
  a:
  - x
  - c: 'on'
  script: |
    import os
    print(1)
  empty: {}
  none: []
status:
  phase: Running
---
apiVersion: v1
kind: B
"""
    )


def test_a_document_by_itself_keeps_the_order_of_its_fields() -> None:
    assert build_document({"kind": "B", "apiVersion": "v1"}) == "kind: B\napiVersion: v1\n"


def test_what_any_reader_might_take_for_something_else_is_quoted() -> None:
    words = ["1e3", "yes", "y", "on", "007", "0o7", "0x1F", "1.", "null", "12:30", "1_000", "a: b"]

    assert build_document({"args": [*words, "plain"], "env": []}) == (
        "args:\n" + "".join(f"- '{word}'\n" for word in words) + "- plain\nenv: []\n"
    )


def test_equal_parts_are_written_twice_not_as_aliases() -> None:
    part = {"a": "b"}

    assert build_yaml([{"p": part, "q": part}]) == "p:\n  a: b\nq:\n  a: b\n"


def test_nothing_is_written_as_nothing() -> None:
    assert build_yaml([]) == ""


@pytest.mark.parametrize("text", ["a\nb\n", " a\n  b\n", "\n\na\n", "a \nb", "a\t\nb\n", "\t\n"])
def test_lines_are_read_back_by_others_as_they_were(text: str) -> None:
    assert yaml.safe_load(build_document({"run": text})) == {"run": text}


texts = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\n\t ")) | st.sampled_from(
    [
        "on",
        "y",
        "1e3",
        "0644",
        "null",
        "~",
        "<<",
        "2024-01-01",
        "12:30",
        "1_000",
        "- a",
        "a: b",
        "# x",
        "'",
        "\\",
        " x ",
    ]
)
bodies = st.recursive(
    texts | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=15,
)


@given(st.lists(st.dictionaries(texts, bodies, min_size=1, max_size=4), min_size=1, max_size=3))
def test_what_is_written_reads_back_to_the_same(objects: list[dict[str, Any]]) -> None:
    written = build_yaml(objects)
    assert list(yaml.safe_load_all(written)) == objects
    documents = parse_documents(written)
    assert [str(error) for error in documents.errors] == []
    assert [str(error) for document in documents.items for error in document.errors] == []
    assert [document.value for document in documents.items] == objects
