"""TensorFlow: one TF_CONFIG per type of task, with the index left to Kubernetes (spec 06 section 5.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from template.builders import PLAIN, container, replicated_job, runtime, runtime_spec, train_job
from trainwright.api.constants import RANK_FIELD_PATH
from trainwright.api.meta import Json
from trainwright.api.runtime import MLPolicy, RuntimeSpec, TensorFlowPolicy, TensorFlowTask
from trainwright.api.trainjob import Trainer
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks import select_frameworks
from trainwright.frameworks.contract import ContainerAddition, Contribution, PodAddition
from trainwright.frameworks.tensorflow import TensorFlow
from trainwright.render import render_job_set
from trainwright.runner.executors.pod_env import expand
from trainwright.template.layout import JobLayout, build_layout

TENSORFLOW = MLPolicy(num_nodes=1, tensorflow=TensorFlowPolicy())
SUCCESS = {"operator": "All", "targetReplicatedJobs": ["worker"]}


def choosing(**types: str) -> MLPolicy:
    tasks = [TensorFlowTask(job_name=name, type=kind) for name, kind in types.items()]
    return MLPolicy(num_nodes=1, tensorflow=TensorFlowPolicy(tasks=tasks))


def step(name: str, count: int = 1, *containers: Json, **fields: Any) -> Json:
    return replicated_job(name, *containers, job={"parallelism": count, **fields.pop("job", {})}, **fields)


def layout(
    *jobs: Json, policy: MLPolicy = TENSORFLOW, trainer: Trainer | None = None, **fields: Any
) -> JobLayout:
    return build_layout(train_job(trainer), runtime_spec(*jobs, policy=policy, **fields))


def task(cluster: str, kind: str, *, has_port: bool = False) -> PodAddition:
    config = (
        f'{{"cluster":{cluster},"task":{{"type":"{kind}","index":$(TF_TASK_INDEX)}},"environment":"cloud"}}'
    )
    node = ContainerAddition(
        env=(
            {"name": "TF_TASK_INDEX", "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}},
            {"name": "TF_CONFIG", "value": config},
        ),
        ports=() if has_port else ({"containerPort": 29500},),
    )
    return PodAddition(containers={"node": node})


@pytest.mark.parametrize(("policy", "active"), [(None, False), (PLAIN, False), (TENSORFLOW, True)])
def test_when_it_takes_part(policy: MLPolicy | None, active: bool) -> None:
    assert TensorFlow().is_active(policy) is active


def test_plain_takes_part_beside_it() -> None:
    assert [framework.name for framework in select_frameworks(TENSORFLOW)] == ["plain", "tensorflow"]


TWO_WORKERS = '{"worker":["demo-node-0-0.demo:29500","demo-node-0-1.demo:29500"]}'
PS_AND_WORKERS = (
    '{"ps":["demo-ps-0-0.demo:29500","demo-ps-0-1.demo:29500"],'
    '"worker":["demo-worker-0-0.demo:29500","demo-worker-0-1.demo:29500"]}'
)
ALL = (
    '{"chief":["demo-node-0-0.demo:29500"],"evaluator":["demo-evaluator-0-0.demo:29500"],'
    '"ps":["demo-ps-0-0.demo:29500"],"worker":["demo-worker-0-0.demo:29500","demo-worker-0-1.demo:29500"]}'
)
PORTS = '{"ps":["demo-ps-0-0.demo:4444"],"worker":["demo-node-0-0.demo:29500"]}'

CONTRIBUTIONS: dict[str, tuple[JobLayout, dict[str, PodAddition]]] = {
    "workers alone": (
        layout(trainer=Trainer(num_nodes=2)),
        {"node": task(TWO_WORKERS, "worker")},
    ),
    "one worker is told as well": (
        layout(),
        {"node": task('{"worker":["demo-node-0-0.demo:29500"]}', "worker")},
    ),
    "parameter servers, by name": (
        layout(step("worker"), step("ps", 2, ancestor=None), trainer=Trainer(num_nodes=2)),
        {"ps": task(PS_AND_WORKERS, "ps"), "worker": task(PS_AND_WORKERS, "worker")},
    ),
    "servers that run the job's program keep their number": (
        layout(step("worker"), step("ps", 2), trainer=Trainer(num_nodes=2)),
        {"ps": task(PS_AND_WORKERS, "ps"), "worker": task(PS_AND_WORKERS, "worker")},
    ),
    "every type, chosen by the runtime": (
        layout(
            step("node"),
            step("worker", 2, ancestor=None),
            step("ps", ancestor=None),
            step("evaluator", ancestor=None),
            policy=choosing(node="chief", worker="worker", ps="ps", evaluator="evaluator"),
        ),
        {
            "node": task(ALL, "chief"),
            "evaluator": task(ALL, "evaluator"),
            "ps": task(ALL, "ps"),
            "worker": task(ALL, "worker"),
        },
    ),
    "what the runtime does not choose takes no part": (
        layout(step("node"), step("ps", ancestor=None), policy=choosing(node="worker")),
        {"node": task('{"worker":["demo-node-0-0.demo:29500"]}', "worker")},
    ),
    "a trainer step named like a type is that": (
        layout(step("chief"), step("worker", ancestor=None)),
        {
            kind: task(
                '{"chief":["demo-chief-0-0.demo:29500"],"worker":["demo-worker-0-0.demo:29500"]}', kind
            )
            for kind in ("chief", "worker")
        },
    ),
    "an initializer takes no part, whatever its name": (
        layout(step("node"), step("ps", ancestor="model-initializer")),
        {"node": task('{"worker":["demo-node-0-0.demo:29500"]}', "worker")},
    ),
    "ports that a container names": (
        layout(
            step("node"),
            step(
                "ps",
                1,
                container(ports=[{"name": "tfjob-port", "containerPort": 4444}]),
                ancestor=None,
            ),
        ),
        {"node": task(PORTS, "worker"), "ps": task(PORTS, "ps", has_port=True)},
    ),
    "another network": (
        layout(step("node"), network={"subdomain": "net"}),
        {"node": task('{"worker":["demo-node-0-0.net:29500"]}', "worker")},
    ),
    "no trainer step": (layout(step("any", ancestor=None)), {}),
}


@pytest.mark.parametrize(("given", "pods"), CONTRIBUTIONS.values(), ids=CONTRIBUTIONS)
def test_contributions(given: JobLayout, pods: dict[str, PodAddition]) -> None:
    assert TensorFlow().build_contribution(given) == Contribution(pods=pods)
    assert TensorFlow().validate(given) == []


def test_what_a_pod_reads_is_what_the_training_operator_wrote() -> None:
    """The second parameter server of the recorded TFJob `tf-ps-worker`, but for its addresses."""
    given = layout(step("worker"), step("ps", 2, ancestor=None), trainer=Trainer(num_nodes=2))
    env = TensorFlow().build_contribution(given).pods["ps"].containers["node"].env
    text = expand(env[1]["value"], {"TF_TASK_INDEX": "1"})
    assert text == (
        '{"cluster":{"ps":["demo-ps-0-0.demo:29500","demo-ps-0-1.demo:29500"],"worker":["demo-worker-0-0.demo:'
        '29500","demo-worker-0-1.demo:29500"]},"task":{"type":"ps","index":1},"environment":"cloud"}'
    )
    assert json.loads(text)["task"] == {"type": "ps", "index": 1}


def test_the_index_stands_before_what_refers_to_it() -> None:
    spec = runtime_spec(step("node"), step("ps"), policy=TENSORFLOW)
    job = train_job(Trainer(env=[{"name": "A", "value": "1"}], command=["python", "train.py"]))
    jobs = render_job_set(job, runtime(spec))["spec"]["replicatedJobs"]
    for replicated in jobs:
        (node,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
        names = [entry["name"] for entry in node["env"]]
        assert names.index("TF_TASK_INDEX") < names.index("TF_CONFIG")
        assert "A" in names
        assert node["command"] == ["python", "train.py"]


def in_runtime(detail: str, value: str) -> FieldError:
    return FieldError(path="spec.runtimeRef", rule=Rule.INVALID, detail=detail, value=value)


REFUSED: dict[str, tuple[JobLayout, list[FieldError]]] = {
    "a type for a job that is not there": (
        layout(step("node"), policy=choosing(node="worker", pss="ps")),
        [
            in_runtime(
                "spec.mlPolicy.tensorflow.tasks of the runtime names a replicated job 'pss', which is not "
                "there; use one of 'node'",
                "pss",
            )
        ],
    ),
    "a trainer step without a type": (
        layout(step("node"), step("ps", ancestor=None), policy=choosing(ps="ps")),
        [
            in_runtime(
                "spec.mlPolicy.tensorflow.tasks of the runtime lacks the trainer step 'node', which would be "
                "no part of the cluster; add it",
                "node",
            )
        ],
    ),
    "two jobs of one type": (
        layout(step("node"), step("worker", ancestor=None)),
        [
            in_runtime(
                "2 replicated jobs of the runtime are tasks of type worker, whose indexes would be the same; "
                "make it one with more pods",
                "worker",
            )
        ],
    ),
    "chief and master": (
        layout(step("node"), step("chief", ancestor=None), step("master", ancestor=None)),
        [
            in_runtime(
                "a cluster has one chief, but the runtime has a chief and a master, which is the same; "
                "remove one",
                "master",
            )
        ],
    ),
    "two chiefs, of the runtime": (
        layout(step("node"), step("chief", 2, ancestor=None)),
        [in_runtime("a cluster has one chief, and 2 pods of 'chief' would be it; make it 1", "chief")],
    ),
    "two chiefs, of the job": (
        layout(step("chief"), trainer=Trainer(num_nodes=2)),
        [
            FieldError(
                path="spec.trainer.numNodes",
                rule=Rule.INVALID,
                detail="a cluster has one chief, and 2 pods of 'chief' would be it; make it 1, or use a "
                "runtime in which the trainer step is the workers",
                value=2,
            )
        ],
    ),
    "replicas": (
        layout(step("node"), step("ps", ancestor=None, replicas=2)),
        [
            in_runtime(
                "replicated job 'ps' of the runtime has 2 replicas, whose pods have the same indexes; make "
                "it 1 and set parallelism",
                "ps",
            )
        ],
    ),
    "pods without an index": (
        layout(step("node"), step("ps", ancestor=None, job={"completionMode": "NonIndexed"})),
        [
            in_runtime(
                "replicated job 'ps' of the runtime has completionMode NonIndexed, so its pods have no "
                "index; remove it",
                "ps",
            )
        ],
    ),
    "no container for it": (
        layout(step("node"), step("ps", 1, container("server"), ancestor=None)),
        [
            in_runtime(
                "replicated job 'ps' of the runtime needs a container 'node' for the tensorflow framework",
                "ps",
            )
        ],
    ),
    "set by the runtime": (
        layout(step("node", 1, container(env=[{"name": "TF_CONFIG", "value": "{}"}]))),
        [
            in_runtime(
                "replicated job 'node' of the runtime sets TF_CONFIG, which the tensorflow framework does "
                "from the job itself; remove it from the runtime",
                "node",
            )
        ],
    ),
    "set by the job": (
        layout(trainer=Trainer(env=[{"name": "TF_CONFIG", "value": "{}"}])),
        [
            FieldError(
                path="spec.trainer.env",
                rule=Rule.INVALID,
                detail="TF_CONFIG: set by the tensorflow framework from the job itself; remove from the list",
                value=["TF_CONFIG"],
            )
        ],
    ),
    "more addresses than a variable holds": (
        layout(trainer=Trainer(num_nodes=5000)),
        [
            FieldError(
                path="spec.trainer.numNodes",
                rule=Rule.TOO_MANY,
                detail="TF_CONFIG with the addresses of 5000 tasks has 148974 bytes, a variable at most "
                "131072; use fewer nodes, or a shorter name",
                value=5000,
            )
        ],
    ),
}


@pytest.mark.parametrize(("given", "errors"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(given: JobLayout, errors: list[FieldError]) -> None:
    assert TensorFlow().validate(given) == errors


def test_the_longest_config_that_is_let_through_fits_into_a_variable() -> None:
    counts = range(4300, 4480)
    allowed = max(n for n in counts if not TensorFlow().validate(layout(trainer=Trainer(num_nodes=n))))
    assert allowed < counts[-1]
    env = TensorFlow().build_contribution(layout(trainer=Trainer(num_nodes=allowed))).pods["node"]
    value = expand(env.containers["node"].env[1]["value"], {"TF_TASK_INDEX": str(allowed - 1)})
    assert 128 * 1024 - 64 < len(f"TF_CONFIG={value}") + 1 <= 128 * 1024


WAITS = (
    "parameter servers never end, but the job waits for replicated job 'ps': to let it be complete when its "
    "workers are, set successPolicy: {operator: All, targetReplicatedJobs: [worker]} in the runtime"
)
WARNINGS: dict[str, tuple[Json | None, list[str]]] = {
    "without a success policy": (None, [WAITS]),
    "all jobs": ({"operator": "All"}, [WAITS]),
    "the servers among others": ({"operator": "All", "targetReplicatedJobs": ["worker", "ps"]}, [WAITS]),
    "the workers": (SUCCESS, []),
    "any job": ({"operator": "Any"}, []),
}


@pytest.mark.parametrize(("success", "warnings"), WARNINGS.values(), ids=WARNINGS)
def test_waiting_for_parameter_servers_is_warned_about(success: Json | None, warnings: list[str]) -> None:
    fields = {"successPolicy": success} if success else {}
    given = layout(step("worker"), step("ps"), step("evaluator"), **fields)
    assert TensorFlow().list_warnings(given) == warnings


@pytest.mark.parametrize("kind", ["chief", "master"])
def test_the_chief_is_what_to_wait_for_where_there_is_one(kind: str) -> None:
    """Workers that it commands never end, no more than servers do."""
    assert TensorFlow().list_warnings(layout(step("worker"), step(kind), step("ps"))) == [
        "parameter servers never end, but the job waits for replicated job 'ps': to let it be complete when "
        f"its chief is, set successPolicy: {{operator: All, targetReplicatedJobs: [{kind}]}} in the runtime"
    ]


def test_workers_alone_need_no_success_policy() -> None:
    assert TensorFlow().list_warnings(layout()) == []


def spec_of_four() -> RuntimeSpec:
    return runtime_spec(step("worker"), step("ps", 2), policy=TENSORFLOW)


def test_nodes_of_the_job_are_workers() -> None:
    jobs = render_job_set(train_job(Trainer(num_nodes=3)), runtime(spec_of_four()))["spec"]["replicatedJobs"]
    assert [job["template"]["spec"]["parallelism"] for job in jobs] == [3, 2]


def test_processes_that_nobody_starts_are_warned_of() -> None:
    assert TensorFlow().list_warnings(layout(trainer=Trainer(num_proc_per_node=4))) == [
        "spec.trainer.numProcPerNode is 4, which has no effect: TensorFlow runs one process on each node and "
        "gives it all accelerators; leave it out, or ask for more nodes"
    ]
