"""Pods without an index have no rank and no host name: no framework can tell them who they are."""

from __future__ import annotations

import pytest

from frameworks.mpi.builders import launcher, mpi_layout, mpi_runtime, node
from template.builders import TORCH, replicated_job, runtime_spec, train_job
from trainwright.api.meta import Json
from trainwright.api.runtime import (
    FluxPolicy,
    JAXPolicy,
    MLPolicy,
    PaddlePolicy,
    TensorFlowPolicy,
    XGBoostPolicy,
)
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks import validate_frameworks
from trainwright.template.layout import build_layout

POLICIES = {
    "torch": TORCH,
    "jax": MLPolicy(jax=JAXPolicy()),
    "xgboost": MLPolicy(xgboost=XGBoostPolicy()),
    "flux": MLPolicy(flux=FluxPolicy()),
    "tensorflow": MLPolicy(tensorflow=TensorFlowPolicy()),
    "paddle": MLPolicy(paddle=PaddlePolicy()),
}
UNNUMBERED: list[Json] = [
    {"completionMode": "NonIndexed"},
    {"completionMode": "NonIndexed", "parallelism": 2, "completions": 2},
]


def refusal(name: str) -> FieldError:
    return FieldError(
        path="spec.runtimeRef",
        rule=Rule.INVALID,
        detail=f"replicated job {name!r} of the runtime has completionMode NonIndexed, so its pods have no "
        "index; remove it",
        value=name,
    )


@pytest.mark.parametrize("job", UNNUMBERED, ids=["as many as there are nodes", "as many as it says"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_trainer_step_without_indexes_is_refused(policy: MLPolicy, job: Json) -> None:
    layout = build_layout(train_job(), runtime_spec(replicated_job("node", job=job), policy=policy))
    assert validate_frameworks(layout) == [refusal("node")]


def test_nodes_and_launcher_of_mpi_without_indexes_are_refused() -> None:
    spec = mpi_runtime(node(job=UNNUMBERED[0]), launcher(job=UNNUMBERED[0]))
    assert validate_frameworks(mpi_layout(spec)) == [refusal("launcher"), refusal("node")]


def test_pods_that_nobody_has_to_find_need_none() -> None:
    spec = runtime_spec(
        replicated_job("node"), replicated_job("side", ancestor=None, job=UNNUMBERED[1]), policy=TORCH
    )
    assert validate_frameworks(build_layout(train_job(), spec)) == []
    plain = runtime_spec(replicated_job("node", job=UNNUMBERED[0]))
    assert validate_frameworks(build_layout(train_job(), plain)) == []
