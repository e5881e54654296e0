"""Torch with a range of nodes instead of a number (mlPolicy.torch.elastic)."""

from __future__ import annotations

from typing import Any

import pytest

from template.builders import TORCH, replicated_job, runtime_spec, train_job
from trainwright.api.constants import RANK_FIELD_PATH
from trainwright.api.meta import Json
from trainwright.api.runtime import ElasticPolicy, MLPolicy, TorchPolicy
from trainwright.api.trainjob import Trainer
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.torch import Torch
from trainwright.template.layout import JobLayout, build_layout


def elastic(least: int, most: int, restarts: int | None = None) -> MLPolicy:
    policy = ElasticPolicy(min_nodes=least, max_nodes=most, max_restarts=restarts)
    return MLPolicy(num_nodes=2, torch=TorchPolicy(elastic=policy))


def layout(policy: MLPolicy, job: Json | None = None, **trainer: Any) -> JobLayout:
    given = Trainer(**{"num_proc_per_node": 1, **trainer})
    return build_layout(train_job(given), runtime_spec(replicated_job("node", job=job), policy=policy))


@pytest.mark.parametrize(("restarts", "written"), [(None, "0"), (5, "5")])
def test_nodes_meet_by_an_elastic_rendezvous(restarts: int | None, written: str) -> None:
    contribution = Torch().build_contribution(layout(elastic(1, 4, restarts), num_nodes=3))
    assert contribution.pods["node"].containers["node"].env == (
        {"name": "PET_NNODES", "value": "1:4"},
        {"name": "PET_NPROC_PER_NODE", "value": "1"},
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}},
        {"name": "PET_MASTER_ADDR", "value": "demo-node-0-0.demo"},
        {"name": "PET_MASTER_PORT", "value": "29500"},
        {"name": "PET_RDZV_BACKEND", "value": "c10d"},
        {"name": "PET_RDZV_ENDPOINT", "value": "demo-node-0-0.demo:29500"},
        {"name": "PET_RDZV_ID", "value": "demo"},
        {"name": "PET_MAX_RESTARTS", "value": written},
        {"name": "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "value": "1"},
    )


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_any_number_in_the_range_is_let_through(nodes: int) -> None:
    assert Torch().validate(layout(elastic(1, 4), num_nodes=nodes)) == []


REFUSED: dict[str, tuple[JobLayout, list[FieldError]]] = {
    "more than the range": (
        layout(elastic(1, 4), num_nodes=5),
        [
            FieldError(
                path="spec.trainer.numNodes",
                rule=Rule.INVALID,
                detail="is 5, but the runtime goes from 1 to 4 nodes (spec.mlPolicy.torch.elastic); "
                "set one of these",
                value=5,
            )
        ],
    ),
    "fewer, by the runtime's own number": (
        layout(elastic(3, 4)),
        [
            FieldError(
                path="spec.trainer.numNodes",
                rule=Rule.INVALID,
                detail="is 2, but the runtime goes from 3 to 4 nodes (spec.mlPolicy.torch.elastic); "
                "set one of these",
                value=2,
            )
        ],
    ),
    "a range that is none": (
        layout(elastic(4, 1)),
        [
            FieldError(
                path="spec.runtimeRef",
                rule=Rule.INVALID,
                detail="spec.mlPolicy.torch.elastic of the runtime goes from 4 to 1 nodes; correct it",
                value=4,
            )
        ],
    ),
    "variables of the rendezvous": (
        layout(elastic(1, 4), env=[{"name": "PET_RDZV_ID", "value": "mine"}]),
        [
            FieldError(
                path="spec.trainer.env",
                rule=Rule.INVALID,
                detail="PET_RDZV_ID: set by the torch framework from the job itself; remove from the list",
                value=["PET_RDZV_ID"],
            )
        ],
    ),
    "the same, with a fixed number": (layout(TORCH, env=[{"name": "PET_RDZV_ID", "value": "mine"}]), []),
}


@pytest.mark.parametrize(("given", "errors"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(given: JobLayout, errors: list[FieldError]) -> None:
    assert Torch().validate(given) == errors


def test_torchtune_has_no_range() -> None:
    errors = Torch().validate(layout(elastic(1, 4), command=["tune", "run"]))
    assert [error.path for error in errors][-1] == "spec.trainer.command"


def test_a_runtime_that_makes_no_lost_pod_again_is_warned_about() -> None:
    assert Torch().list_warnings(layout(elastic(1, 4), {"backoffLimit": 0})) == [
        "backoffLimit of replicated job 'node' is 0, so the first pod that is lost fails the job, although "
        "the runtime has a range of nodes (spec.mlPolicy.torch.elastic); set backoffLimit there"
    ]
    assert Torch().list_warnings(layout(elastic(1, 4), {"backoffLimit": 9})) == []
    assert Torch().list_warnings(layout(TORCH, {"backoffLimit": 0})) == []
