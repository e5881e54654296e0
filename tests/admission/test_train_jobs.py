"""What a TrainJob may say, by itself and over its runtime."""

# ruff: noqa: E501 (messages stay on one line)

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from template.builders import (
    PLAIN,
    TORCH,
    container,
    patch,
    pod_patch,
    replicated_job,
    runtime,
    runtime_spec,
    train_job,
)
from trainwright.admission import Verdict, default_train_job, validate_train_job
from trainwright.api.constants import ANCESTOR_LABEL
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import ClusterTrainingRuntime, FluxPolicy, MLPolicy, Runtime, TrainingRuntime
from trainwright.api.trainjob import (
    Initializer,
    InitializerSource,
    RuntimePatch,
    RuntimeRef,
    SecretRef,
    Trainer,
    TrainJob,
    TrainJobSpec,
)
from trainwright.frameworks.plain import Plain

NOW = datetime(2026, 1, 31, tzinfo=UTC)
MOUNT = {"name": "initializer", "mountPath": "/workspace"}
PATCH = "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0]"
POD = f"{PATCH}.template.spec.template.spec"


def validate(job: TrainJob, given: Runtime | None = None, **known: Any) -> Verdict:
    """Validate a new TrainJob, with its defaults, over a plain runtime where none is given."""
    return validate_train_job(default_train_job(job, None, NOW), given or runtime(runtime_spec()), **known)


def messages(verdict: Verdict) -> list[str]:
    return [str(error) for error in verdict.errors]


def test_a_good_job_is_allowed_without_a_word() -> None:
    job = train_job(
        Trainer(num_nodes=4, command=["python"], resources_per_node=ResourceRequirements(limits={"cpu": 2})),
        runtime_patches=[
            pod_patch({"nodeSelector": {"a": "b"}}),
            RuntimePatch(manager="kueue.x-k8s.io/manager"),
        ],
    )

    assert validate(job) == Verdict()


def test_a_job_without_a_trainer_block_is_allowed() -> None:
    assert validate(train_job(), runtime(runtime_spec(policy=MLPolicy(torch=TORCH.torch), replicatedJobs=[replicated_job("node", container(resources={"limits": {"cpu": 1}}))]))) == Verdict()  # fmt: skip


# -- by itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "a-1", "a" * 48])
def test_a_name_that_fits_everywhere_is_allowed(name: str) -> None:
    assert messages(validate(train_job(name=name))) == []


@pytest.mark.parametrize("name", ["", "A", "1a", "a-", "a.b", "a_b", "a" * 64])
def test_a_name_that_is_no_label_is_invalid(name: str) -> None:
    verdict = validate(train_job(name=name))

    assert [error.path for error in verdict.invalid] == ["metadata.name"]
    assert verdict.status_code == 422


def test_a_name_to_be_generated_is_checked_with_the_length_that_it_will_have() -> None:
    def generated(prefix: str) -> TrainJob:
        job = train_job(name="")
        return msgspec.structs.replace(job, metadata=ObjectMeta(generate_name=prefix))

    assert messages(validate(generated("a" * 42 + "-"))) == []
    assert [error.path for error in validate(generated("a" * 43 + "-")).errors] == ["metadata.name"]
    assert [error.path for error in validate(generated("A-")).errors] == ["metadata.name"]


def test_a_name_whose_pods_would_have_too_long_names_is_denied_with_the_limit() -> None:
    verdict = validate(train_job(Trainer(num_nodes=11), name="a" * 48))

    assert messages(verdict) == [
        f"metadata.name: the pods of node would be called {'a' * 48}-node-0-10-xxxxx, 64 characters where 63 are allowed; with this runtime use a name of at most 47 characters"
    ]


