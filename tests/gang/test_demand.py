"""What pods ask for, against the table of the specification and a count by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template.builders import container
from trainwright.api.meta import Json
from trainwright.api.quantity import parse_quantity
from trainwright.gang.demand import sum_demand, sum_pod_requests
from trainwright.gang.members import Member


def asking(name: str = "node", /, limits: Json | None = None, **requests: Any) -> Json:
    resources: Json = {"requests": requests} if requests else {}
    return container(name, resources=resources | ({"limits": limits} if limits else {}))


def sidecar(name: str, **requests: Any) -> Json:
    return {**asking(name, **requests), "restartPolicy": "Always"}


def member(pods: int, *containers: Json, **pod: Any) -> Member:
    return Member(name="node", pods=pods, pod_spec={"containers": list(containers), **pod})


# Members, and what they ask for together. The first rows are those of spec 02 section 11.1.
CASES: dict[str, tuple[list[Member], dict[str, str]]] = {
    "nothing": ([member(1, asking())], {}),
    "two nodes": ([member(2, asking(cpu="500m", memory="1Gi"))], {"cpu": "1", "memory": "2Gi"}),
    "two nodes and an initializer": (
        [member(2, asking(cpu="500m", memory="1Gi")), member(1, asking(cpu="250m", memory="512Mi"))],
        {"cpu": "1250m", "memory": "2560Mi"},
    ),
    "thirty nodes and two initializers": (
        [member(30, asking(cpu=1)), member(1, asking(cpu=1)), member(1, asking(cpu="1"))],
        {"cpu": "32"},
    ),
    "a hundred nodes and two initializers": (
        [
            member(100, asking(cpu=2, memory="8Gi")),
            member(1, asking(cpu=1, memory="4Gi")),
            member(1, asking(cpu=1, memory="4Gi")),
        ],
        {"cpu": "202", "memory": "808Gi"},
    ),
    "a launcher and its workers": (
        [member(1, asking(cpu="300m", memory="1Gi")), member(4, asking(cpu="500m", memory="512Mi"))],
        {"cpu": "2300m", "memory": "3Gi"},
    ),
    "containers of a pod are added": (
        [member(2, asking(cpu="10"), asking("side", cpu="500m", memory="1Gi"))],
        {"cpu": "21", "memory": "2Gi"},
    ),
    "an init container counts where it asks for more": (
        [member(2, asking(cpu=1, memory="1Gi"), initContainers=[asking("prep", cpu=3)])],
        {"cpu": "6", "memory": "2Gi"},
    ),
    "a sidecar runs beside the containers": (
        [member(1, asking(cpu=10), initContainers=[sidecar("side", cpu=5)])],
        {"cpu": "15"},
    ),
    "a sidecar runs beside the init containers after it, not before it": (
        [
            member(
                1,
                asking(cpu=1),
                initContainers=[asking("a", cpu=6), sidecar("side", cpu=2), asking("b", cpu=5)],
            )
        ],
        {"cpu": "7"},
    ),
    "overhead of the template": (
        [member(2, asking(cpu=1), overhead={"cpu": "250m", "memory": "100Mi"})],
        {"cpu": "2500m", "memory": "200Mi"},
    ),
    "a limit alone is a request": (
        [member(2, asking(limits={"nvidia.com/gpu": 4}, cpu=1))],
        {"cpu": "2", "nvidia.com/gpu": "8"},
    ),
    "a request beside its limit counts": (
        [member(1, asking(limits={"cpu": 8}, cpu=2))],
        {"cpu": "2"},
    ),
    "what the pod as a whole asks for takes the place of its containers' sum": (
        [
            member(
                2,
                asking(limits={"nvidia.com/gpu": 1}, cpu=1, memory="1Gi"),
                resources={"requests": {"cpu": "4"}, "limits": {"cpu": "6", "memory": "3Gi"}},
                overhead={"cpu": "1"},
            )
        ],
        {"cpu": "10", "memory": "2Gi", "nvidia.com/gpu": "2"},
    ),
    "a limit of the pod is a request where no container has one": (
        [member(1, asking(cpu=1), resources={"limits": {"cpu": "6", "memory": "3Gi"}})],
        {"cpu": "1", "memory": "3Gi"},
    ),
    "no containers at all": ([Member(name="node", pods=3, pod_spec={})], {}),
}


@pytest.mark.parametrize(("members", "demand"), CASES.values(), ids=CASES)
def test_demand(members: list[Member], demand: dict[str, str]) -> None:
    assert sum_demand(members) == demand


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.integers(0, 9), max_size=3
)
pods = st.fixed_dictionaries(
    {
        "containers": st.lists(amounts, min_size=1, max_size=3),
        "init": st.lists(st.tuples(amounts, st.booleans()), max_size=3),
        "overhead": amounts,
    }
)


def count_by_hand(pod: Json, resource: str) -> int:
    """Walk through the life of a pod and return the most that it uses at any moment."""
    used = most = 0
    for requests, stays in pod["init"]:
        most = max(most, used + requests.get(resource, 0))
        if stays:
            used += requests.get(resource, 0)
    used += sum(requests.get(resource, 0) for requests in pod["containers"])
    return max(most, used) + int(pod["overhead"].get(resource, 0))


@given(gang=st.lists(st.tuples(pods, st.integers(0, 5)), max_size=3))
def test_a_gang_asks_for_the_most_that_each_of_its_pods_uses_at_any_moment(
    gang: list[tuple[Json, int]],
) -> None:
    members = [
        member(
            count,
            *(asking(f"c{i}", **requests) for i, requests in enumerate(pod["containers"])),
            initContainers=[
                (sidecar if stays else asking)(f"i{i}", **requests)
                for i, (requests, stays) in enumerate(pod["init"])
            ],
            overhead=pod["overhead"],
        )
        for pod, count in gang
    ]
    demand = sum_demand(members)
    for resource in ("cpu", "memory", "example.com/gpu"):
        expected = sum(count_by_hand(pod, resource) * count for pod, count in gang)
        assert parse_quantity(demand.get(resource, 0)) == parse_quantity(expected)


def test_reading_a_pod_does_not_change_it() -> None:
    pod = {"containers": [asking(cpu="1")], "overhead": {"cpu": "1"}}
    sum_pod_requests(pod)
    assert pod == {"containers": [asking(cpu="1")], "overhead": {"cpu": "1"}}
