"""Whole jobs, after the case list of spec 02 section 16.17 and the worked examples of both specs."""

from __future__ import annotations

from typing import Any

import pytest

from template.builders import (
    TORCH,
    container,
    patch,
    pod_patch,
    replicated_job,
    runtime,
    runtime_spec,
    train_job,
)
from trainwright.api.constants import ANCESTOR_LABEL, RANK_FIELD_PATH, TEMPLATE_HASH_ANNOTATION
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import (
    EnvInjection,
    EnvInjectionTarget,
    MLPolicy,
    RuntimeSpec,
    TorchPolicy,
)
from trainwright.api.trainjob import (
    Initializer,
    InitializerSource,
    SecretRef,
    Trainer,
    TrainJob,
)
from trainwright.render import build_template_hash, render, render_job_set
from trainwright.runtimes import load_shipped_runtimes

OWNER: Json = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "name": "demo",
    "uid": "u-1",
    "controller": True,
    "blockOwnerDeletion": True,
}
LAST_WORDS = {"terminationMessagePolicy": "FallbackToLogsOnError"}
TRAINER_LABELS = {ANCESTOR_LABEL: "trainer"}


def job_set(spec: Json, *, labels: Json | None = None, annotations: Json | None = None) -> Json:
    """The JobSet of the TrainJob `demo`."""
    metadata: Json = {"name": "demo", "namespace": "ns", "ownerReferences": [OWNER]}
    metadata["annotations"] = {**(annotations or {}), TEMPLATE_HASH_ANNOTATION: build_template_hash(spec)}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def rendered_job(
    name: str,
    pod: Json,
    *,
    count: int = 1,
    ancestor: str | None = None,
    job_metadata: Json | None = None,
    pod_metadata: Json | None = None,
    job: Json | None = None,
    **fields: Any,
) -> Json:
    """One replicated job as it is rendered."""
    pod_template: Json = {"spec": pod, **({"metadata": pod_metadata} if pod_metadata else {})}
    template: Json = {
        "spec": {"parallelism": count, "completions": count, "template": pod_template, **(job or {})}
    }
    labels = {ANCESTOR_LABEL: ancestor} if ancestor else None
    metadata = job_metadata or ({"labels": labels} if labels else None)
    if metadata:
        template["metadata"] = metadata
    if ancestor in ("trainer", "dataset-initializer", "model-initializer"):
        fields = {"replicas": 1, **fields}
    return {"name": name, "template": template, **fields}


def rendered_trainer(*containers: Json, count: int = 1, **fields: Any) -> Json:
    """The trainer step `node` as it is rendered, of these containers, the first being `node`."""
    node, *others = containers or (container(),)
    pod = {"containers": [{**LAST_WORDS, **node}, *others], **fields.pop("pod", {})}
    return rendered_job(fields.pop("name", "node"), pod, count=count, ancestor="trainer", **fields)


def pet(nnodes: int, nproc: str, master: str = "demo-node-0-0.demo") -> list[Json]:
    return [
        {"name": "PET_NNODES", "value": str(nnodes)},
        {"name": "PET_NPROC_PER_NODE", "value": nproc},
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}},
        {"name": "PET_MASTER_ADDR", "value": master},
        {"name": "PET_MASTER_PORT", "value": "29500"},
    ]


def env(**values: str) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]


RDZV = {"ports": [{"containerPort": 29500}]}
SETUP = replicated_job("setup", container("main"), ancestor=None, replicas=2)
SETUP_RENDERED = rendered_job("setup", {"containers": [container("main")]}, replicas=2)

