"""What replicated jobs wait for, and that they stand after it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template.builders import replicated_job
from trainwright.api.meta import Json
from trainwright.frameworks.contract import Contribution, PodAddition
from trainwright.render.dependencies import add_dependencies, order_by_dependency

READY = {"name": "node", "status": "Ready"}
COMPLETE = {"name": "node", "status": "Complete"}
MODEL = {"name": "model-initializer", "status": "Complete"}
AFTER_NODE = Contribution(pods={"launcher": PodAddition(starts_after=("node",))})

DEPENDENCIES = {
    "none yet": (None, [READY]),
    "another one": ([MODEL], [MODEL, READY]),
    "the runtime says how": ([COMPLETE], [COMPLETE]),
}


@pytest.mark.parametrize(("said", "expected"), DEPENDENCIES.values(), ids=DEPENDENCIES)
def test_dependencies_are_added_where_the_runtime_has_none(said: list | None, expected: list) -> None:
    before = replicated_job("launcher", **({"dependsOn": said} if said else {}))
    assert add_dependencies(before, AFTER_NODE) == {**before, "dependsOn": expected}


def test_other_replicated_jobs_wait_for_nothing() -> None:
    node = replicated_job("node")
    assert add_dependencies(node, AFTER_NODE) is node


def job(name: str, *needs: str) -> Json:
    return {"name": name, "dependsOn": [{"name": need, "status": "Ready"} for need in needs]}


ORDERS = {
    "in order already": (["a", "b"], {"b": ["a"]}, ["a", "b"]),
    "the launcher first": (["launcher", "node"], {"launcher": ["node"]}, ["node", "launcher"]),
    "what needs nothing keeps its place": (["c", "a", "b"], {"a": ["b"]}, ["c", "b", "a"]),
    "a chain": (["a", "b", "c"], {"a": ["b"], "b": ["c"]}, ["c", "b", "a"]),
    "one that is not there": (["a", "b"], {"a": ["ghost"]}, ["a", "b"]),
    "a circle": (["a", "b"], {"a": ["b"], "b": ["a"]}, ["a", "b"]),
}


@pytest.mark.parametrize(("names", "needs", "expected"), ORDERS.values(), ids=ORDERS)
def test_order(names: list[str], needs: dict[str, list[str]], expected: list[str]) -> None:
    jobs = [job(name, *needs.get(name, ())) for name in names]
    ordered = order_by_dependency(jobs)
    assert [found["name"] for found in ordered] == expected
    assert all(found in jobs for found in ordered)


@given(st.data(), st.permutations("abcdef"))
def test_every_job_stands_after_what_it_needs(data: st.DataObject, names: list[str]) -> None:
    # Needs go one way in the alphabet, so there is no circle.
    jobs = [
        job(name, *data.draw(st.sets(st.sampled_from([n for n in "abcdef" if n < name] or ["x"]))))
        for name in names
    ]
    ordered = order_by_dependency(jobs)
    assert sorted(found["name"] for found in ordered) == sorted(names)
    for i, found in enumerate(ordered):
        before = {other["name"] for other in ordered[:i]}
        assert {need["name"] for need in found["dependsOn"]} - {"x"} <= before
