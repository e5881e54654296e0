"""JAX, after the case list of spec 02 section 16.6 (numbers in the names)."""

from __future__ import annotations

import pytest

from template.builders import PLAIN, replicated_job, runtime_spec, train_job
from trainwright.api.constants import RANK_FIELD_PATH
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import JAXPolicy, MLPolicy, RuntimeSpec
from trainwright.api.trainjob import Trainer
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.contract import ContainerAddition, Contribution, PodAddition
from trainwright.frameworks.jax import JAX
from trainwright.template.layout import build_layout

POLICY = MLPolicy(num_nodes=1, jax=JAXPolicy())


def jax(processes: int, coordinator: str = "demo-node-0-0.demo", *before: Json) -> ContainerAddition:
    return ContainerAddition(
        env=(
            *before,
            {"name": "JAX_NUM_PROCESSES", "value": str(processes)},
            {"name": "JAX_PROCESS_ID", "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}},
            {"name": "JAX_COORDINATOR_ADDRESS", "value": f"{coordinator}:29500"},
        ),
        ports=({"containerPort": 29500},),
    )


@pytest.mark.parametrize(("policy", "active"), [(None, False), (PLAIN, False), (POLICY, True)])
def test_when_it_takes_part(policy: MLPolicy | None, active: bool) -> None:
    assert JAX().is_active(policy) is active


CONTRIBUTIONS: dict[str, tuple[RuntimeSpec, Trainer | None, dict[str, ContainerAddition]]] = {
    "5 one node": (runtime_spec(policy=POLICY), Trainer(num_nodes=1), {"node": jax(1)}),
    "6 four nodes": (runtime_spec(policy=POLICY), Trainer(num_nodes=4), {"node": jax(4)}),
    "numNodes of the runtime": (
        runtime_spec(policy=MLPolicy(num_nodes=3, jax=JAXPolicy())),
        Trainer(),
        {"node": jax(3)},
    ),
    "a job without a trainer block": (
        runtime_spec(policy=MLPolicy(num_nodes=3, jax=JAXPolicy())),
        None,
        {"node": jax(3)},
    ),
    "8 accelerators do not count": (
        runtime_spec(policy=POLICY),
        Trainer(num_nodes=2, resources_per_node=ResourceRequirements(limits={"nvidia.com/gpu": "4"})),
        {"node": jax(2)},
    ),
    "variables of the job come first": (
        runtime_spec(policy=POLICY),
        Trainer(env=[{"name": "A", "value": "1"}]),
        {"node": jax(1, "demo-node-0-0.demo", {"name": "A", "value": "1"})},
    ),
    "the coordinator follows names of step and network": (
        runtime_spec(replicated_job("worker"), policy=POLICY, network={"subdomain": "net"}),
        Trainer(num_nodes=2),
        {"worker": jax(2, "demo-worker-0-0.net")},
    ),
    "4 no trainer step": (runtime_spec(replicated_job(ancestor=None), policy=POLICY), None, {}),
}


@pytest.mark.parametrize(("runtime", "trainer", "expected"), CONTRIBUTIONS.values(), ids=CONTRIBUTIONS)
def test_contributions(
    runtime: RuntimeSpec, trainer: Trainer | None, expected: dict[str, ContainerAddition]
) -> None:
    layout = build_layout(train_job(trainer), runtime)
    assert JAX().build_contribution(layout) == Contribution(
        pods={name: PodAddition(containers={"node": addition}) for name, addition in expected.items()}
    )
    assert JAX().validate(layout) == []
    assert JAX().list_warnings(layout) == []


def test_b039_its_variables_are_reserved() -> None:
    env = [{"name": name, "value": "7"} for name in ("OK", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS")]
    layout = build_layout(train_job(Trainer(env=env)), runtime_spec(policy=POLICY))
    assert JAX().validate(layout) == [
        FieldError(
            path="spec.trainer.env",
            rule=Rule.INVALID,
            detail="JAX_COORDINATOR_ADDRESS, JAX_PROCESS_ID: set by the jax framework from the job itself; "
            "remove from the list",
            value=["JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID"],
        )
    ]


def test_a_number_of_processes_is_warned_about() -> None:
    layout = build_layout(train_job(Trainer(num_proc_per_node=4)), runtime_spec(policy=POLICY))
    assert JAX().list_warnings(layout) == [
        "spec.trainer.numProcPerNode is 4, which has no effect: JAX runs one process on each node and gives "
        "it all accelerators; leave it out, or ask for more nodes"
    ]
    one = build_layout(train_job(Trainer(num_proc_per_node=1)), runtime_spec(policy=POLICY))
    assert JAX().list_warnings(one) == []
