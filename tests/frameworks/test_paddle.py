"""Paddle: options of paddle.distributed.launch, given as variables (spec 06 section 5.5)."""

from __future__ import annotations

from typing import Any

import pytest

from template.builders import PLAIN, container, replicated_job, runtime_spec, train_job
from trainwright.api.constants import RANK_FIELD_PATH
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import MLPolicy, PaddlePolicy
from trainwright.api.trainjob import Trainer
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks import select_frameworks
from trainwright.frameworks.contract import ContainerAddition, Contribution, PodAddition
from trainwright.frameworks.paddle import Paddle
from trainwright.template.layout import JobLayout, build_layout

PADDLE = MLPolicy(num_nodes=1, paddle=PaddlePolicy())
SERVERS = MLPolicy(num_nodes=2, paddle=PaddlePolicy(server_job_name="server"))
RANK = {"name": "PADDLE_RANK", "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}}


def layout(
    *jobs: Json, policy: MLPolicy = PADDLE, trainer: Trainer | None = None, **fields: Any
) -> JobLayout:
    return build_layout(train_job(trainer), runtime_spec(*jobs, policy=policy, **fields))


def variables(**values: str) -> tuple[Json, ...]:
    return tuple({"name": name, "value": value} for name, value in values.items())


def pod(*env: Json) -> PodAddition:
    return PodAddition(containers={"node": ContainerAddition(env=env, ports=({"containerPort": 29500},))})


def collective(nodes: int, processes: str | None, name: str = "node", subdomain: str = "demo") -> PodAddition:
    number = {} if processes is None else {"PADDLE_NPROC_PER_NODE": processes}
    return pod(
        *variables(PADDLE_JOB_ID="demo", PADDLE_NNODES=str(nodes), **number),
        RANK,
        *variables(
            POD_IP=f"demo-{name}-0-$(PADDLE_RANK).{subdomain}",
            PADDLE_MASTER=f"demo-{name}-0-0.{subdomain}:29500",
        ),
    )


def server_mode(name: str) -> PodAddition:
    return pod(
        *variables(PADDLE_JOB_ID="demo"),
        RANK,
        *variables(
            POD_IP=f"demo-{name}-0-$(PADDLE_RANK).demo",
            PADDLE_SERVERS_ENDPOINTS="demo-server-0-0.demo:29500,demo-server-0-1.demo:29500",
            PADDLE_TRAINERS_ENDPOINTS="demo-node-0-0.demo:29500,demo-node-0-1.demo:29500",
        ),
    )


@pytest.mark.parametrize(("policy", "active"), [(None, False), (PLAIN, False), (PADDLE, True)])
def test_when_it_takes_part(policy: MLPolicy | None, active: bool) -> None:
    assert Paddle().is_active(policy) is active


def test_plain_takes_part_beside_it() -> None:
    assert [framework.name for framework in select_frameworks(PADDLE)] == ["plain", "paddle"]


CONTRIBUTIONS: dict[str, tuple[JobLayout, dict[str, PodAddition]]] = {
    "one process on each node": (layout(trainer=Trainer(num_nodes=2)), {"node": collective(2, "1")}),
    "a number of processes": (
        layout(trainer=Trainer(num_nodes=2, num_proc_per_node=4)),
        {"node": collective(2, "4")},
    ),
    "one for each CPU": (
        layout(trainer=Trainer(resources_per_node=ResourceRequirements(requests={"cpu": "3"}))),
        {"node": collective(1, "3")},
    ),
    "accelerators are counted by the launcher": (
        layout(trainer=Trainer(resources_per_node=ResourceRequirements(limits={"nvidia.com/gpu": "8"}))),
        {"node": collective(1, None)},
    ),
    "names of step and network": (
        layout(replicated_job("worker"), network={"subdomain": "net"}),
        {"worker": collective(1, "1", "worker", "net")},
    ),
    "parameter servers": (
        layout(
            replicated_job("server", job={"parallelism": 2}, ancestor=None),
            replicated_job("node"),
            policy=SERVERS,
        ),
        {"node": server_mode("node"), "server": server_mode("server")},
    ),
    "no trainer step": (layout(replicated_job("any", ancestor=None)), {}),
}


@pytest.mark.parametrize(("given", "pods"), CONTRIBUTIONS.values(), ids=CONTRIBUTIONS)
def test_contributions(given: JobLayout, pods: dict[str, PodAddition]) -> None:
    assert Paddle().build_contribution(given) == Contribution(pods=pods)
    assert Paddle().validate(given) == []


def in_runtime(detail: str, value: str) -> FieldError:
    return FieldError(path="spec.runtimeRef", rule=Rule.INVALID, detail=detail, value=value)


REFUSED: dict[str, tuple[JobLayout, list[FieldError]]] = {
    "variables of the job": (
        layout(
            trainer=Trainer(env=[{"name": "POD_IP", "value": "x"}, {"name": "PADDLE_RANK", "value": "0"}])
        ),
        [
            FieldError(
                path="spec.trainer.env",
                rule=Rule.INVALID,
                detail="PADDLE_RANK, POD_IP: set by the paddle framework from the job itself; remove from "
                "the list",
                value=["PADDLE_RANK", "POD_IP"],
            )
        ],
    ),
    "variables of the runtime": (
        layout(replicated_job("node", container(env=[{"name": "POD_IP", "value": "x"}]))),
        [
            in_runtime(
                "replicated job 'node' of the runtime sets POD_IP, which the paddle framework does from the "
                "job itself; remove it from the runtime",
                "node",
            )
        ],
    ),
    "servers that are not there": (
        layout(policy=SERVERS),
        [
            in_runtime(
                "spec.mlPolicy.paddle.serverJobName of the runtime is 'server', which is not there; use one "
                "of 'node'",
                "server",
            )
        ],
    ),
    "servers that are the trainer step": (
        layout(replicated_job("server"), policy=SERVERS),
        [
            in_runtime(
                "spec.mlPolicy.paddle.serverJobName of the runtime is 'server', which is the trainer step; "
                "name another one",
                "server",
            )
        ],
    ),
    "servers with the same indexes": (
        layout(replicated_job("server", ancestor=None, replicas=2), replicated_job("node"), policy=SERVERS),
        [
            in_runtime(
                "replicated job 'server' of the runtime has 2 replicas, whose pods have the same indexes; "
                "make it 1 and set parallelism",
                "server",
            )
        ],
    ),
    "several trainers on a node beside servers": (
        layout(
            replicated_job("server", ancestor=None),
            replicated_job("node"),
            policy=SERVERS,
            trainer=Trainer(num_proc_per_node=2),
        ),
        [
            FieldError(
                path="spec.trainer.numProcPerNode",
                rule=Rule.INVALID,
                detail="must be 1, or absent: with parameter servers each node has one trainer",
                value=2,
            )
        ],
    ),
}


@pytest.mark.parametrize(("given", "errors"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(given: JobLayout, errors: list[FieldError]) -> None:
    assert Paddle().validate(given) == errors


def test_idle_accelerators_are_warned_about() -> None:
    gpus = ResourceRequirements(limits={"nvidia.com/gpu": "4"})
    given = layout(trainer=Trainer(num_proc_per_node=1, resources_per_node=gpus))
    assert Paddle().list_warnings(given) == [
        "spec.trainer.numProcPerNode is 1, but each node asks for 4 accelerators: 3 of them may stay idle"
    ]
    beside = (replicated_job("server", ancestor=None), replicated_job("node"))
    assert Paddle().list_warnings(layout(*beside, policy=SERVERS)) == []
