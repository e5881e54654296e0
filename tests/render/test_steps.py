"""The steps of the pipeline one by one, after the case list of spec 02 section 16.12."""

from __future__ import annotations

from typing import Any

import pytest

from template.builders import IMAGE, container, replicated_job, runtime_spec, train_job
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import MLPolicy
from trainwright.api.trainjob import (
    Initializer,
    InitializerSource,
    SecretRef,
    Trainer,
)
from trainwright.frameworks import ContainerAddition, Contribution, PodAddition
from trainwright.render.contributions import add_contribution, set_commands
from trainwright.render.counts import set_counts
from trainwright.render.initializers import set_initializer
from trainwright.render.trainer import set_trainer
from trainwright.template.pod_sets import build_pod_sets
from trainwright.template.steps import Step, list_steps

ENV = [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]
LAST_WORDS = {"terminationMessagePolicy": "FallbackToLogsOnError"}


def with_pod(pod: Json, **fields: Any) -> Json:
    """A replicated job without a label whose pod spec is this."""
    return {"name": "node", "template": {"spec": {"template": {"spec": pod}}}, **fields}


CONTRIBUTIONS: dict[str, tuple[Json, PodAddition, Json]] = {
    "1 variables of an init container": (
        {"containers": [container()], "initContainers": [container("i", env=ENV)]},
        PodAddition(
            containers={"i": ContainerAddition(env=({"name": "B", "value": "2"},))},
        ),
        {
            "containers": [container()],
            "initContainers": [
                container("i", env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])
            ],
        },
    ),
    "2 ports and mounts of an init container": (
        {"containers": [container()], "initContainers": [container("i", ports=[{"containerPort": 1}])]},
        PodAddition(
            containers={
                "i": ContainerAddition(
                    ports=({"containerPort": 2},), volume_mounts=({"name": "v", "mountPath": "/v"},)
                )
            }
        ),
        {
            "containers": [container()],
            "initContainers": [
                container(
                    "i",
                    ports=[{"containerPort": 1}, {"containerPort": 2}],
                    volumeMounts=[{"name": "v", "mountPath": "/v"}],
                )
            ],
        },
    ),
    "3 two init containers keep their order": (
        {"containers": [container()], "initContainers": [container("a"), container("b")]},
        PodAddition(
            containers={
                "b": ContainerAddition(env=({"name": "X", "value": "b"},)),
                "a": ContainerAddition(env=({"name": "X", "value": "a"},)),
            },
        ),
        {
            "containers": [container()],
            "initContainers": [
                container("a", env=[{"name": "X", "value": "a"}]),
                container("b", env=[{"name": "X", "value": "b"}]),
            ],
        },
    ),
    "4 an init container that the template lacks comes last": (
        {"containers": [container()], "initContainers": [container("a")]},
        PodAddition(init_containers=({"name": "new", "image": IMAGE}, {"name": "a", "image": "other"})),
        {"containers": [container()], "initContainers": [container("a", image="other"), container("new")]},
    ),
    "a new init container may get variables of its own": (
        {"containers": [container()]},
        PodAddition(
            init_containers=({"name": "new", "image": IMAGE},),
            containers={"new": ContainerAddition(env=tuple(ENV))},
        ),
        {"containers": [container()], "initContainers": [container("new", env=ENV)]},
    ),
    "volumes": (
        {"containers": [container()], "volumes": [{"name": "v", "emptyDir": {}}]},
        PodAddition(volumes=({"name": "w", "secret": {"secretName": "s"}},)),
        {
            "containers": [container()],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "secret": {"secretName": "s"}}],
        },
    ),
    "a name among both kinds means the container": (
        {"containers": [container("x")], "initContainers": [container("x")]},
        PodAddition(containers={"x": ContainerAddition(env=tuple(ENV))}),
        {"containers": [container("x", env=ENV)], "initContainers": [container("x")]},
    ),
    "a command, which is set later": (
        {"containers": [container(command=["run"])]},
        PodAddition(containers={"node": ContainerAddition(command=("go",))}),
        {"containers": [container(command=["run"])]},
    ),
}


