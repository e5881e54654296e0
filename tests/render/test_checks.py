from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template.builders import (
    PLAIN,
    container,
    pod_patch,
    replicated_job,
    runtime,
    runtime_spec,
    train_job,
)
from trainwright.api.meta import ObjectMeta
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import (
    ClusterTrainingRuntime,
    CustomPolicy,
    EnvInjection,
    EnvInjectionTarget,
    JobSetTemplate,
    MLPolicy,
    RuntimeSpec,
    TorchPolicy,
)
from trainwright.api.trainjob import (
    Initializer,
    InitializerSource,
    Trainer,
    TrainJob,
)
from trainwright.errors import InvalidObject
from trainwright.render import RenderError, render

JOB, RUNTIME = "TrainJob 'demo'", "TrainingRuntime 'rt'"
INJECTION = EnvInjection(targets=[EnvInjectionTarget(job_name="node", container_names=["ghost"])])
DATASET = Initializer(dataset=InitializerSource(storage_uri="hf://x"))
CONTAINERS = "template.spec.template.spec.containers"

# What is refused -> the object that is wrong, and the paths of all errors.
REFUSED: dict[str, tuple[TrainJob, RuntimeSpec, str, list[str]]] = {
    "a runtime without replicated jobs": (
        train_job(),
        RuntimeSpec(ml_policy=PLAIN, template=JobSetTemplate(spec={})),
        RUNTIME,
        ["spec.template.spec.replicatedJobs"],
    ),
    "a runtime without a template": (
        train_job(),
        RuntimeSpec(),
        RUNTIME,
        ["spec.template.spec.replicatedJobs"],
    ),
    "a template that is no JobSet": (
        train_job(),
        RuntimeSpec(template=JobSetTemplate(spec={"replicatedJobs": [{"name": "node"}, 3]})),
        RUNTIME,
        ["spec.template.spec.replicatedJobs[0].template", "spec.template.spec.replicatedJobs[1]"],
    ),
    "a trainer step without the container node": (
        train_job(),
        runtime_spec(replicated_job("node", container("main"))),
        RUNTIME,
        [f"spec.template.spec.replicatedJobs[0].{CONTAINERS}"],
    ),
    "an initializer that the job uses, without its container": (
        train_job(initializer=DATASET),
        runtime_spec(
            replicated_job("d", container("main"), ancestor="dataset-initializer"), replicated_job()
        ),
        RUNTIME,
        [f"spec.template.spec.replicatedJobs[0].{CONTAINERS}"],
    ),
    "a job without a spec": (TrainJob(metadata=ObjectMeta(name="demo")), runtime_spec(), JOB, ["spec"]),
    "a job without a name": (train_job(name=""), runtime_spec(), "TrainJob ''", ["metadata.name"]),
    "B021 a patch of what is not there, and everything else that is wrong with the job": (
        train_job(
            Trainer(resources_per_node=ResourceRequirements(limits={"cpu": "two"})),
            runtime_patches=[pod_patch({}, name="noed"), pod_patch({"containers": [{"name": "ghost"}]})],
        ),
        runtime_spec(),
        JOB,
        [
            "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name",
            "spec.runtimePatches[1].trainingRuntimeSpec.template.spec.replicatedJobs[0]."
            f"{CONTAINERS}[0].name",
            "spec.trainer.resourcesPerNode.limits[cpu]",
        ],
    ),
    "an injection target that is not there": (
        train_job(),
        runtime_spec(policy=MLPolicy(torch=TorchPolicy(env_injection=INJECTION))),
        JOB,
        ["spec.runtimeRef"],
    ),
    "reserved variables": (
        train_job(Trainer(env=[{"name": "PET_NNODES", "value": "1"}])),
        runtime_spec(policy=MLPolicy(torch=TorchPolicy())),
        JOB,
        ["spec.trainer.env"],
    ),
    "a framework that is not there": (
        train_job(),
        runtime_spec(policy=MLPolicy(custom=CustomPolicy(framework="ours"))),
        JOB,
        ["spec.runtimeRef"],
    ),
}


@pytest.mark.parametrize(("job", "spec", "source", "paths"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(job: TrainJob, spec: RuntimeSpec, source: str, paths: list[str]) -> None:
    with pytest.raises(RenderError) as caught:
        render(job, runtime(spec))
    assert (caught.value.source, [error.path for error in caught.value.errors]) == (source, paths)
    assert isinstance(caught.value, InvalidObject)


def test_a_runtime_without_a_spec_is_refused() -> None:
    with pytest.raises(
        RenderError, match=r"^ClusterTrainingRuntime 'rt': spec\.template\.spec\.replicatedJobs: "
    ):
        render(train_job(), ClusterTrainingRuntime(metadata=ObjectMeta(name="rt")))


@pytest.mark.parametrize("initializer", [None, Initializer(), Initializer(model=InitializerSource())])
def test_an_initializer_that_the_job_does_not_use_may_have_any_container(
    initializer: Initializer | None,
) -> None:
    spec = runtime_spec(
        replicated_job("d", container("main"), ancestor="dataset-initializer"), replicated_job()
    )
    (job_set,) = render(train_job(initializer=initializer), runtime(spec))
    assert job_set["spec"]["replicatedJobs"][0]["replicas"] == 1


def test_b059_a_template_without_a_network_is_rendered() -> None:
    assert "network" not in render(train_job(), runtime(runtime_spec(network=None)))[0]["spec"]


anything = st.recursive(
    st.none() | st.integers(-1, 2) | st.sampled_from(["", "node", "trainer", "1Gi"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["name", "spec", "metadata", "resources", "requests", "storage"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
claims = st.fixed_dictionaries({"metadata": st.just({"name": "w"}), "spec": anything})
pods = st.dictionaries(
    st.sampled_from(["volumes", "initContainers", "nodeSelector", "affinity"]), anything, max_size=2
)
templates = st.fixed_dictionaries(
    {"replicatedJobs": st.lists(anything | st.builds(lambda pod: replicated_job(pod=pod), pods), max_size=2)},
    optional={
        "network": anything,
        "failurePolicy": anything | st.fixed_dictionaries({"rules": anything}),
        "volumeClaimPolicies": anything
        | st.lists(st.fixed_dictionaries({"templates": st.lists(claims)}), max_size=1),
    },
)


@given(templates | st.dictionaries(st.just("replicatedJobs"), anything))
def test_whatever_the_template_is_it_renders_or_is_refused(template: dict[str, Any]) -> None:
    job = train_job(Trainer(num_nodes=2), runtime_patches=[pod_patch({"nodeSelector": {"a": "1"}})])
    spec = RuntimeSpec(ml_policy=MLPolicy(torch=TorchPolicy()), template=JobSetTemplate(spec=template))
    try:
        objects = render(job, runtime(spec))
    except RenderError:
        return  # any other exception is a bug
    assert [obj["kind"] for obj in objects] == ["JobSet"]
