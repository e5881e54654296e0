"""The runtimes of a developer's cluster: the shipped ones, but for what is local to the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube.development import build_local_runtimes
from kube.images import BASE_IMAGE, PACKAGES_MOUNT
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json
from trainwright.runtimes import load_shipped_runtimes

LOCAL = {
    "image": BASE_IMAGE,
    "imagePullPolicy": "Never",
    "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
}
MOUNT = {"name": "packages", "mountPath": PACKAGES_MOUNT, "readOnly": True}
VOLUME = {"name": "packages", "hostPath": {"path": "/cache/packages", "type": "Directory"}}


def build_runtime(*pods: Json, framework: str = "torch") -> Json:
    jobs = [
        {"name": f"job-{n}", "template": {"spec": {"template": {"spec": pod}}}} for n, pod in enumerate(pods)
    ]
    return {
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": framework, "labels": {"trainer.kubeflow.org/framework": framework}},
        "spec": {"mlPolicy": {}, "template": {"metadata": {}, "spec": {"replicatedJobs": jobs}}},
    }


NODE = {"name": "node", "image": "registry.example/torch:1"}
SIDECAR = {"name": "proxy", "image": "registry.example/proxy:1"}
INITIALIZER = {
    "restartPolicy": "Never",
    "containers": [{"name": "model-initializer", "image": "registry.example/i:1"}],
}


def test_the_training_container_has_local_image_threads_and_packages_and_nothing_else_is_touched():
    own = {"name": "data", "emptyDir": {}}
    own_mount = {"name": "data", "mountPath": "/data"}
    shipped = build_runtime(
        INITIALIZER,
        {"containers": [{**NODE, "command": ["x"], "volumeMounts": [own_mount]}, SIDECAR], "volumes": [own]},
    )
    local_node = {**NODE, **LOCAL, "command": ["x"], "volumeMounts": [own_mount, MOUNT]}
    local = build_runtime(INITIALIZER, {"containers": [local_node, SIDECAR], "volumes": [own, VOLUME]})
    assert build_local_runtimes([shipped], Path("/cache/packages")) == [local]


def test_without_packages_nothing_is_mounted():
    [local] = build_local_runtimes([build_runtime({"containers": [NODE]})], None)
    node = {**NODE, **LOCAL, "volumeMounts": []}
    assert local == build_runtime({"containers": [node], "volumes": []})


def test_runtimes_whose_packages_are_not_here_stay_as_they_are_shipped():
    torch, other = (build_runtime({"containers": [NODE]}, framework=name) for name in ("torch", "paddle"))
    [local] = build_local_runtimes([torch, other], None)
    assert local["metadata"] == torch["metadata"]


@pytest.mark.parametrize("name", ["plain", "torch-distributed"])
def test_a_shipped_runtime_trains_from_the_local_image(name: str):
    [local] = build_local_runtimes([build_object(load_shipped_runtimes()[name])], None)
    [job] = local["spec"]["template"]["spec"]["replicatedJobs"]
    [container] = job["template"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == BASE_IMAGE