CASES: dict[str, tuple[RuntimeSpec, TrainJob, Json]] = {
    "numNodes and suspend of the job, metadata of template and patch": (
        runtime_spec(policy=MLPolicy(num_nodes=100), metadata={"labels": {"team": "a", "tier": "x"}}),
        train_job(
            Trainer(num_nodes=30),
            suspend=True,
            runtime_patches=[patch(metadata={"labels": {"team": "b"}, "annotations": {"note": "1"}})],
        ),
        job_set(
            {"replicatedJobs": [rendered_trainer(count=30)], "suspend": True},
            labels={"team": "b", "tier": "x"},
            annotations={"note": "1"},
        ),
    ),
    "image, command, arguments and variables of the job": (
        runtime_spec(
            replicated_job(
                "node", container(command=["run"], args=["x"], env=env(A="1", B="2"), workingDir="/w")
            ),
            policy=MLPolicy(num_nodes=100),
        ),
        train_job(Trainer(image="u:2", command=["go", "fast"], args=["--lr"], env=env(B="9", C="3"))),
        job_set(
            {
                "replicatedJobs": [
                    rendered_trainer(
                        {
                            "name": "node",
                            "image": "u:2",
                            "command": ["go", "fast"],
                            "args": ["--lr"],
                            "env": env(A="1", B="9", C="3"),
                            "workingDir": "/w",
                        },
                        count=100,
                    )
                ]
            }
        ),
    ),
    "patches of every pod field, on two replicated jobs": (
        runtime_spec(
            SETUP,
            replicated_job(
                "node",
                container(),
                container("side", env=env(S="1")),
                pod={
                    "initContainers": [container("prep", env=env(I="1", J="2"))],
                    "nodeSelector": {"a": "1", "b": "1"},
                    "volumes": [{"name": "v0", "emptyDir": {}}],
                    "tolerations": [{"key": "old"}],
                },
            ),
        ),
        train_job(
            Trainer(env=env(T="1")),
            runtime_patches=[
                pod_patch(
                    {
                        "nodeSelector": {"b": "2"},
                        "tolerations": [{"key": "new"}],
                        "volumes": [{"name": "v1", "configMap": {"name": "cm"}}],
                        "schedulingGates": [{"name": "example.com/gate"}],
                        "initContainers": [{"name": "prep", "env": env(NEW="3", I="9")}],
                        "containers": [
                            {"name": "side", "env": env(X="$(S)", S="2")},
                            {"name": "node", "volumeMounts": [{"name": "v1", "mountPath": "/v1"}]},
                        ],
                        "terminationGracePeriodSeconds": 0,
                    }
                ),
                pod_patch({"nodeSelector": {"pool": "cpu"}}, name="setup", manager="example.com/two"),
            ],
        ),
        job_set(
            {
                "replicatedJobs": [
                    rendered_job(
                        "setup",
                        {"containers": [container("main")], "nodeSelector": {"pool": "cpu"}},
                        replicas=2,
                    ),
                    rendered_trainer(
                        container(env=env(T="1"), volumeMounts=[{"name": "v1", "mountPath": "/v1"}]),
                        container("side", env=env(S="2", X="$(S)")),
                        pod={
                            "initContainers": [container("prep", env=env(I="9", J="2", NEW="3"))],
                            "nodeSelector": {"a": "1", "b": "2"},
                            "volumes": [
                                {"name": "v0", "emptyDir": {}},
                                {"name": "v1", "configMap": {"name": "cm"}},
                            ],
                            "tolerations": [{"key": "new"}],
                            "schedulingGates": [{"name": "example.com/gate"}],
                            "terminationGracePeriodSeconds": 0,
                        },
                    ),
                ]
            }
        ),
    ),
    "B028 labels of a patch reach the pods of their replicated job only": (
        runtime_spec(SETUP, replicated_job()),
        train_job(
            runtime_patches=[
                patch(
                    {
                        "replicatedJobs": [
                            {
                                "name": "node",
                                "template": {
                                    "metadata": {"labels": {"job": "1"}},
                                    "spec": {"template": {"metadata": {"labels": {"podset": "x"}}}},
                                },
                            }
                        ]
                    }
                )
            ]
        ),
        job_set(
            {
                "replicatedJobs": [
                    SETUP_RENDERED,
                    rendered_trainer(
                        job_metadata={"labels": {**TRAINER_LABELS, "job": "1"}},
                        pod_metadata={"labels": {"podset": "x"}},
                    ),
                ]
            }
        ),
    ),
    "initializers with variables and secrets": (
        runtime_spec(
            replicated_job(
                "data",
                container("dataset-initializer", env=env(STORAGE_URI="s3://default", KEEP="1")),
                ancestor="dataset-initializer",
                replicas=3,
            ),
            replicated_job("model", container("model-initializer"), ancestor="model-initializer"),
            replicated_job(dependsOn=[{"name": "data", "status": "Complete"}]),
        ),
        train_job(
            initializer=Initializer(
                dataset=InitializerSource(
                    storage_uri="hf://data", env=env(SPLIT="train"), secret_ref=SecretRef(name="s")
                ),
                model=InitializerSource(storage_uri="hf://model", env=env(STORAGE_URI="hf://other")),
            )
        ),
        job_set(
            {
                "replicatedJobs": [
                    rendered_job(
                        "data",
                        {
                            "containers": [
                                container(
                                    "dataset-initializer",
                                    env=env(STORAGE_URI="hf://data", KEEP="1", SPLIT="train"),
                                    envFrom=[{"secretRef": {"name": "s"}}],
                                )
                            ]
                        },
                        ancestor="dataset-initializer",
                    ),
                    rendered_job(
                        "model",
                        {"containers": [container("model-initializer", env=env(STORAGE_URI="hf://other"))]},
                        ancestor="model-initializer",
                    ),
                    rendered_trainer(dependsOn=[{"name": "data", "status": "Complete"}]),
                ]
            }
        ),
    ),
    "torch, numNodes and numProcPerNode of the job": (
        runtime_spec(
            SETUP, replicated_job(dependsOn=[{"name": "setup", "status": "Complete"}]), policy=TORCH
        ),
        train_job(Trainer(num_nodes=30, num_proc_per_node=3)),
        job_set(
            {
                "replicatedJobs": [
                    SETUP_RENDERED,
                    rendered_trainer(
                        container(env=pet(30, "3"), **RDZV),
                        count=30,
                        dependsOn=[{"name": "setup", "status": "Complete"}],
                    ),
                ]
            }
        ),
    ),
    "torch, numNodes of the runtime, variables of both": (
        runtime_spec(
            replicated_job("node", container(env=env(A="1", B="2"))),
            policy=MLPolicy(num_nodes=100, torch=TorchPolicy()),
        ),
        train_job(Trainer(env=env(B="9", C="3"))),
        job_set(
            {
                "replicatedJobs": [
                    rendered_trainer(
                        container(env=[*env(A="1", B="9", C="3"), *pet(100, "1")], **RDZV), count=100
                    )
                ]
            }
        ),
    ),
    "torch without a trainer block, beside an unnamed port": (
        runtime_spec(
            replicated_job("node", container(ports=[{"containerPort": 8080}])),
            policy=MLPolicy(num_nodes=2, torch=TorchPolicy()),
        ),
        train_job(),
        job_set(
            {
                "replicatedJobs": [
                    rendered_trainer(
                        container(env=pet(2, "1"), ports=[{"containerPort": 8080}, {"containerPort": 29500}]),
                        count=2,
                    )
                ]
            }
        ),
    ),
    "B043 torch, injection into an init container": (
        runtime_spec(
            replicated_job(pod={"initContainers": [container("check", env=env(A="1"))]}),
            policy=MLPolicy(
                torch=TorchPolicy(
                    env_injection=EnvInjection(
                        targets=[EnvInjectionTarget(job_name="node", container_names=["check"])]
                    )
                )
            ),
        ),
        train_job(Trainer(num_nodes=2)),
        job_set(
            {
                "replicatedJobs": [
                    rendered_trainer(
                        container(env=pet(2, "1"), **RDZV),
                        count=2,
                        pod={"initContainers": [container("check", env=[*env(A="1"), *pet(2, "1")])]},
                    )
                ]
            }
        ),
    ),
    "two trainer steps: both get the image and variables, the first the rendezvous": (
        runtime_spec(
            replicated_job(), replicated_job("more"), policy=MLPolicy(num_nodes=2, torch=TorchPolicy())
        ),
        train_job(Trainer(num_nodes=3, image="u:2", env=env(A="1"))),
        job_set(
            {
                "replicatedJobs": [
                    rendered_trainer(
                        container(image="u:2", env=[*env(A="1"), *pet(3, "1")], **RDZV), count=3
                    ),
                    rendered_trainer(container(image="u:2", env=env(A="1")), count=2, name="more"),
                ]
            }
        ),
    ),
    "B046 resources merge per key": (
        runtime_spec(
            replicated_job("node", container(resources={"requests": {"cpu": "8", "memory": "64Gi"}})),
            policy=MLPolicy(num_nodes=1),
        ),
        train_job(Trainer(resources_per_node=ResourceRequirements(limits={"nvidia.com/gpu": 1}))),
        job_set(
            {
                "replicatedJobs": [
                    rendered_trainer(
                        container(
                            resources={
                                "requests": {"cpu": "8", "memory": "64Gi"},
                                "limits": {"nvidia.com/gpu": "1"},
                            }
                        )
                    )
                ]
            }
        ),
    ),
    "amounts are written as Kubernetes does, in every container": (
        runtime_spec(
            replicated_job(
                "node",
                container(resources={"limits": {"cpu": 2}}),
                container("side", resources={"requests": {"cpu": 0.5}}),
                pod={"initContainers": [container("prep", resources={"limits": {"memory": "1024Mi"}})]},
            ),
        ),
        train_job(Trainer(resources_per_node=ResourceRequirements(limits={"memory": "2048Mi"}))),
        job_set(
            {
                "replicatedJobs": [
                    rendered_trainer(
                        container(resources={"limits": {"cpu": "2", "memory": "2Gi"}}),
                        container("side", resources={"requests": {"cpu": "500m"}}),
                        pod={"initContainers": [container("prep", resources={"limits": {"memory": "1Gi"}})]},
                    )
                ]
            }
        ),
    ),
    "everything that JobSet offers passes through": (
        runtime_spec(
            replicated_job(job={"backoffLimit": 2, "podFailurePolicy": {"rules": []}}, groupName="g"),
            network={"subdomain": "sub", "publishNotReadyAddresses": False},
            successPolicy={"operator": "Any"},
            failurePolicy={"maxRestarts": 3},
            startupPolicy={"startupPolicyOrder": "InOrder"},
            coordinator={"replicatedJob": "node"},
            ttlSecondsAfterFinished=60,
            somethingNew={"deep": [{"x": None, "y": {}}]},
        ),
        train_job(suspend=False),
        job_set(
            {
                "replicatedJobs": [
                    rendered_trainer(
                        groupName="g", job={"backoffLimit": 2, "podFailurePolicy": {"rules": []}}
                    )
                ],
                "network": {"subdomain": "sub", "publishNotReadyAddresses": False},
                "successPolicy": {"operator": "Any"},
                "failurePolicy": {"maxRestarts": 3},
                "startupPolicy": {"startupPolicyOrder": "InOrder"},
                "coordinator": {"replicatedJob": "node"},
                "ttlSecondsAfterFinished": 60,
                "somethingNew": {"deep": [{"y": {}}]},
                "suspend": False,
            }
        ),
    ),
    "the template's own suspend does not count": (
        runtime_spec(suspend=True),
        train_job(),
        job_set({"replicatedJobs": [rendered_trainer()]}),
    ),
    "R02 no empty map is rendered": (
        runtime_spec(
            replicated_job(
                "node", container(resources={"limits": {}}, securityContext={}), pod={"nodeSelector": {}}
            ),
            network={},
            metadata={"labels": {}},
        ),
        train_job(),
        job_set({"replicatedJobs": [rendered_trainer()]}),
    ),
}


