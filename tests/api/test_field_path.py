"""Paths are written as users know them, and read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.field_path import Key, Path, Token, build_path_text, parse_path

PATHS: dict[str, list[Token]] = {
    "": [],
    "spec": ["spec"],
    "spec.trainer.env[2].name": ["spec", "trainer", "env", 2, "name"],
    "metadata.labels[app.kubernetes.io/name]": ["metadata", "labels", Key("app.kubernetes.io/name")],
    "spec.replicatedJobs[name=node].template": ["spec", "replicatedJobs", Key("name=node"), "template"],
    "[3].kind": [3, "kind"],
}


@pytest.mark.parametrize("text", PATHS, ids=repr)
def test_a_path_is_written_and_read_back(text: str) -> None:
    assert build_path_text(PATHS[text]) == text
    assert parse_path(text) == PATHS[text]
    assert [type(token) for token in parse_path(text)] == [type(token) for token in PATHS[text]]


def test_a_linked_path_is_its_steps_in_order() -> None:
    path = Path(Path(Path(None, "limits"), Key("nvidia.com/gpu")), 0)

    assert str(path) == "limits[nvidia.com/gpu][0]"


@given(st.text(max_size=60))
def test_any_text_can_be_taken_for_a_path(text: str) -> None:
    assert isinstance(parse_path(text), list)
