"""XGBoost, after the case list of spec 02 section 16.7 (numbers in the names)."""

from __future__ import annotations

import pytest

from template.builders import PLAIN, TORCH, container, replicated_job, runtime, runtime_spec, train_job
from trainwright.api.constants import RANK_FIELD_PATH
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import MLPolicy, RuntimeSpec, XGBoostPolicy
from trainwright.api.trainjob import Trainer
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks import select_frameworks, validate_frameworks
from trainwright.frameworks.contract import ContainerAddition, Contribution, PodAddition
from trainwright.frameworks.xgboost import XGBoost
from trainwright.render import render_job_set
from trainwright.template.layout import build_layout

POLICY = MLPolicy(num_nodes=1, xgboost=XGBoostPolicy())


def gpus(number: int, **more: str) -> ResourceRequirements:
    return ResourceRequirements(limits={"nvidia.com/gpu": str(number), **more})


def with_gpus(number: int) -> RuntimeSpec:
    node = container(resources={"limits": {"nvidia.com/gpu": str(number)}})
    return runtime_spec(replicated_job("node", node), policy=POLICY)


def dmlc(workers: int, per_node: int = 1, tracker: str = "demo-node-0-0.demo") -> tuple[Json, ...]:
    return (
        {"name": "DMLC_TRACKER_URI", "value": tracker},
        {"name": "DMLC_TRACKER_PORT", "value": "29500"},
        {"name": "DMLC_TASK_ID", "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}},
        {"name": "DMLC_NUM_WORKER", "value": str(workers)},
        {"name": "DMLC_WORKERS_PER_NODE", "value": str(per_node)},
    )


@pytest.mark.parametrize(("policy", "active"), [(None, False), (PLAIN, False), (POLICY, True)])
def test_when_it_takes_part(policy: MLPolicy | None, active: bool) -> None:
    assert XGBoost().is_active(policy) is active


def test_plain_takes_part_beside_it() -> None:
    assert [framework.name for framework in select_frameworks(POLICY)] == ["plain", "xgboost"]


WORKERS: dict[str, tuple[RuntimeSpec, Trainer | None, tuple[Json, ...]]] = {
    "12 one node": (
        runtime_spec(policy=POLICY),
        Trainer(num_nodes=1, resources_per_node=ResourceRequirements(requests={"cpu": "4"})),
        dmlc(1),
    ),
    "13 four nodes": (runtime_spec(policy=POLICY), Trainer(num_nodes=4), dmlc(4)),
    "14, 18 GPUs of the job": (
        runtime_spec(policy=POLICY),
        Trainer(num_nodes=2, resources_per_node=gpus(4, cpu="8")),
        dmlc(8, 4),
    ),
    "17 GPUs of the runtime": (with_gpus(2), Trainer(num_nodes=3), dmlc(6, 2)),
    "19 GPUs of the job over those of the runtime": (
        with_gpus(1),
        Trainer(num_nodes=2, resources_per_node=gpus(3)),
        dmlc(6, 3),
    ),
    "GPUs of the runtime, with CPUs of the job": (
        with_gpus(2),
        Trainer(num_nodes=2, resources_per_node=ResourceRequirements(requests={"cpu": "8"})),
        dmlc(4, 2),
    ),
    "11 a job without a trainer block": (
        runtime_spec(policy=MLPolicy(num_nodes=2, xgboost=XGBoostPolicy())),
        None,
        dmlc(2),
    ),
}


@pytest.mark.parametrize(("runtime", "trainer", "env"), WORKERS.values(), ids=WORKERS)
def test_contributions(runtime: RuntimeSpec, trainer: Trainer | None, env: tuple[Json, ...]) -> None:
    layout = build_layout(train_job(trainer), runtime)
    node = ContainerAddition(env=env, ports=({"containerPort": 29500},))
    assert XGBoost().build_contribution(layout) == Contribution(
        pods={"node": PodAddition(containers={"node": node})}
    )
    assert XGBoost().validate(layout) == []
    assert XGBoost().list_warnings(layout) == []


def test_the_tracker_follows_names_of_step_and_network() -> None:
    spec = runtime_spec(replicated_job("worker"), policy=POLICY, network={"subdomain": "net"})
    contribution = XGBoost().build_contribution(build_layout(train_job(Trainer(num_nodes=2)), spec))
    assert contribution.pods["worker"].containers["node"].env == dmlc(2, tracker="demo-worker-0-0.net")


def test_without_a_trainer_step_it_adds_nothing() -> None:
    spec = runtime_spec(replicated_job(ancestor=None), policy=POLICY)
    assert XGBoost().build_contribution(build_layout(train_job(), spec)) == Contribution()


def test_variables_of_the_job_stand_before_its_own() -> None:
    spec = runtime_spec(replicated_job("node", container(env=[{"name": "A", "value": "1"}])), policy=POLICY)
    job = train_job(Trainer(env=[{"name": "B", "value": "2"}, {"name": "A", "value": "3"}]))
    (replicated,) = render_job_set(job, runtime(spec))["spec"]["replicatedJobs"]
    env = replicated["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}, *dmlc(1)]


def reserved(i: int, name: str) -> FieldError:
    return FieldError(
        path=f"spec.trainer.env[{i}]",
        rule=Rule.FORBIDDEN,
        detail=f"{name}: set by the xgboost framework from the job itself; remove from the list",
        value=name,
    )


RESERVED = {
    "4 others are free": (["A"], []),
    "5 the tracker": (["DMLC_TRACKER_URI"], [reserved(0, "DMLC_TRACKER_URI")]),
    "6 the number of workers": (["DMLC_NUM_WORKER"], [reserved(0, "DMLC_NUM_WORKER")]),
    "7 each is an error": (
        ["DMLC_TRACKER_URI", "A", "DMLC_TASK_ID"],
        [reserved(0, "DMLC_TRACKER_URI"), reserved(2, "DMLC_TASK_ID")],
    ),
}


@pytest.mark.parametrize(("names", "errors"), RESERVED.values(), ids=RESERVED)
def test_reserved_variables(names: list[str], errors: list[FieldError]) -> None:
    job = train_job(Trainer(env=[{"name": name, "value": "1"} for name in names]))
    assert validate_frameworks(build_layout(job, runtime_spec(policy=POLICY))) == errors
    assert validate_frameworks(build_layout(job, runtime_spec(policy=TORCH))) == []


def test_a_number_of_processes_is_warned_about() -> None:
    job = train_job(Trainer(num_proc_per_node=4))
    assert XGBoost().list_warnings(build_layout(job, with_gpus(2))) == [
        "spec.trainer.numProcPerNode is 4, which has no effect: XGBoost has 2 worker(s) on each node, one "
        "for each accelerator, or one where there are none; leave it out"
    ]
    assert XGBoost().list_warnings(build_layout(job, with_gpus(4))) == []