@pytest.mark.parametrize(("spec", "job", "expected"), CASES.values(), ids=CASES)
def test_rendering(spec: RuntimeSpec, job: TrainJob, expected: Json) -> None:
    assert render(job, runtime(spec)) == [expected]


def test_the_shipped_torch_runtime() -> None:
    job = train_job(
        Trainer(
            num_nodes=2,
            command=["torchrun", "train.py"],
            env=env(LR="0.1"),
            resources_per_node=ResourceRequirements(requests={"cpu": "2"}),
        ),
        suspend=False,
    )
    node = {
        "name": "node",
        "image": "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime",
        "command": ["torchrun", "train.py"],
        "resources": {"requests": {"cpu": "2"}},
        "env": [*env(LR="0.1"), *pet(2, "2")],
        **RDZV,
    }
    expected = rendered_trainer(node, count=2, job={"backoffLimit": 0}, pod={"restartPolicy": "Never"})
    rendered = render_job_set(job, load_shipped_runtimes()["torch-distributed"])
    assert rendered == job_set({"replicatedJobs": [expected], "suspend": False})


def test_a_job_that_no_cluster_has_seen_gives_objects_without_an_owner() -> None:
    metadata = render_job_set(train_job(uid=None), runtime(runtime_spec()))["metadata"]
    assert set(metadata) == {"annotations", "name", "namespace"}


def test_a_runtime_may_decide_where_last_words_are_kept() -> None:
    spec = runtime_spec(replicated_job("node", container(terminationMessagePolicy="File")))
    (replicated,) = render_job_set(train_job(), runtime(spec))["spec"]["replicatedJobs"]
    assert replicated["template"]["spec"]["template"]["spec"]["containers"] == [
        container(terminationMessagePolicy="File")
    ]


@pytest.mark.parametrize("trainer", [Trainer(image="", command=[], args=[]), Trainer(), None])
def test_what_is_empty_is_not_set(trainer: Trainer | None) -> None:
    spec = runtime_spec(replicated_job("node", container(command=["run"], args=["x"])))
    assert render(train_job(trainer), runtime(spec)) == [
        job_set({"replicatedJobs": [rendered_trainer(container(command=["run"], args=["x"]))]})
    ]


def test_r09_giving_a_job_an_empty_trainer_block_later_changes_nothing() -> None:
    spec = runtime_spec(policy=TORCH)
    assert render(train_job(None), runtime(spec)) == render(train_job(Trainer()), runtime(spec))
