"""Which fields an object has, by path."""

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.local.field_paths import (
    build_leaves,
    format_path,
    remove_paths,
    split_elements,
)

OBJECT = {
    "spec": {
        "suspend": True,
        "nodes": 1,
        "args": ["a", "b"],
        "selector": {},
        "containers": [{"name": "node", "ports": [{"containerPort": 29500}]}],
    }
}


def test_leaves_are_scalars_whole_lists_empty_maps_and_keyed_elements():
    assert build_leaves(OBJECT) == {
        ("spec", "suspend"): b"true",
        ("spec", "nodes"): b"1",
        ("spec", "args"): b'["a","b"]',
        ("spec", "selector"): b"{}",
        ("spec", "containers", "[name=node]"): b"",
        ("spec", "containers", "[name=node]", "name"): b'"node"',
        ("spec", "containers", "[name=node]", "ports", "[containerPort=29500,protocol=TCP]"): b"",
        (
            "spec",
            "containers",
            "[name=node]",
            "ports",
            "[containerPort=29500,protocol=TCP]",
            "containerPort",
        ): b"29500",
    }


def test_a_path_is_written_as_users_know_it():
    assert format_path(("spec", "containers", "[name=node]", "image")) == "spec.containers[name=node].image"


def test_a_list_with_a_repeated_or_missing_key_is_no_keyed_list():
    assert split_elements("env", [{"name": "A"}, {"name": "A"}]) is None
    assert split_elements("env", [{"name": "A"}, {"value": "b"}]) is None
    assert split_elements("env", ["A"]) is None
    assert split_elements("args", [{"name": "A"}]) is None


def test_removing_a_leaf_removes_the_maps_it_leaves_empty():
    value = {"metadata": {"labels": {"a": "1"}}, "spec": {"x": 1}}
    assert remove_paths(value, [("metadata", "labels", "a")], frozenset()) == {"spec": {"x": 1}}


def test_an_element_that_somebody_keeps_a_field_of_stays_with_its_key():
    value = {"env": [{"name": "A", "value": "1"}, {"name": "B"}]}
    doomed = [
        ("env", "[name=A]"),
        ("env", "[name=A]", "name"),
        ("env", "[name=B]"),
        ("env", "[name=B]", "name"),
    ]
    kept = frozenset({("env", "[name=A]", "value")})
    assert remove_paths(value, doomed, kept) == {"env": [{"name": "A", "value": "1"}]}


def test_an_empty_map_that_was_filled_since_is_not_removed():
    assert remove_paths({"labels": {"a": "1"}}, [("labels",)], frozenset()) == {"labels": {"a": "1"}}


field_names = st.sampled_from(["a", "b", "env", "", "volumes"])
elements = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("xyz")}, optional={"value": st.integers(0, 2)}), max_size=3
)
objects = st.recursive(
    st.dictionaries(field_names, st.integers(0, 2) | elements, max_size=3),
    lambda below: st.dictionaries(field_names, below | st.integers(0, 2) | elements, max_size=3),
    max_leaves=6,
)


@given(objects)
def test_removing_every_leaf_leaves_nothing(value):
    assert remove_paths(value, build_leaves(value), frozenset()) == {}


@given(objects, st.randoms(use_true_random=False))
def test_what_is_kept_is_not_removed(value, random):
    leaves = build_leaves(value)
    kept = frozenset(path for path in leaves if random.random() < 0.5)
    left = build_leaves(remove_paths(value, leaves.keys() - kept, kept))
    assert {path: value for path, value in left.items() if path in kept} == {p: leaves[p] for p in kept}
