"""What makes a cluster of one node ready to train: the operator of the working tree, and runtimes for it.

In: a kubeconfig of an administrator, a way to run programs on the node, and a training environment. Out: the
operator as a pod, put there by `trainwright install`, and the shipped runtimes with what is local to this
machine: the base image in place of those that a registry has, and the training environment's packages,
mounted from this machine.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from kube.cluster import Cluster, ClusterUnavailable
from kube.images import (
    BASE_IMAGE,
    PACKAGES_MOUNT,
    ImageNotBuilt,
    build_operator_image,
    name_operator_image,
)
from kube.node import RunOnNode, has_image, import_image
from kube.training_packages import find_training_packages
from trainwright.api.constants import FRAMEWORK_LABEL, NODE
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json
from trainwright.api.writing import build_yaml
from trainwright.runtimes import load_shipped_runtimes

FIELD_MANAGER = "make-cluster"
INSTALL_SECONDS = 180
# What requirements/train.txt has the packages of.
_FRAMEWORKS = ("plain", "torch", "accelerate", "lightning")
_VOLUME = "packages"
# All pods share the cores of this machine, and each would start a thread on every one of them: two pods of
# one process, on two cores with other work, then took 8 min 27 s to train what takes 44 s so.
_ENV: tuple[Json, ...] = ({"name": "OMP_NUM_THREADS", "value": "1"},)


def install(kubeconfig: Path, run_on_node: RunOnNode, training: Path | None, *options: str) -> None:
    """Put operator and runtimes on a cluster, or bring them up to date; nothing changes where they are.

    Without a training environment the pods have Python's own library alone. `options` are further ones of
    `trainwright install`. Raises ClusterUnavailable.
    """
    image = name_operator_image()
    try:
        if not has_image(run_on_node, image):
            with tempfile.TemporaryDirectory(prefix="trainwright-operator-") as folder:
                import_image(run_on_node, build_operator_image(Path(folder), image))
        packages = None if training is None else find_training_packages(training)
    except ImageNotBuilt as error:
        raise ClusterUnavailable(str(error)) from error
    _call(
        kubeconfig,
        *("install", "--apply", "--replace", "--image", image, "--replicas", "1"),
        *("--timeout", str(INSTALL_SECONDS), *options),
    )
    shipped = (build_object(runtime) for runtime in load_shipped_runtimes().values())
    runtimes = build_yaml(build_local_runtimes(shipped, packages))
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(runtimes)
        file.flush()
        _call(
            kubeconfig,
            *("apply", "--on", "kubernetes", "-f", file.name),
            *("--field-manager", FIELD_MANAGER, "--force-conflicts"),
        )


@contextlib.contextmanager
def installed(cluster: Cluster, training: Path | None, *options: str) -> Iterator[None]:
    """Put operator and runtimes on a cluster, and take them away at the end of the block."""
    install(cluster.kubeconfig, cluster.node.walls.run, training, *options)
    yield
    _call(cluster.kubeconfig, "uninstall", "--apply")


def build_local_runtimes(shipped: Iterable[Json], packages: Path | None) -> list[Json]:
    """Return those runtimes that can train on a node with the base image, and packages in a folder.

    Images of other frameworks cannot be had there: their runtimes stay as they are shipped.
    """
    return [
        _localize(runtime, packages)
        for runtime in shipped
        if runtime["metadata"]["labels"][FRAMEWORK_LABEL] in _FRAMEWORKS
    ]


def _localize(runtime: Json, packages: Path | None) -> Json:
    spec = runtime["spec"]
    template = spec["template"]
    job_set = template["spec"]
    replicated = [_localize_job(job, packages) for job in job_set["replicatedJobs"]]
    return {
        **runtime,
        "spec": {**spec, "template": {**template, "spec": {**job_set, "replicatedJobs": replicated}}},
    }


def _localize_job(job: Json, packages: Path | None) -> Json:
    template = job["template"]
    job_spec = template["spec"]
    pod_template = job_spec["template"]
    pod = _localize_pod(pod_template["spec"], packages)
    return {
        **job,
        "template": {**template, "spec": {**job_spec, "template": {**pod_template, "spec": pod}}},
    }


def _localize_pod(pod: Json, packages: Path | None) -> Json:
    """Return the pod with a local training container; initializers have programs of their own, elsewhere."""
    if not any(_trains(container) for container in pod["containers"]):
        return pod
    mounts: list[Json] = []
    volumes: list[Json] = []
    if packages is not None:
        mounts = [{"name": _VOLUME, "mountPath": PACKAGES_MOUNT, "readOnly": True}]
        volumes = [{"name": _VOLUME, "hostPath": {"path": str(packages), "type": "Directory"}}]
    return {
        **pod,
        "containers": [
            _localize_container(container, mounts) if _trains(container) else container
            for container in pod["containers"]
        ],
        "volumes": [*pod.get("volumes", ()), *volumes],
    }


def _trains(container: Json) -> bool:
    return bool(container["name"] == NODE)


def _localize_container(container: Json, mounts: list[Json]) -> Json:
    return {
        **container,
        "image": BASE_IMAGE,
        "imagePullPolicy": "Never",  # there is no registry to ask
        "env": [*container.get("env", ()), *_ENV],
        "volumeMounts": [*container.get("volumeMounts", ()), *mounts],
    }


def _call(kubeconfig: Path, *words: str) -> None:
    """Run `trainwright` as administrator. Raises ClusterUnavailable with what it says where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "trainwright", *words],
        env={**_list_own_variables(), "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS + 60,
        check=False,
    )
    if done.returncode:
        raise ClusterUnavailable(f"`trainwright {' '.join(words)}` failed: {done.stderr.strip()}")


def _list_own_variables() -> dict[str, str]:
    """Return the environment without the settings of whoever calls."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TRAINWRIGHT_")}
