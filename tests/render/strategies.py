"""Runtimes and TrainJobs of any shape that renders, few of them alike."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from template.builders import container, patch, replicated_job, runtime_spec, train_job
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import MLPolicy, RuntimeSpec, TorchPolicy
from trainwright.api.trainjob import (
    Initializer,
    InitializerSource,
    SecretRef,
    Trainer,
    TrainJob,
)

texts = st.sampled_from(["", "1", "x", "$(A)"])
maps = st.dictionaries(st.sampled_from(["a", "b", "c"]), texts, max_size=2)
env = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("ABC")}, optional={"value": texts}),
    max_size=3,
    unique_by=lambda entry: entry["name"],
)
amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"]),
    st.sampled_from(["1", "1500m", 2]),
    max_size=3,
)
ports = st.lists(st.fixed_dictionaries({"containerPort": st.sampled_from([80, 29500])}), max_size=2)
container_fields = st.fixed_dictionaries(
    {},
    optional={
        "env": env,
        "args": st.lists(texts, max_size=2),
        "ports": ports,
        "resources": st.fixed_dictionaries({}, optional={"limits": amounts, "requests": amounts}),
        "securityContext": st.just({}),
    },
)
pod_fields = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": maps,
        "volumes": st.just([{"name": "v", "emptyDir": {}}]),
        "tolerations": st.just([{"key": "k"}]),
        "initContainers": container_fields.map(lambda fields: [container("prep", **fields)]),
    },
)


@st.composite
def steps(draw: st.DrawFn, name: str, ancestor: str | None, container_name: str) -> Json:
    job = draw(
        st.fixed_dictionaries(
            {}, optional={"parallelism": st.integers(0, 3), "completions": st.integers(1, 3)}
        )
    )
    replicas = draw(st.fixed_dictionaries({}, optional={"replicas": st.integers(1, 3)}))
    node = container(container_name, **draw(container_fields))
    side = [container("side", **draw(container_fields))] if draw(st.booleans()) else []
    return replicated_job(name, *side, node, ancestor=ancestor, job=job, pod=draw(pod_fields), **replicas)


@st.composite
def runtime_specs(draw: st.DrawFn) -> RuntimeSpec:
    found = [
        draw(steps(name, ancestor, container_name))
        for name, ancestor, container_name in (
            ("data", "dataset-initializer", "dataset-initializer"),
            ("setup", None, "main"),
            ("node", "trainer", "node"),
            ("more", "trainer", "node"),
        )
        if name == "node" or draw(st.booleans())
    ]
    policy = draw(
        st.sampled_from([None, MLPolicy(), MLPolicy(num_nodes=3), MLPolicy(num_nodes=2, torch=TorchPolicy())])
    )
    fields = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "network": st.sampled_from([{}, {"subdomain": "sub"}]),
                "failurePolicy": st.just({"maxRestarts": 1, "rules": [{"action": "FailJobSet"}]}),
                "volumeClaimPolicies": st.just([{"templates": [{"metadata": {"name": "v"}, "spec": {}}]}]),
            },
        )
    )
    return runtime_spec(*found, policy=policy, metadata={"labels": draw(maps)}, **fields)


def _patch_node(pod: Json, labels: Json) -> Any:
    change = {
        "metadata": {"labels": labels},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": pod}},
    }
    return patch({"replicatedJobs": [{"name": "node", "template": change}]}, {"annotations": labels})


pod_patches = st.fixed_dictionaries(
    {},
    optional={
        "nodeSelector": maps,
        "serviceAccountName": texts,
        "volumes": st.just([{"name": "v", "configMap": {"name": "c"}}]),
        "containers": env.map(lambda entries: [{"name": "node", "env": entries}]),
        "securityContext": st.sampled_from([{}, {"runAsUser": 1}]),
    },
)
trainers = st.builds(
    Trainer,
    image=st.none() | st.just("u:2"),
    command=st.none() | st.lists(texts, max_size=2),
    env=st.none() | env,
    num_nodes=st.none() | st.integers(1, 4),
    num_proc_per_node=st.none() | st.integers(1, 4),
    resources_per_node=st.none()
    | st.builds(ResourceRequirements, limits=st.none() | amounts, requests=st.none() | amounts),
)
initializers = st.builds(
    Initializer,
    dataset=st.none()
    | st.builds(
        InitializerSource,
        storage_uri=st.none() | st.sampled_from(["", "hf://x"]),
        env=st.none() | env,
        secret_ref=st.none() | st.just(SecretRef(name="s")),
    ),
)


@st.composite
def train_jobs(draw: st.DrawFn) -> TrainJob:
    return train_job(
        draw(st.none() | trainers),
        uid=draw(st.none() | st.just("u-1")),
        initializer=draw(st.none() | initializers),
        suspend=draw(st.none() | st.booleans()),
        runtime_patches=draw(st.none() | st.lists(st.builds(_patch_node, pod_patches, maps), max_size=2)),
    )