def test_structs_made_by_programs_are_held_to_the_schema_as_well() -> None:
    job = train_job(
        Trainer(
            num_nodes=-1,
            num_proc_per_node=0,
            image="i" * 501,
            args=["a"] * 129,
            env=[{"name": "A"}, {"name": "A"}, {"value": "x"}],
            resources_per_node=ResourceRequirements(limits={"cpu": "lots"}),
        ),
        active_deadline_seconds=0,
        ttl_seconds_after_finished=-1,
        managed_by="me",
        initializer=Initializer(dataset=InitializerSource(storage_uri="s3://")),
        runtime_patches=[
            RuntimePatch(manager=""),
            RuntimePatch(manager="a.b/c"),
            RuntimePatch(manager="a.b/c"),
        ],
    )
    verdict = validate(job)

    assert verdict.status_code == 422
    assert [error.path for error in verdict.errors] == [
        "spec.initializer.dataset.storageUri",
        "spec.trainer.image",
        "spec.trainer.args",
        "spec.trainer.env[2].name",
        "spec.trainer.env[1]",
        "spec.trainer.numNodes",
        "spec.trainer.resourcesPerNode.limits[cpu]",
        "spec.trainer.numProcPerNode",
        "spec.runtimePatches[0].manager",
        "spec.runtimePatches[2]",
        "spec.activeDeadlineSeconds",
        "spec.managedBy",
        "spec.ttlSecondsAfterFinished",
    ]


def test_no_training_nodes_at_all_is_allowed_with_a_warning() -> None:
    verdict = validate(train_job(Trainer(num_nodes=0)))

    assert verdict.errors == ()
    assert verdict.warnings == (
        "spec.trainer.numNodes is 0: only initializers and other steps run, no training node; leave it out for the runtime's own number",
    )


# -- the runtime -----------------------------------------------------------------------------------------------


def test_a_job_without_a_spec_is_denied() -> None:
    assert messages(validate(TrainJob(metadata=ObjectMeta(name="a")))) == [
        "spec.runtimeRef: required; name the runtime: spec: {runtimeRef: {name: ...}}"
    ]


REFERENCES: dict[str, tuple[RuntimeRef, list[str], list[str]]] = {
    "unknown, others known": (
        RuntimeRef(name="torch-distribted"),
        ["torch-distributed", "plain"],
        [
            "spec.runtimeRef: ClusterTrainingRuntime 'torch-distribted' does not exist; known are plain, torch-distributed; did you mean torch-distributed? (for one of the job's own namespace, set spec.runtimeRef.kind: TrainingRuntime)"
        ],
    ),
    "unknown, none known": (
        RuntimeRef(name="x", kind="TrainingRuntime"),
        [],
        ["spec.runtimeRef: TrainingRuntime 'x' does not exist; make it before the TrainJob"],
    ),
    "kind and group": (
        RuntimeRef(name="x", kind="Trainingruntime", api_group="example.com"),
        [],
        [
            "spec.runtimeRef.apiGroup: 'example.com' has no runtimes that can be used here; leave it out, or write trainer.kubeflow.org",
            "spec.runtimeRef.kind: 'Trainingruntime' is no kind of runtime; use ClusterTrainingRuntime or TrainingRuntime; did you mean TrainingRuntime?",
        ],
    ),
}


@pytest.mark.parametrize("case", REFERENCES.values(), ids=REFERENCES)
def test_a_runtime_that_is_not_there_is_answered_with_what_is(
    case: tuple[RuntimeRef, list[str], list[str]],
) -> None:
    reference, known, expected = case
    job = TrainJob(metadata=ObjectMeta(name="a"), spec=TrainJobSpec(runtime_ref=reference))

    verdict = validate_train_job(default_train_job(job, None, NOW), None, known_runtimes=known)

    assert messages(verdict) == expected


BROKEN: dict[str, tuple[Runtime, str]] = {
    "no spec": (
        TrainingRuntime(metadata=ObjectMeta(name="rt")),
        "TrainingRuntime 'rt' cannot be used: spec.template.spec.replicatedJobs: a runtime needs at least one replicated job",
    ),
    "no replicated jobs": (
        runtime(runtime_spec(replicatedJobs=[])),
        "TrainingRuntime 'rt' cannot be used: spec.template.spec.replicatedJobs: a runtime needs at least one replicated job",
    ),
    "no container for the job's settings": (
        runtime(runtime_spec(replicated_job("node", container("main")))),
        "TrainingRuntime 'rt' cannot be used: spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers: the step 'trainer' must have a container 'node'",
    ),
    "a volume claim of no amount": (
        runtime(
            runtime_spec(
                volumeClaimPolicies=[
                    {
                        "templates": [
                            {
                                "metadata": {"name": "v"},
                                "spec": {"resources": {"requests": {"storage": "much"}}},
                            }
                        ]
                    }
                ]
            )
        ),
        "TrainingRuntime 'rt' cannot be used: spec.template.spec.volumeClaimPolicies[0].templates[0].spec.resources.requests[storage]: 'much' is no quantity; write a number with a suffix: 500m, 2, 1.5, 16Gi, 1e3",
    ),
    "more replicated jobs than a status can tell of": (
        runtime(runtime_spec(*(replicated_job(f"j{i}") for i in range(101)))),
        "TrainingRuntime 'rt' cannot be used: spec.template.spec.replicatedJobs: may have at most 100 items, has 101: the status of a TrainJob has room for no more; make several Jobs of one replicated job by replicas",
    ),
    "wrong in more places than anybody reads": (
        runtime(runtime_spec(*({"name": f"j{i}", "template": 3} for i in range(12)))),
        "TrainingRuntime 'rt' cannot be used: "
        + "; ".join(
            f"spec.template.spec.replicatedJobs[{i}].template: expected an object, found the number 3"
            for i in range(10)
        )
        + "; and 2 more",
    ),
    "unreadable": (
        runtime(runtime_spec({"name": "node", "template": 3})),
        "TrainingRuntime 'rt' cannot be used: spec.template.spec.replicatedJobs[0].template: expected an object, found the number 3",
    ),
}


