"""Nodes in slices (mlPolicy.nodesPerSlice): one Job per slice, and what a node is told about it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template.builders import container, replicated_job, runtime_spec, train_job
from trainwright.api.meta import Json
from trainwright.api.runtime import (
    CustomPolicy,
    ElasticPolicy,
    JAXPolicy,
    MLPolicy,
    MPIPolicy,
    TorchPolicy,
    XGBoostPolicy,
)
from trainwright.api.trainjob import Trainer
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks import list_framework_warnings, select_frameworks, validate_frameworks
from trainwright.frameworks.slices import Slices
from trainwright.frameworks.torch import Torch
from trainwright.template.layout import JobLayout, build_layout

PLAIN_OF_TWO = MLPolicy(num_nodes=2, nodes_per_slice=2)
TORCH_OF_TWO = MLPolicy(num_nodes=2, nodes_per_slice=2, torch=TorchPolicy())


def layout(policy: MLPolicy, *jobs: Json, **trainer: Any) -> JobLayout:
    given = Trainer(**{"num_proc_per_node": 1, **trainer})
    return build_layout(train_job(given), runtime_spec(*jobs, policy=policy))


def test_a_node_is_told_its_slice_and_who_leads_it() -> None:
    contribution = Slices().build_contribution(layout(PLAIN_OF_TWO, num_nodes=6))
    assert contribution.pods["node"].containers["node"].env == (
        {
            "name": "TRAINWRIGHT_SLICE_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/job-index']"}},
        },
        {"name": "TRAINWRIGHT_SLICE_COUNT", "value": "3"},
        {"name": "TRAINWRIGHT_SLICE_NODES", "value": "2"},
        {"name": "TRAINWRIGHT_SLICE_LEADER", "value": "demo-node-$(TRAINWRIGHT_SLICE_INDEX)-0.demo"},
    )


def test_torchrun_is_told_all_nodes_and_numbers_them_itself() -> None:
    contribution = Torch().build_contribution(layout(TORCH_OF_TWO, num_nodes=4))
    assert contribution.pods["node"].containers["node"].env == (
        {"name": "PET_NNODES", "value": "4"},
        {"name": "PET_NPROC_PER_NODE", "value": "1"},
        {"name": "PET_MASTER_ADDR", "value": "demo-node-0-0.demo"},
        {"name": "PET_MASTER_PORT", "value": "29500"},
        {"name": "PET_RDZV_BACKEND", "value": "c10d"},
        {"name": "PET_RDZV_ENDPOINT", "value": "demo-node-0-0.demo:29500"},
        {"name": "PET_RDZV_ID", "value": "demo"},
        {"name": "PET_RDZV_CONF", "value": "join_timeout=900,read_timeout=900"},
        {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"},
    )


def test_slices_may_have_a_range_of_nodes() -> None:
    elastic = ElasticPolicy(min_nodes=2, max_nodes=6, max_restarts=3)
    policy = MLPolicy(num_nodes=4, nodes_per_slice=2, torch=TorchPolicy(elastic=elastic))
    env = Torch().build_contribution(layout(policy)).pods["node"].containers["node"].env
    assert {"name": "PET_NNODES", "value": "2:6"} in env
    assert {"name": "PET_MAX_RESTARTS", "value": "3"} in env
    assert [error.path for error in Torch().validate(layout(policy, num_nodes=8))] == [
        "spec.trainer.numNodes"
    ]


@given(st.integers(1, 40), st.integers(1, 12))
def test_every_node_is_in_one_slice_and_all_slices_are_full(slices: int, size: int) -> None:
    policy = MLPolicy(num_nodes=slices * size, nodes_per_slice=size)
    given = layout(policy)
    (pod_set,) = given.pod_sets
    assert (pod_set.replicas, pod_set.count, pod_set.completions) == (slices, size, size)
    assert pod_set.num_nodes == slices * size
    assert validate_frameworks(given) == []
    assert len(set(given.iterate_endpoints(pod_set))) == slices * size


@given(st.integers(1, 40), st.integers(1, 12))
def test_in_the_order_of_host_names_slices_follow_each_other_and_begin_with_the_first(
    slices: int, size: int
) -> None:
    """What torchrun numbers nodes by. A full name ends with `.demo.<namespace>.svc...`."""
    given = layout(MLPolicy(num_nodes=slices * size, nodes_per_slice=size))
    ordered = sorted(given.iterate_endpoints(given.pod_sets[0]))
    of_slice = [name.split("-")[2] for name in ordered]
    changes = sum(a != b for a, b in itertools.pairwise(of_slice))
    assert changes == slices - 1
    assert ordered[0] == "demo-node-0-0.demo"


def test_only_the_first_trainer_step_comes_in_slices() -> None:
    given = layout(PLAIN_OF_TWO, replicated_job("node"), replicated_job("more"), num_nodes=4)
    assert [(p.name, p.replicas, p.count) for p in given.pod_sets] == [("node", 2, 2), ("more", 1, 2)]


def test_a_job_without_nodes_has_one_slice_of_none() -> None:
    given = layout(PLAIN_OF_TWO, num_nodes=0)
    assert [(p.replicas, p.count) for p in given.pod_sets] == [(1, 0)]
    assert validate_frameworks(given) == []


def test_without_slices_nothing_is_added() -> None:
    assert [framework.name for framework in select_frameworks(MLPolicy(num_nodes=4))] == ["plain"]
    assert list_framework_warnings(layout(PLAIN_OF_TWO)) == []


def refused(path: str, rule: Rule, detail: str, value: object) -> FieldError:
    return FieldError(path=path, rule=rule, detail=detail, value=value)


def numbering(name: str) -> FieldError:
    detail = (
        f"framework {name} numbers nodes by their index in one Job, which repeats in each slice; remove "
        "mlPolicy.nodesPerSlice, or use a runtime for torch, or for no framework"
    )
    return refused("spec.runtimeRef", Rule.NOT_SUPPORTED, detail, name)


REFUSED: dict[str, tuple[JobLayout, FieldError]] = {
    "a slice that is not full": (
        layout(PLAIN_OF_TWO, num_nodes=5),
        refused(
            "spec.trainer.numNodes",
            Rule.INVALID,
            "is 5, but the runtime has 2 nodes per slice (spec.mlPolicy.nodesPerSlice); use 4 or 6",
            5,
        ),
    ),
    "less than one slice": (
        layout(MLPolicy(num_nodes=4, nodes_per_slice=4), num_nodes=3),
        refused(
            "spec.trainer.numNodes",
            Rule.INVALID,
            "is 3, but the runtime has 4 nodes per slice (spec.mlPolicy.nodesPerSlice); use 4",
            3,
        ),
    ),
    "JAX": (layout(MLPolicy(nodes_per_slice=1, jax=JAXPolicy())), numbering("jax")),
    "MPI": (layout(MLPolicy(nodes_per_slice=1, mpi=MPIPolicy())), numbering("mpi")),
    "XGBoost": (layout(MLPolicy(nodes_per_slice=1, xgboost=XGBoostPolicy())), numbering("xgboost")),
    "a framework of another package": (
        layout(MLPolicy(nodes_per_slice=1, custom=CustomPolicy(framework="acme"))),
        numbering("acme"),
    ),
    "a variable of the TrainJob": (
        layout(PLAIN_OF_TWO, env=[{"name": "TRAINWRIGHT_SLICE_COUNT", "value": "9"}]),
        refused(
            "spec.trainer.env",
            Rule.INVALID,
            "TRAINWRIGHT_SLICE_COUNT: set by the slices framework from the job itself; remove from the list",
            ["TRAINWRIGHT_SLICE_COUNT"],
        ),
    ),
    "a variable of the runtime": (
        layout(
            PLAIN_OF_TWO,
            replicated_job(
                "node", container(env=[{"name": "A"}, {"name": "TRAINWRIGHT_SLICE_LEADER", "value": "x"}])
            ),
        ),
        refused(
            "spec.runtimeRef",
            Rule.INVALID,
            "replicated job 'node' of the runtime sets TRAINWRIGHT_SLICE_LEADER, which slices do from the "
            "job itself; remove it from the runtime",
            "node",
        ),
    ),
}


@pytest.mark.parametrize(("given", "error"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(given: JobLayout, error: FieldError) -> None:
    assert Slices().validate(given) == [error]


def test_torchtune_has_no_slices() -> None:
    errors = Torch().validate(layout(TORCH_OF_TWO, command=["tune", "run"]))
    assert [error.path for error in errors][-1] == "spec.trainer.command"
    assert "spec.mlPolicy.nodesPerSlice" in errors[-1].detail


def test_variables_of_torchruns_rendezvous_are_reserved() -> None:
    errors = Torch().validate(layout(TORCH_OF_TWO, env=[{"name": "PET_RDZV_CONF", "value": "mine"}]))
    assert [error.path for error in errors] == ["spec.trainer.env"]
