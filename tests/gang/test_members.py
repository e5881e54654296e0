"""Which pods are held back until all of them are there."""

from __future__ import annotations

import pytest

from template.builders import replicated_job
from trainwright.api.meta import Json
from trainwright.gang import find_members


def after(*others: tuple[str, str]) -> list[Json]:
    return [{"name": name, "status": status} for name, status in others]


def counted(name: str, pods: int = 1, **fields: object) -> Json:
    return replicated_job(name, job={"parallelism": pods, "completions": pods}, **fields)


INITIALIZERS = (counted("dataset-initializer"), counted("model-initializer"))
AFTER_INITIALIZERS = after(("dataset-initializer", "Complete"), ("model-initializer", "Complete"))

# The JobSet spec; the trainer; who starts together, with pods; who joins later, with pods.
CASES: dict[str, tuple[Json, str | None, dict[str, int], dict[str, int]]] = {
    "one replicated job": ({"replicatedJobs": [counted("node", 3)]}, "node", {"node": 3}, {}),
    "without dependencies everything starts together": (
        {"replicatedJobs": [*INITIALIZERS, counted("node", 2)]},
        "node",
        {"dataset-initializer": 1, "model-initializer": 1, "node": 2},
        {},
    ),
    "initializers that must be complete are no part of it": (
        {"replicatedJobs": [*INITIALIZERS, counted("node", 2, dependsOn=AFTER_INITIALIZERS)]},
        "node",
        {"node": 2},
        {},
    ),
    "an MPI launcher joins the nodes that it waits for": (
        {"replicatedJobs": [counted("node", 4), counted("launcher", dependsOn=after(("node", "Ready")))]},
        "launcher",
        {"node": 4},
        {"launcher": 1},
    ),
    "dependencies are followed to their beginning": (
        {
            "replicatedJobs": [
                counted("dataset-initializer"),
                counted("node", 4, dependsOn=after(("dataset-initializer", "Complete"))),
                counted("launcher", dependsOn=after(("node", "Ready"))),
                counted("report", dependsOn=after(("launcher", "Complete"))),
            ]
        },
        "launcher",
        {"node": 4},
        {"launcher": 1},
    ),
    "what waits for a step that is ready is of that step's time": (
        {
            "replicatedJobs": [
                counted("cache", 2),
                counted("prepare", dependsOn=after(("cache", "Complete"))),
                counted("node", 2, dependsOn=after(("cache", "Ready"))),
            ]
        },
        "node",
        {"cache": 2},
        {"node": 2},
    ),
    "a step that runs beside everything is not of a later phase": (
        {
            "replicatedJobs": [
                counted("monitor"),
                counted("dataset-initializer"),
                counted("node", 2, dependsOn=after(("dataset-initializer", "Complete"))),
            ]
        },
        "node",
        {"node": 2},
        {},
    ),
    "in order, each joins the one before": (
        {
            "replicatedJobs": [counted("a", 1), counted("b", 2), counted("node", 3)],
            "startupPolicy": {"startupPolicyOrder": "InOrder"},
        },
        "node",
        {"a": 1},
        {"b": 2, "node": 3},
    ),
    "any order is no order": (
        {
            "replicatedJobs": [counted("a", 1), counted("node", 3)],
            "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
        },
        "node",
        {"a": 1, "node": 3},
        {},
    ),
    "replicas of a replicated job are counted": (
        {"replicatedJobs": [counted("node", 2), counted("ps", 3, replicas=4)]},
        "node",
        {"node": 2, "ps": 12},
        {},
    ),
    "one without replicas, or without pods, is none": (
        {"replicatedJobs": [counted("node", 0), counted("ps", 3, replicas=0), counted("other")]},
        "node",
        {"other": 1},
        {},
    ),
    "who waits for one without pods does not wait": (
        {"replicatedJobs": [counted("node", 0), counted("launcher", dependsOn=after(("node", "Ready")))]},
        "launcher",
        {"launcher": 1},
        {},
    ),
    "no more pods than there are completions run at a time": (
        {"replicatedJobs": [replicated_job("node", job={"parallelism": 4, "completions": 2})]},
        "node",
        {"node": 2},
        {},
    ),
    "an index at a time": (
        {"replicatedJobs": [replicated_job("node", job={"parallelism": 2, "completions": 6})]},
        "node",
        {"node": 2},
        {},
    ),
    "without a trainer the last phase counts": (
        {"replicatedJobs": [counted("a"), counted("b", 2, dependsOn=after(("a", "Complete")))]},
        None,
        {"b": 2},
        {},
    ),
    "nothing": ({}, None, {}, {}),
}


@pytest.mark.parametrize(("spec", "trainer", "first", "later"), CASES.values(), ids=CASES)
def test_who_is_placed_together(
    spec: Json, trainer: str | None, first: dict[str, int], later: dict[str, int]
) -> None:
    members = find_members(spec, trainer)
    assert {member.name: member.pods for member in members.first} == first
    assert {member.name: member.pods for member in members.later} == later
    assert members.count == sum(first.values())
    assert members.names == first.keys() | later.keys()


@pytest.mark.parametrize(("enough", "counted_nodes"), [(None, 4), (2, 2), (4, 4), (9, 4)])
def test_of_a_trainer_only_as_many_pods_count_as_training_may_begin_with(
    enough: int | None, counted_nodes: int
) -> None:
    spec = {"replicatedJobs": [counted("node", 2, replicas=2), counted("side", 3, ancestor=None)]}
    members = find_members(spec, "node", enough)
    assert {member.name: member.pods for member in members.first} == {"node": counted_nodes, "side": 3}