@pytest.mark.parametrize("case", BROKEN.values(), ids=BROKEN)
def test_a_runtime_that_cannot_be_used_is_one_error(case: tuple[Runtime, str]) -> None:
    given, expected = case

    assert messages(validate(train_job(Trainer()), given)) == [f"spec.runtimeRef: {expected}"]


def test_fields_of_a_newer_job_set_in_a_runtime_do_not_matter() -> None:
    assert validate(train_job(), runtime(runtime_spec(fieldOfTomorrow={"a": 1}))) == Verdict()


def test_rules_of_job_set_are_held_against_the_runtime_that_is_used() -> None:
    given = runtime(runtime_spec(successPolicy={"operator": "All", "targetReplicatedJobs": ["x"]}))

    assert messages(validate(train_job(), given)) == [
        "spec.runtimeRef: TrainingRuntime 'rt': spec.template.spec.successPolicy.targetReplicatedJobs[0]: there is no replicated job 'x'; known are node"
    ]


def test_a_claim_may_be_mounted_by_a_patch() -> None:
    given = runtime(
        runtime_spec(volumeClaimPolicies=[{"templates": [{"metadata": {"name": "data"}, "spec": {}}]}])
    )
    mounting = pod_patch(
        {"containers": [{"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}]}
    )

    assert [error.path for error in validate(train_job(), given).errors] == ["spec.runtimeRef"]
    assert validate(train_job(runtime_patches=[mounting]), given) == Verdict()


@pytest.mark.parametrize("kind", [TrainingRuntime, ClusterTrainingRuntime])
def test_a_deprecated_runtime_is_a_warning(kind: Any) -> None:
    labels = {"trainer.kubeflow.org/support": "deprecated"}
    given = kind(metadata=ObjectMeta(name="old", labels=labels), spec=runtime_spec())
    job = default_train_job(train_job(), None, NOW)

    for old in (None, job):
        [warning] = validate_train_job(job, given, old).warnings
        assert warning.startswith(f'Referenced {kind.__name__} "old" is deprecated and will be removed')


def test_a_framework_that_is_not_supported_is_denied() -> None:
    given = runtime(runtime_spec(policy=MLPolicy(flux=FluxPolicy())))
    verdict = validate(train_job(), given, frameworks=(Plain(),))

    assert [error.path for error in verdict.denied] == ["spec.runtimeRef"]
    assert "framework flux is not supported" in verdict.denied[0].detail


def test_what_frameworks_have_to_say_is_part_of_the_verdict() -> None:
    given = runtime(runtime_spec(policy=TORCH))
    reserved = train_job(Trainer(env=[{"name": "PET_NNODES", "value": "3"}]))

    assert [error.path for error in validate(reserved, given).denied] == ["spec.trainer.env"]
    [idle] = validate(
        train_job(
            Trainer(
                num_proc_per_node=1, resources_per_node=ResourceRequirements(limits={"nvidia.com/gpu": 2})
            )
        ),
        given,
    ).warnings
    assert "1 of them may stay idle" in idle
    [alone] = validate(train_job(Trainer()), given).warnings
    assert "each node runs one process" in alone


# -- targets ---------------------------------------------------------------------------------------------------


def test_a_trainer_block_needs_a_trainer_step() -> None:
    given = runtime(runtime_spec(replicated_job(ancestor=None)))

    assert messages(validate(train_job(Trainer()), given)) == [
        "spec.trainer: TrainingRuntime 'rt' has no trainer step, so this has no effect; remove it, or use another runtime"
    ]
    assert validate(train_job(), given) == Verdict()


def initializing(uri: str | None = "s3://bucket/path", **models: Any) -> TrainJob:
    return train_job(initializer=Initializer(dataset=InitializerSource(storage_uri=uri), **models))


def dataset_step(*containers: Json, name: str = "dataset-initializer", ancestor: str | None = "dataset-initializer", **fields: Any) -> Runtime:  # fmt: skip
    step = replicated_job(name, *containers, ancestor=ancestor, **fields)
    return runtime(runtime_spec(step, replicated_job()))


FETCHING = container("dataset-initializer", volumeMounts=[MOUNT])
INITIALIZERS: dict[str, tuple[TrainJob, Runtime, list[str]]] = {
    "all there": (initializing(), dataset_step(FETCHING), []),
    "by label, whatever the name": (initializing(), dataset_step(FETCHING, name="fetch"), []),
    "no initializers given": (train_job(initializer=Initializer()), runtime(runtime_spec()), []),
    "no step": (
        initializing(model=InitializerSource()),
        runtime(runtime_spec()),
        [
            f"spec.initializer.{field} needs a replicated job with the label {ANCESTOR_LABEL}: {field}-initializer on its Job template; TrainingRuntime 'rt' has none"
            for field in ("dataset", "model")
        ],
    ),
    "the name without the label": (
        initializing(),
        dataset_step(FETCHING, ancestor=None),
        [
            f"spec.initializer.dataset needs a replicated job with the label {ANCESTOR_LABEL}: dataset-initializer on its Job template; TrainingRuntime 'rt' has one of that name, without the label"
        ],
    ),
    "no container": (
        initializing(),
        dataset_step(container("other"), pod={"initContainers": [FETCHING]}),
        [
            "spec.initializer.dataset needs a container 'dataset-initializer' in the replicated job 'dataset-initializer' of TrainingRuntime 'rt'"
        ],
    ),
    "no mount": (
        initializing(),
        dataset_step(container("dataset-initializer")),
        [
            "spec.initializer.dataset needs a volumeMount named 'initializer' in the container 'dataset-initializer' of TrainingRuntime 'rt', or what it fetches is lost"
        ],
    ),
    "a scheme that is served, among the variables": (
        train_job(
            initializer=Initializer(
                dataset=InitializerSource(
                    storage_uri="s3://bucket/path", env=[{"name": "STORAGE_URI", "value": "cache://a/b"}]
                )
            )
        ),
        dataset_step(container("dataset-initializer")),
        [],
    ),
    "no mount, but nothing is written": (
        initializing("cache://schema/table"),
        dataset_step(container("dataset-initializer")),
        [],
    ),
    "no mount, and the runtime's own URI writes nothing": (
        initializing(None),
        dataset_step(container("dataset-initializer", env=[{"name": "STORAGE_URI", "value": "cache://a/b"}])),
        [],
    ),
}


def test_a_secret_without_a_name_is_refused_where_it_stands() -> None:
    """The API server would refuse the pods."""
    job = train_job(initializer=Initializer(dataset=InitializerSource(secret_ref=SecretRef())))
    assert messages(validate(job, dataset_step(FETCHING))) == [
        "spec.initializer.dataset.secretRef.name: required; name the Secret whose keys the initializer gets as variables, or remove secretRef"
    ]


@pytest.mark.parametrize("case", INITIALIZERS.values(), ids=INITIALIZERS)
def test_an_initializer_needs_a_step_to_run_in(case: tuple[TrainJob, Runtime, list[str]]) -> None:
    job, given, expected = case

    assert messages(validate(job, given)) == [f"spec.runtimeRef: {message}" for message in expected]


def labelling(labels: Json) -> Json:
    return {"replicatedJobs": [{"name": "node", "template": {"metadata": {"labels": labels}}}]}


WITH_INIT = runtime(runtime_spec(replicated_job("node", container(), container("side"), pod={"initContainers": [container("init")]})))  # fmt: skip
PATCHES: dict[str, tuple[RuntimePatch, list[str]]] = {
    "manager": (
        RuntimePatch(manager="acme"),
        [
            'spec.runtimePatches[0].manager: "acme" must be a domain, a slash and a name, such as example.com/queue'
        ],
    ),
    "replicated job (B021)": (
        pod_patch({"nodeSelector": {"a": "b"}}, name="noed"),
        [f"{PATCH}.name: the runtime has no replicated job 'noed'; use one of 'node'"],
    ),
    "containers are not init containers": (
        pod_patch({"containers": [{"name": "init"}], "initContainers": [{"name": "side"}]}),
        [
            f"{POD}.initContainers[0].name: replicated job 'node' of the runtime has no init container 'side'; use one of 'init'",
            f"{POD}.containers[0].name: replicated job 'node' of the runtime has no container 'init'; use one of 'node', 'side'",
        ],
    ),
    "variables of the trainer": (
        pod_patch({"containers": [{"name": "node", "env": [{"name": "A", "value": "1"}]}]}),
        [
            f"{POD}.containers[0].env: a patch may not set variables of node; set spec.trainer.env or spec.initializer instead"
        ],
    ),
    "variables of other containers": (
        pod_patch(
            {
                "containers": [{"name": "side", "env": [{"name": "A", "value": "1"}]}],
                "initContainers": [{"name": "init", "env": [{"name": "A", "value": "1"}]}],
            }
        ),
        [],
    ),
    "ancestor label (G04)": (
        patch(labelling({ANCESTOR_LABEL: "trainer"})),
        [
            f"{PATCH}.template.metadata.labels[{ANCESTOR_LABEL}]: says in the runtime which step this is, and may not be patched; remove it"
        ],
    ),
    "other labels": (patch(labelling({"a": "b"}), metadata={"annotations": {"c": "d"}}), []),
    "nothing": (RuntimePatch(manager="kueue.x-k8s.io/manager"), []),
}


@pytest.mark.parametrize("case", PATCHES.values(), ids=PATCHES)
def test_a_patch_reaches_what_the_runtime_has(case: tuple[RuntimePatch, list[str]]) -> None:
    given, expected = case

    assert messages(validate(train_job(runtime_patches=[given]), WITH_INIT)) == expected


def test_two_managers_may_patch_the_same_replicated_job() -> None:
    patches = [pod_patch({"nodeSelector": {"a": "b"}}, manager=f"example.com/{i}") for i in range(2)]

    assert validate(train_job(runtime_patches=patches)) == Verdict()


def test_a_mount_of_a_volume_that_no_patch_and_no_runtime_has_is_a_warning() -> None:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("own", "new", "ghost")]
    given = runtime(runtime_spec(replicated_job(pod={"volumes": [{"name": "own", "emptyDir": {}}]})))
    job = train_job(
        runtime_patches=[
            pod_patch(
                {
                    "volumes": [{"name": "new", "emptyDir": {}}],
                    "containers": [{"name": "node", "volumeMounts": mounts}],
                }
            )
        ]
    )

    assert validate(job, given) == Verdict(
        warnings=(f"{POD}.containers[0].volumeMounts[2].name: node has no volume 'ghost'",)
    )


# -- resources -------------------------------------------------------------------------------------------------


def test_all_that_is_wrong_comes_at_once() -> None:
    job = train_job(
        Trainer(
            env=[{"name": "PET_NNODES"}], resources_per_node=ResourceRequirements(requests={"a.b/gpu": 1})
        ),
        name="A",
        initializer=Initializer(model=InitializerSource()),
        runtime_patches=[RuntimePatch(manager="acme"), pod_patch({"nodeSelector": {"a": "b"}}, name="x")],
    )

    assert [error.path for error in validate(job, runtime(runtime_spec(policy=TORCH))).errors] == [
        "metadata.name",
        "spec.runtimePatches[0].manager",
        "spec.runtimeRef",
        "spec.runtimePatches[1].trainingRuntimeSpec.template.spec.replicatedJobs[0].name",
        "spec.trainer.resourcesPerNode.requests[a.b/gpu]",
        "spec.trainer.env",
    ]


def test_a_plain_policy_is_a_policy() -> None:
    assert validate(train_job(Trainer(num_nodes=3)), runtime(runtime_spec(policy=PLAIN))) == Verdict()
    assert validate(train_job(Trainer(num_nodes=3)), runtime(runtime_spec(policy=None))) == Verdict()
