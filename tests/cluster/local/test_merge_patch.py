"""The examples of RFC 7386, and what must hold for any patch."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.local.merge_patch import merge_patch

# RFC 7386, appendix A, as far as the patch is an object.
EXAMPLES = {
    "replace": ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    "add": ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    "remove the only one": ({"a": "b"}, {"a": None}, {}),
    "remove one of two": ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    "list by text": ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    "text by list": ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    "below": ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    "list of maps": ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    "null stays null": ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    "no map before": (["a", "b"], {"a": "b"}, {"a": "b"}),
    "nulls in what is new": ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
}

names = st.sampled_from("abc")
values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.text("xy", max_size=2),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(names, below, max_size=3),
    max_leaves=8,
)
maps = st.dictionaries(names, values, max_size=3)


@pytest.mark.parametrize(("target", "patch", "result"), EXAMPLES.values(), ids=EXAMPLES)
def test_the_examples_of_the_standard_hold(target, patch, result):
    assert merge_patch(target, patch) == result


@given(maps, maps)
def test_a_patch_is_idempotent_and_changes_neither_argument(target, patch):
    target_before, patch_before = copy.deepcopy(target), copy.deepcopy(patch)
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert (target, patch) == (target_before, patch_before)
