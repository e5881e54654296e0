"""Plain, after the case list of spec 02 section 16.8."""

from __future__ import annotations

import pytest

from template.builders import PLAIN, TORCH, replicated_job, runtime_spec, train_job
from trainwright.api.runtime import (
    CustomPolicy,
    FluxPolicy,
    JAXPolicy,
    MLPolicy,
    MPIPolicy,
    RuntimeSpec,
    XGBoostPolicy,
)
from trainwright.api.trainjob import Trainer
from trainwright.frameworks.contract import ContainerAddition, Contribution, PodAddition
from trainwright.frameworks.plain import Plain
from trainwright.template.layout import build_layout

ENV = [{"name": "A", "value": "1"}]

ACTIVE: dict[str, tuple[MLPolicy | None, bool]] = {
    "no policy": (None, True),
    "a policy that names no framework": (PLAIN, True),
    "torch": (TORCH, False),
    "mpi": (MLPolicy(mpi=MPIPolicy()), False),
    "jax": (MLPolicy(jax=JAXPolicy()), False),
    "xgboost, beside it": (MLPolicy(xgboost=XGBoostPolicy()), True),
    "flux, beside it": (MLPolicy(flux=FluxPolicy()), True),
}


@pytest.mark.parametrize(("policy", "active"), ACTIVE.values(), ids=ACTIVE)
def test_when_it_takes_part(policy: MLPolicy | None, active: bool) -> None:
    assert Plain().is_active(policy) is active


CONTRIBUTIONS: dict[str, tuple[RuntimeSpec, Trainer | None, Contribution]] = {
    "variables go to the trainer container": (
        runtime_spec(replicated_job("setup", ancestor=None), replicated_job("worker")),
        Trainer(env=ENV),
        Contribution(pods={"worker": PodAddition(containers={"node": ContainerAddition(env=tuple(ENV))})}),
    ),
    "no variables": (runtime_spec(), Trainer(), Contribution()),
    "no trainer block": (runtime_spec(), None, Contribution()),
    "no trainer step": (runtime_spec(replicated_job(ancestor=None)), Trainer(env=ENV), Contribution()),
}


@pytest.mark.parametrize(("runtime", "trainer", "contribution"), CONTRIBUTIONS.values(), ids=CONTRIBUTIONS)
def test_contributions(runtime: RuntimeSpec, trainer: Trainer | None, contribution: Contribution) -> None:
    layout = build_layout(train_job(trainer), runtime)
    assert Plain().build_contribution(layout) == contribution
    assert Plain().validate(layout) == []
    assert Plain().list_warnings(layout) == []


@pytest.mark.parametrize(
    ("policy", "wanted", "warned"),
    [
        (PLAIN, 4, True),
        (None, 2, True),
        (PLAIN, 1, False),
        (PLAIN, None, False),
        (MLPolicy(flux=FluxPolicy()), 4, False),
        (MLPolicy(custom=CustomPolicy(framework="theirs")), 4, False),
    ],
)
def test_processes_that_nobody_starts_are_warned_of(
    policy: MLPolicy | None, wanted: int | None, warned: bool
) -> None:
    layout = build_layout(train_job(Trainer(num_proc_per_node=wanted)), runtime_spec(policy=policy))
    expected = [
        f"spec.trainer.numProcPerNode is {wanted}, which has no effect: a runtime without a framework runs "
        "the command once on each node; leave it out"
    ]
    assert Plain().list_warnings(layout) == (expected if warned else [])
