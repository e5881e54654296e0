from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template.builders import PLAIN, TORCH, container, pod_patch, replicated_job, runtime_spec, train_job
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import MLPolicy, RuntimeSpec
from trainwright.api.trainjob import Trainer
from trainwright.template.layout import build_layout
from trainwright.template.pod_sets import (
    PodSet,
    build_endpoint,
    build_pod_sets,
    build_subdomain,
    iterate_endpoints,
)

# Given a runtime and numNodes -> (count, completions) of each pod set (spec 02 section 2.5).
COUNTS: dict[str, tuple[RuntimeSpec, int | None, list[tuple[int, int | None]]]] = {
    "unlabelled, parallelism unset": (runtime_spec(replicated_job(ancestor=None)), None, [(1, 1)]),
    "unlabelled, parallelism set": (
        runtime_spec(replicated_job(ancestor=None, job={"parallelism": 3})),
        None,
        [(3, 3)],
    ),
    "unlabelled, parallelism zero": (
        runtime_spec(replicated_job(ancestor=None, job={"parallelism": 0})),
        None,
        [(1, 1)],
    ),
    "unlabelled, more completions than pods at a time": (
        runtime_spec(replicated_job(ancestor=None, job={"parallelism": 2, "completions": 8})),
        None,
        [(2, 8)],
    ),
    "unlabelled, no indexes": (
        runtime_spec(replicated_job(ancestor=None, job={"parallelism": 2, "completionMode": "NonIndexed"})),
        None,
        [(2, None)],
    ),
    "initializer": (runtime_spec(replicated_job("d", ancestor="dataset-initializer")), 4, [(1, 1)]),
    "trainer without a policy": (
        runtime_spec(replicated_job(job={"parallelism": 3}), policy=None),
        None,
        [(3, 3)],
    ),
    "trainer without a policy, numNodes of the TrainJob": (
        runtime_spec(replicated_job(job={"parallelism": 3}), policy=None),
        5,
        [(5, 5)],
    ),
    "trainer with a policy ignores the template's parallelism": (
        runtime_spec(replicated_job(job={"parallelism": 3, "completions": 9}), policy=MLPolicy(num_nodes=2)),
        None,
        [(2, 2)],
    ),
    "policy without numNodes": (runtime_spec(policy=MLPolicy()), None, [(1, 1)]),
    "policy with numNodes below one": (runtime_spec(policy=MLPolicy(num_nodes=0)), None, [(1, 1)]),
    "numNodes of the TrainJob wins": (runtime_spec(policy=MLPolicy(num_nodes=100)), 200, [(200, 200)]),
    "numNodes goes to the first trainer step only": (
        runtime_spec(replicated_job(), replicated_job("more"), policy=MLPolicy(num_nodes=2)),
        3,
        [(3, 3), (2, 2)],
    ),
    "numNodes without a trainer step is ignored": (
        runtime_spec(replicated_job(ancestor=None), policy=MLPolicy(num_nodes=4)),
        3,
        [(1, 1)],
    ),
}


@pytest.mark.parametrize(("runtime", "num_nodes", "counts"), COUNTS.values(), ids=COUNTS)
def test_counts(runtime: RuntimeSpec, num_nodes: int | None, counts: list[tuple[int, int | None]]) -> None:
    pod_sets = build_pod_sets(runtime, train_job(Trainer(num_nodes=num_nodes)))
    assert [(p.count, p.completions) for p in pod_sets] == counts


def test_pod_sets_hold_what_patches_and_resources_make_of_the_template() -> None:
    jobs = (replicated_job("setup", ancestor=None, replicas=3), replicated_job(replicas=2))
    job = train_job(
        Trainer(num_nodes=2, resources_per_node=ResourceRequirements(limits={"cpu": 2})),
        runtime_patches=[pod_patch({"serviceAccountName": "sa"})],
    )
    assert build_pod_sets(runtime_spec(*jobs), job) == (
        PodSet(
            name="setup",
            ancestor=None,
            replicas=3,
            count=1,
            completions=1,
            pod_spec={"containers": [container()]},
        ),
        PodSet(
            name="node",
            ancestor="trainer",
            replicas=1,
            count=2,
            completions=2,
            pod_spec={
                "containers": [container(resources={"limits": {"cpu": 2}})],
                "serviceAccountName": "sa",
            },
        ),
    )