@pytest.mark.parametrize(("pod", "addition", "expected"), CONTRIBUTIONS.values(), ids=CONTRIBUTIONS)
def test_contributions_are_folded_in(pod: Json, addition: PodAddition, expected: Json) -> None:
    contribution = Contribution(pods={"node": addition, "other": PodAddition(volumes=({"name": "x"},))})
    assert add_contribution(with_pod(pod), contribution) == with_pod(expected)


def test_a_replicated_job_without_a_contribution_is_the_same() -> None:
    untouched = replicated_job("setup", ancestor=None)
    assert add_contribution(untouched, Contribution(pods={"node": PodAddition()})) is untouched


def test_commands_are_set_in_containers_and_init_containers() -> None:
    pod = {"containers": [container(command=["run"]), container("side")], "initContainers": [container("i")]}
    addition = PodAddition(
        containers={
            "node": ContainerAddition(command=("go", "fast")),
            "i": ContainerAddition(command=("check",)),
            "side": ContainerAddition(env=tuple(ENV)),
        }
    )
    assert set_commands(with_pod(pod), Contribution(pods={"node": addition})) == with_pod(
        {
            "containers": [container(command=["go", "fast"]), container("side")],
            "initContainers": [container("i", command=["check"])],
        }
    )


def test_without_a_command_nothing_is_changed() -> None:
    untouched = replicated_job("node")
    addition = PodAddition(containers={"node": ContainerAddition(env=tuple(ENV))})
    assert set_commands(untouched, Contribution(pods={"node": addition})) is untouched


def initializer_job(kind: str, **fields: Any) -> Json:
    return replicated_job(
        "any-name", container(f"{kind}-initializer", **fields), ancestor=f"{kind}-initializer"
    )


INITIALIZERS: dict[str, tuple[InitializerSource | None, Json, Json]] = {
    "5, 6 storage URI and secret": (
        InitializerSource(storage_uri="hf://x", secret_ref=SecretRef(name="s")),
        {},
        {"env": [{"name": "STORAGE_URI", "value": "hf://x"}], "envFrom": [{"secretRef": {"name": "s"}}]},
    ),
    "7 variables over the template's": (
        InitializerSource(
            storage_uri="hf://x", env=[{"name": "B", "value": "2"}, {"name": "C", "value": "3"}]
        ),
        {"env": ENV},
        {
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "value": "2"},
                {"name": "STORAGE_URI", "value": "hf://x"},
                {"name": "C", "value": "3"},
            ]
        },
    ),
    "8 no secret": (
        InitializerSource(storage_uri="hf://x"),
        {"envFrom": [{"configMapRef": {"name": "c"}}]},
        {
            "env": [{"name": "STORAGE_URI", "value": "hf://x"}],
            "envFrom": [{"configMapRef": {"name": "c"}}],
        },
    ),
    "an empty storage URI is one": (
        InitializerSource(storage_uri=""),
        {},
        {"env": [{"name": "STORAGE_URI", "value": ""}]},
    ),
    "a STORAGE_URI among the variables wins": (
        InitializerSource(storage_uri="hf://x", env=[{"name": "STORAGE_URI", "value": "hf://y"}]),
        {},
        {"env": [{"name": "STORAGE_URI", "value": "hf://y"}]},
    ),
    "an empty block": (InitializerSource(), {"env": ENV}, {"env": ENV}),
    "9 no block": (None, {"env": ENV}, {"env": ENV}),
}


@pytest.mark.parametrize("kind", ["dataset", "model"])
@pytest.mark.parametrize(("source", "original", "expected"), INITIALIZERS.values(), ids=INITIALIZERS)
def test_initializers_are_known_by_their_label(
    kind: str, source: InitializerSource | None, original: Json, expected: Json
) -> None:
    initializer = Initializer(dataset=source) if kind == "dataset" else Initializer(model=source)
    assert set_initializer(initializer_job(kind, **original), initializer) == initializer_job(
        kind, **expected
    )


@pytest.mark.parametrize("ancestor", [None, "trainer", "model-initializer", "another"])
def test_other_steps_are_not_touched_by_a_dataset(ancestor: str | None) -> None:
    untouched = replicated_job("dataset-initializer", container("dataset-initializer"), ancestor=ancestor)
    initializer = Initializer(dataset=InitializerSource(storage_uri="hf://x"))
    assert set_initializer(untouched, initializer) is untouched


