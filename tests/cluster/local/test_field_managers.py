"""Server-side apply as a pure function."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.local.field_managers import (
    FieldManagers,
    apply_configuration,
    decode_managers,
    encode_managers,
    record_update,
)
from trainwright.errors import Conflict


def job(spec, **metadata):
    return {"apiVersion": "v1", "kind": "TrainJob", "metadata": {"name": "j", **metadata}, "spec": spec}


def apply_all(*steps, force=True):
    """Apply (manager, configuration) one after the other; return object and managers."""
    live = managers = None
    for manager, configuration in steps:
        applied = apply_configuration(live, managers, configuration, manager, force)
        live, managers = applied.object, applied.managers
    return live, managers


def env(*names):
    return [{"name": name, "value": name.lower()} for name in names]


def test_the_order_of_a_keyed_list_is_that_of_the_configuration():
    live, _ = apply_all(("a", job({"env": env("B", "A")})), ("a", job({"env": env("A", "C", "B")})))
    assert [e["name"] for e in live["spec"]["env"]] == ["A", "C", "B"]


def test_elements_of_others_keep_their_place():
    live, _ = apply_all(
        ("a", job({"env": env("A", "B")})),
        ("b", job({"env": env("X", "B")})),
        ("a", job({"env": env("A", "B")})),
    )
    assert [e["name"] for e in live["spec"]["env"]] == ["A", "X", "B"]


def test_managers_that_apply_in_turn_change_nothing():
    first, second = job({"env": env("A", "B")}), job({"env": env("C", "B")})
    live, managers = apply_all(("a", first), ("b", second))
    again = apply_configuration(live, managers, first, "a", False)
    assert (again.object, again.managers) == (live, managers)
    again = apply_configuration(live, managers, second, "b", False)
    assert (again.object, again.managers) == (live, managers)


def test_null_in_a_configuration_is_absence():
    live, _ = apply_all(("a", job({"x": 1, "y": None})))
    assert live["spec"] == {"x": 1}
    live, _ = apply_all(("a", job({"x": 1, "y": 2})), ("a", job({"x": 1, "y": None})))
    assert live["spec"] == {"x": 1}


def test_a_map_that_loses_its_last_field_goes_away():
    live, _ = apply_all(("a", job({"x": 1}, labels={"l": "1"})), ("a", job({"x": 1})))
    assert "labels" not in live["metadata"]


def test_a_map_that_is_applied_empty_stays():
    live, _ = apply_all(("a", job({"emptyDir": {}})), ("a", job({"emptyDir": {}})))
    assert live["spec"] == {"emptyDir": {}}


def test_filling_a_map_that_another_manager_left_empty_is_no_conflict():
    live, _ = apply_all(("a", job({"m": {}})), ("b", job({"m": {"x": 1}})), force=False)
    assert live["spec"] == {"m": {"x": 1}}


def test_a_scalar_that_becomes_a_map_conflicts():
    with pytest.raises(Conflict, match=r"spec\.m \(set by 'a'\)"):
        apply_all(("a", job({"m": 1})), ("b", job({"m": {"x": 1}})), force=False)


def test_a_conflict_names_every_owner_and_field():
    live, managers = apply_all(("a", job({"x": 1, "y": 1})), ("b", job({"z": 1})))
    with pytest.raises(Conflict) as refused:
        apply_configuration(live, managers, job({"x": 2, "y": 2, "z": 2}), "c", False)
    assert str(refused.value) == (
        "applying TrainJob 'j' as 'c' would change fields of others: spec.x, spec.y (set by 'a'); "
        "spec.z (set by 'b'); leave them out, set them to the same values, or force the apply to take them "
        "over"
    )


def test_what_a_patch_changed_belongs_to_no_manager_afterwards():
    live, managers = apply_all(("a", job({"x": 1, "y": 1})))
    patched = job({"x": 2, "y": 1})
    managers = record_update(managers, live, patched)
    assert managers == FieldManagers(
        applied={"a": frozenset({("spec", "y")})}, updated=frozenset({("spec", "x")})
    )
    applied = apply_configuration(patched, managers, job({"y": 1}), "a", False)
    assert applied.object["spec"] == {"x": 2, "y": 1}


def test_an_element_whose_value_was_patched_keeps_its_name_when_its_manager_leaves_it():
    live, managers = apply_all(("a", job({"x": 1, "env": env("A")})))
    patched = job({"x": 1, "env": [{"name": "A", "value": "patched"}]})
    managers = record_update(managers, live, patched)
    applied = apply_configuration(patched, managers, job({"x": 1}), "a", False)
    assert applied.object["spec"]["env"] == [{"name": "A", "value": "patched"}]


def test_status_and_metadata_of_the_store_belong_to_nobody():
    _, managers = apply_all(
        ("a", {**job({"x": 1}, uid="u", resourceVersion="3"), "status": {"phase": "Running"}})
    )
    assert managers.applied == {"a": frozenset({("spec", "x")})}


names = st.sampled_from(["x", "y", "env", ""])
env_lists = st.lists(st.sampled_from("ABC"), unique=True, max_size=3).map(lambda chosen: env(*chosen))
specs = st.dictionaries(
    names, st.integers(0, 2) | env_lists | st.dictionaries(names, st.integers(0, 2), max_size=2), max_size=3
)
histories = st.lists(st.tuples(st.sampled_from("ab"), specs.map(job)), min_size=1, max_size=5)


@given(histories)
def test_an_apply_is_idempotent(steps):
    live, managers = apply_all(*steps)
    manager, configuration = steps[-1]
    again = apply_configuration(live, managers, configuration, manager, False)
    assert (again.object, again.managers) == (live, managers)


@given(histories)
def test_what_the_last_manager_applied_is_there(steps):
    live, _ = apply_all(*steps)
    _, configuration = steps[-1]
    for name, value in configuration["spec"].items():
        if isinstance(value, int):
            assert live["spec"][name] == value


@given(histories)
def test_the_record_of_managers_survives_encoding(steps):
    _, managers = apply_all(*steps)
    assert decode_managers(encode_managers(managers)) == managers


@given(st.lists(specs.map(job), min_size=1, max_size=5))
def test_a_single_manager_ends_with_what_it_applied_last(configurations):
    live, _ = apply_all(*(("a", configuration) for configuration in configurations))
    expected = dict(configurations[-1]["spec"])
    assert live.get("spec", {}) == expected