def test_the_trainer_pod_set_is_the_first_with_that_ancestor() -> None:
    jobs = (replicated_job("x", ancestor=None), replicated_job("a"), replicated_job("b"))
    layout = build_layout(train_job(), runtime_spec(*jobs))
    assert layout.trainer_pod_set == layout.pod_sets[1]
    assert build_layout(train_job(), runtime_spec(jobs[0])).trainer_pod_set is None


def test_containers_are_found_before_init_containers_of_the_same_name() -> None:
    pod = {"initContainers": [container("side", image="init"), container("prep")]}
    (pod_set,) = build_pod_sets(runtime_spec(replicated_job("n", container("side"), pod=pod)), train_job())
    assert pod_set.find_container("side") == container("side")
    assert pod_set.find_container("prep") == container("prep")
    assert pod_set.find_container("ghost") is None


# Network of the template, replicas, count -> endpoints of the pod set (spec 02 section 3.4).
ENDPOINTS: dict[str, tuple[Json, PodSet, list[str]]] = {
    "one pod": (
        {},
        PodSet(
            name="launcher",
            ancestor=None,
            replicas=1,
            count=1,
            completions=1,
            pod_spec={},
        ),
        ["demo-launcher-0-0.demo"],
    ),
    "two pods": (
        {},
        PodSet(name="node", ancestor=None, replicas=1, count=2, completions=2, pod_spec={}),
        ["demo-node-0-0.demo", "demo-node-0-1.demo"],
    ),
    "replicas are the outer loop": (
        {},
        PodSet(name="node", ancestor=None, replicas=2, count=2, completions=2, pod_spec={}),
        ["demo-node-0-0.demo", "demo-node-0-1.demo", "demo-node-1-0.demo", "demo-node-1-1.demo"],
    ),
    "subdomain of the template": (
        {"network": {"subdomain": "net.example"}},
        PodSet(name="node", ancestor=None, replicas=1, count=1, completions=1, pod_spec={}),
        ["demo-node-0-0.net.example"],
    ),
    "no pods": (
        {},
        PodSet(name="node", ancestor=None, replicas=1, count=0, completions=0, pod_spec={}),
        [],
    ),
    "an index for every completion": (
        {"network": {}},
        PodSet(name="n", ancestor=None, replicas=1, count=1, completions=2, pod_spec={}),
        ["demo-n-0-0.demo", "demo-n-0-1.demo"],
    ),
}


@pytest.mark.parametrize(("spec", "pod_set", "endpoints"), ENDPOINTS.values(), ids=ENDPOINTS)
def test_endpoints(spec: Json, pod_set: PodSet, endpoints: list[str]) -> None:
    assert list(iterate_endpoints("demo", pod_set, build_subdomain(spec, "demo"))) == endpoints


@given(st.integers(1, 4), st.integers(1, 5))
def test_endpoints_are_distinct_and_start_with_the_first(replicas: int, count: int) -> None:
    pod_set = PodSet(
        name="n",
        ancestor=None,
        replicas=replicas,
        count=count,
        completions=count,
        pod_spec={},
    )
    endpoints = list(iterate_endpoints("demo", pod_set, "sub"))
    assert len(set(endpoints)) == replicas * count
    assert endpoints[0] == build_endpoint("demo", pod_set, "sub")


def test_a_trainjob_without_a_spec_has_the_runtimes_pods() -> None:
    from trainwright.api.meta import ObjectMeta
    from trainwright.api.trainjob import TrainJob

    (pod_set,) = build_pod_sets(runtime_spec(policy=TORCH), TrainJob(metadata=ObjectMeta(name="demo")))
    assert pod_set.count == 1


def test_a_runtime_without_a_template_has_no_pods() -> None:
    assert build_pod_sets(RuntimeSpec(ml_policy=PLAIN), train_job()) == ()