TRAINERS: dict[str, tuple[Json, Trainer, Json]] = {
    "11 image, command, arguments": (
        container(command=["a"], args=["b"]),
        Trainer(image="u:2", command=["go"], args=["x"]),
        {"name": "node", "image": "u:2", "command": ["go"], "args": ["x"]},
    ),
    "12 variables in place, new ones last": (
        container(env=ENV),
        Trainer(env=[{"name": "C", "value": "3"}, {"name": "A", "value": "9"}]),
        container(
            env=[{"name": "A", "value": "9"}, {"name": "B", "value": "1"}, {"name": "C", "value": "3"}]
        ),
    ),
    "a command alone leaves the arguments": (
        container(args=["b"]),
        Trainer(command=["go"]),
        container(command=["go"], args=["b"]),
    ),
    "13 resources are merged before": (
        container(),
        Trainer(resources_per_node=ResourceRequirements(limits={"cpu": "1"})),
        container(),
    ),
    "14 nothing": (container(env=ENV), Trainer(), container(env=ENV)),
}


TRAINER_STEP = Step(runs_command=True, trains=True, uses_resources=True)


@pytest.mark.parametrize(("original", "trainer", "expected"), TRAINERS.values(), ids=TRAINERS)
def test_the_trainer_block_goes_to_the_container_node(
    original: Json, trainer: Trainer, expected: Json
) -> None:
    before = replicated_job("any-name", container("side"), original)
    after = replicated_job("any-name", container("side"), {**expected, **LAST_WORDS})
    assert set_trainer(before, trainer, TRAINER_STEP) == after


@pytest.mark.parametrize("ancestor", [None, "dataset-initializer", "another"])
def test_16_other_steps_do_not_get_the_trainer_block(ancestor: str | None) -> None:
    untouched = replicated_job(ancestor=ancestor)
    (step,) = list_steps({"replicatedJobs": [untouched]}, None)
    assert set_trainer(untouched, Trainer(image="u:2", env=ENV), step) is untouched


COUNTS: dict[str, tuple[Json, MLPolicy | None, Json, int | None]] = {
    "a trainer step": (
        replicated_job(replicas=4, job={"parallelism": 7, "completions": 9}),
        MLPolicy(num_nodes=2),
        {"parallelism": 2, "completions": 2},
        1,
    ),
    "an initializer": (
        replicated_job("d", ancestor="dataset-initializer", replicas=3),
        None,
        {"parallelism": 1, "completions": 1},
        1,
    ),
    "10 a step without a label keeps its replicas": (
        replicated_job(ancestor=None, replicas=4),
        None,
        {"parallelism": 1, "completions": 1},
        4,
    ),
    "a step without a label and without replicas": (
        replicated_job(ancestor="another"),
        None,
        {"parallelism": 1, "completions": 1},
        None,
    ),
    "a step without a label keeps its completions": (
        replicated_job(ancestor=None, job={"parallelism": 2, "completions": 8}),
        MLPolicy(num_nodes=5),
        {"parallelism": 2, "completions": 8},
        None,
    ),
    "completions alone": (
        replicated_job(ancestor=None, job={"completions": 8}),
        None,
        {"parallelism": 1, "completions": 8},
        None,
    ),
    "a work queue has no completions": (
        replicated_job(ancestor=None, job={"parallelism": 2, "completionMode": "NonIndexed"}),
        None,
        {"parallelism": 2, "completionMode": "NonIndexed"},
        None,
    ),
}


@pytest.mark.parametrize(("original", "policy", "counts", "replicas"), COUNTS.values(), ids=COUNTS)
def test_counts_are_written_back(
    original: Json, policy: MLPolicy | None, counts: Json, replicas: int | None
) -> None:
    (pod_set,) = build_pod_sets(runtime_spec(original, policy=policy), train_job())
    written = set_counts(original, pod_set)
    job_spec = {key: value for key, value in written["template"]["spec"].items() if key != "template"}
    assert (job_spec, written.get("replicas")) == (counts, replicas)
    assert written["template"]["spec"]["template"] == original["template"]["spec"]["template"]
