from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from trainwright.render.canonical import canonicalize


def test_keys_are_sorted_and_lists_keep_their_order() -> None:
    assert list(canonicalize({"b": [3, 1, {"z": 1, "y": 2}], "a": 1})) == ["a", "b"]
    assert msgspec.json.encode(canonicalize({"b": [3, 1, {"z": 1, "y": 2}], "a": 1})) == (
        b'{"a":1,"b":[3,1,{"y":2,"z":1}]}'
    )


def test_null_and_empty_maps_go_and_what_means_something_stays() -> None:
    assert canonicalize(
        {
            "metadata": {"labels": {}, "annotations": None},
            "volumes": [{"name": "v", "emptyDir": {}}],
            "affinity": {"podAffinity": {"required": [{"labelSelector": {}}]}, "nodeAffinity": {}},
            "args": [],
            "value": "",
            "parallelism": 0,
            "resources": {"limits": {}},
        }
    ) == {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "affinity": {"podAffinity": {"required": [{"labelSelector": {}}]}},
        "args": [],
        "value": "",
        "parallelism": 0,
    }


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["metadata", "labels", "emptyDir", "a", "b"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(values)
def test_the_canonical_form_of_the_canonical_form_is_itself(value: Any) -> None:
    once = canonicalize(value)
    assert msgspec.json.encode(canonicalize(once)) == msgspec.json.encode(once)


def shuffle(value: Any, random: Any) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        random.shuffle(keys)
        return {key: shuffle(value[key], random) for key in keys}
    return [shuffle(item, random) for item in value] if isinstance(value, list) else value


@given(values, st.randoms())
def test_the_order_in_which_keys_were_written_does_not_matter(value: Any, random: Any) -> None:
    assert msgspec.json.encode(canonicalize(shuffle(value, random))) == msgspec.json.encode(
        canonicalize(value)
    )
