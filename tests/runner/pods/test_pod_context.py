"""What a pod gets from outside its own object."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from runner.lab import Lab, replicated_job
from trainwright.api.meta import ObjectKey
from trainwright.runner.executor import PodContext
from trainwright.runner.pods.pod_context import PodContexts, Surroundings, find_claims, find_names

SPEC: dict[str, Any] = {
    "initContainers": [{"envFrom": [{"secretRef": {"name": "env-secret"}}]}],
    "containers": [
        {
            "envFrom": [{"configMapRef": {"name": "env-map"}}],
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "key-secret", "key": "k"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "key-map", "key": "k"}}},
                {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
        }
    ],
    "volumes": [
        {"name": "a", "configMap": {"name": "volume-map"}},
        {"name": "b", "secret": {"secretName": "volume-secret"}},
        {
            "name": "c",
            "projected": {
                "sources": [
                    {"configMap": {"name": "projected-map"}},
                    {"secret": {"name": "projected-secret"}},
                ]
            },
        },
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "e", "emptyDir": {}},
    ],
}


def test_every_place_that_names_a_config_map_or_secret_is_found() -> None:
    assert find_names(SPEC, "ConfigMap") == {"env-map", "key-map", "volume-map", "projected-map"}
    assert find_names(SPEC, "Secret") == {"env-secret", "key-secret", "volume-secret", "projected-secret"}
    assert find_claims(SPEC) == {"data"}
    assert find_names({"containers": [{}]}, "Secret") == set()


async def build(lab: Lab, pod: dict[str, Any], **surroundings: Any) -> PodContext:
    contexts = PodContexts(
        lab.cluster,
        lab.paths,
        Surroundings(lab.environment, surroundings.get("working_directory", lab.work)),
        get_port=lambda port, host: 20123 + len(host),
        trainer_environment={"PROGRESS": "here"},
    )
    return await contexts.build(pod, lab.paths.job("uid"), ("GPU-a",))


def pod_of(replicated: str, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "demo",
        "jobset.sigs.k8s.io/replicatedjob-name": replicated,
    }
    return {
        "metadata": {"name": "p", "namespace": "default", "labels": labels},
        "spec": spec or {"containers": [{}]},
    }


async def store_job_set(lab: Lab, **spec: Any) -> None:
    jobs = [
        replicated_job("init", "true"),
        {**replicated_job("node", "true", pods=2, step="trainer"), "replicas": 2},
    ]
    await lab.cluster.create(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "demo", "namespace": "default"},
            "spec": {"replicatedJobs": jobs, **spec},
        }
    )


async def test_the_context_of_a_trainer_pod(lab: Lab) -> None:
    await store_job_set(lab)
    await lab.cluster.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "env-map", "namespace": "default"},
            "data": {"text": "ä"},
            "binaryData": {"bytes": base64.b64encode(b"\xff\x00").decode()},
        }
    )
    await lab.cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "key-secret", "namespace": "default"},
            "data": {"k": base64.b64encode(b"secret").decode()},
        }
    )

    assert await build(lab, pod_of("node", {**SPEC, "hostname": "demo-node-1-0"})) == PodContext(
        folder=lab.paths.job("uid").pod("p"),
        shared_folder=lab.paths.job("uid").shared,
        mount_points=lab.paths.mount_points,
        host_names=("demo-init-0-0", "demo-node-0-0", "demo-node-0-1", "demo-node-1-0", "demo-node-1-1"),
        subdomain="demo",
        working_directory=lab.work,
        environment=lab.environment,
        config_maps={"env-map": {"text": "ä".encode(), "bytes": b"\xff\x00"}},
        secrets={"key-secret": {"k": b"secret"}},
        claims={"data": lab.paths.volume("default", "data")},
        ports={29500: 20123},
        node_rank=2,
        devices=("GPU-a",),
        extra_environment={"PROGRESS": "here"},
    )
    assert lab.paths.volume("default", "data").is_dir()


async def test_each_host_that_the_job_names_with_the_port_has_one_of_its_own(lab: Lab) -> None:
    """The first pod of the trainer step has the job's."""
    await store_job_set(lab)
    cluster = "demo-init-0-0.demo:29500,demo-node-0-0.demo:29500,demo-node-1-1.demo:29500"
    job_set = await lab.get("JobSet")
    for job in job_set["spec"]["replicatedJobs"]:
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        container["env"].append({"name": "CLUSTER", "value": cluster})
    await lab.cluster.patch(ObjectKey("JobSet", "default", "demo"), {"spec": job_set["spec"]})

    context = await build(lab, pod_of("node"))
    own = 20123 + len("demo-node-1-1")
    assert context.ports == {29500: 20123}
    assert context.host_ports == {"demo-init-0-0": {29500: own}, "demo-node-1-1": {29500: own}}


async def test_only_the_trainer_step_reports_progress(lab: Lab) -> None:
    await store_job_set(lab)

    assert (await build(lab, pod_of("init"))).extra_environment == {}


async def test_a_subdomain_that_the_jobset_names_is_used(lab: Lab) -> None:
    await store_job_set(lab, network={"subdomain": "net"})

    assert (await build(lab, pod_of("node"))).subdomain == "net"


async def test_containers_start_where_the_job_was_submitted(lab: Lab) -> None:
    """Also when it was resumed from somewhere else."""
    await store_job_set(lab)
    await lab.submit(replicated_job("node", "true"))
    annotation = "trainer.kubeflow.org/local-working-directory"
    await lab.patch({"metadata": {"annotations": {annotation: "/submitted/here"}}})

    context = await build(lab, pod_of("node"), working_directory=Path("/resumed/there"))
    assert context.working_directory == Path("/submitted/here")
