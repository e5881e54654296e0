from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.template.merge import EMPTY_MEANS_ABSENT, KeyedList, merge
from work import assert_linear

LISTS = {
    "merged": KeyedList(key="name"),
    "merged.inner": KeyedList(key="path"),
    "whole": KeyedList(key="name", replaces=True),
    "closed": KeyedList(key="name", adds=False),
    "equal": KeyedList(key=None),
}


def named(letters: str) -> list[dict[str, str]]:
    return [{"name": letter} for letter in letters]


# original, patch -> result; the peer's result, where it differs, puts what is new first (spec 01 section
# 5.3).
ORDER = {
    "what is new comes last": ("A B", "X", "A B X"),
    "what exists keeps its place": ("A B C", "B", "A B C"),
    "what is new after an existing element comes last": ("A B C", "B X", "A B C X"),
    "what is new before an existing element comes last": ("A B C", "X B", "A B C X"),
    "a patch in another order does not reorder": ("A B C", "C A", "A B C"),
    "what is new keeps the order of the patch": ("I D", "Y I X", "I D Y X"),
    "an empty list takes the order of the patch": ("", "B A", "B A"),
}


@pytest.mark.parametrize(("original", "patch", "result"), ORDER.values(), ids=ORDER)
def test_keyed_lists_keep_the_order_of_the_original_and_append(
    original: str, patch: str, result: str
) -> None:
    merged = merge(
        {"merged": named(original.replace(" ", ""))}, {"merged": named(patch.replace(" ", ""))}, LISTS
    )
    assert merged == {"merged": named(result.replace(" ", ""))}


MERGES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "maps merge key by key": (
        {"m": {"a": 1, "b": 1}},
        {"m": {"b": 2, "c": 2}},
        {"m": {"a": 1, "b": 2, "c": 2}},
    ),
    "a scalar is replaced": ({"a": 1}, {"a": 0}, {"a": 0}),
    "a list without a rule is replaced": ({"l": [1, 2]}, {"l": [3]}, {"l": [3]}),
    "null changes nothing": ({"a": 1}, {"a": None, "b": None}, {"a": 1}),
    "an empty list changes nothing": ({"l": [1]}, {"l": [], "new": []}, {"l": [1]}),
    "an empty map changes nothing": ({"labels": {"a": "1"}}, {"labels": {}}, {"labels": {"a": "1"}}),
    "an empty map of labels is not added": ({}, {"metadata": {"labels": {}}}, {}),
    "an empty map that means something is added": ({}, {"labelSelector": {}}, {"labelSelector": {}}),
    "elements with the same key merge": (
        {"merged": [{"name": "a", "x": 1, "y": 1}]},
        {"merged": [{"name": "a", "y": 2}]},
        {"merged": [{"name": "a", "x": 1, "y": 2}]},
    ),
    "lists inside elements merge by their own key": (
        {"merged": [{"name": "a", "inner": [{"path": "/p", "x": 1}]}]},
        {"merged": [{"name": "a", "inner": [{"path": "/q"}, {"path": "/p", "y": 1}]}]},
        {"merged": [{"name": "a", "inner": [{"path": "/p", "x": 1, "y": 1}, {"path": "/q"}]}]},
    ),
    "without a key only equal elements are the same": (
        {"equal": [{"name": "a", "x": 1}, {"name": "b"}]},
        {"equal": [{"name": "b"}, {"name": "a", "x": 2}]},
        {"equal": [{"name": "a", "x": 1}, {"name": "b"}, {"name": "a", "x": 2}]},
    ),
    "an element is replaced whole where the rule says so": (
        {"whole": [{"name": "a", "value": "1"}]},
        {"whole": [{"name": "a", "valueFrom": {"x": 1}}]},
        {"whole": [{"name": "a", "valueFrom": {"x": 1}}]},
    ),
    "an element with nothing but its key replaces nothing": (
        {"whole": [{"name": "a", "value": "1"}]},
        {"whole": [{"name": "a"}, {"name": "b"}]},
        {"whole": [{"name": "a", "value": "1"}, {"name": "b"}]},
    ),
    "nothing is added to a list that is closed": (
        {"closed": [{"name": "a"}]},
        {"closed": [{"name": "b", "x": 1}, {"name": "a", "x": 1}]},
        {"closed": [{"name": "a", "x": 1}]},
    ),
    "a map in place of something else replaces it": ({"m": [1]}, {"m": {"a": 1}}, {"m": {"a": 1}}),
}


@pytest.mark.parametrize(("original", "patch", "result"), MERGES.values(), ids=MERGES)
def test_merging(original: dict[str, Any], patch: dict[str, Any], result: dict[str, Any]) -> None:
    assert merge(original, patch, LISTS) == result


scalars = st.integers(0, 3) | st.sampled_from(["x", "y", ""]) | st.none()
elements = st.fixed_dictionaries(
    {"name": st.sampled_from("abc")},
    optional={"x": scalars, "inner": st.lists(st.fixed_dictionaries({"path": scalars}))},
)
objects = st.recursive(
    st.dictionaries(
        st.sampled_from(["merged", "whole", "closed"]), st.lists(elements, unique_by=lambda e: e["name"])
    ),
    lambda inner: st.dictionaries(
        st.sampled_from(["a", "b", "labels", "metadata"]), scalars | inner, max_size=3
    ),
    max_leaves=6,
)


@given(objects, objects)
def test_merging_changes_neither_argument(original: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy((original, patch))
    merge(original, patch, LISTS)
    assert (original, patch) == before


@given(objects, objects)
def test_merging_the_same_patch_again_changes_nothing(
    original: dict[str, Any], patch: dict[str, Any]
) -> None:
    once = merge(original, patch, LISTS)
    assert merge(once, patch, LISTS) == once


@given(objects)
def test_an_empty_patch_changes_nothing(original: dict[str, Any]) -> None:
    assert merge(original, {}, LISTS) == original


@given(objects)
def test_a_patch_never_brings_in_an_empty_map_that_says_nothing(patch: dict[str, Any]) -> None:
    def empty_maps(value: Any) -> list[str]:
        if isinstance(value, dict):
            here = [key for key, item in value.items() if item == {} and key in EMPTY_MEANS_ABSENT]
            return here + [found for item in value.values() for found in empty_maps(item)]
        return []  # elements of lists are taken as they are

    assert empty_maps(merge({}, patch, LISTS)) == []


@pytest.mark.parametrize("key", ["merged", "whole", "closed"])
def test_a_list_that_many_patches_add_to_takes_steps_in_proportion(key: str) -> None:
    def build(size: int) -> Callable[[], object]:
        original = {key: [{"name": f"o{i}"} for i in range(size)]}
        patch = {key: [{"name": f"{'po'[i % 2]}{i}", "x": 1} for i in range(size)]}
        return lambda: merge(original, patch, LISTS)

    assert_linear(build)
