"""MPI jobs in real pods: real sshd and mpirun, names from the cluster's DNS, keys as kubelet mounts them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from kube.cluster import Cluster
from kube.images import ImageNotBuilt
from kube.node_tests.mpi_image import MPI_IMAGE, START_SSHD, USER_ID, build_mpi_image
from kube.node_tests.training import read_log, wait_until
from kube.operating import operating
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.config import load_connection

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RUNTIME = Path(__file__).resolve().parents[2] / "data/mpi/open-mpi-4.yaml"
USERS: dict[str, tuple[Json, str]] = {
    "root": ({}, "/root/.ssh"),
    "a user": ({"runAsUser": USER_ID, "runAsGroup": USER_ID, "fsGroup": USER_ID}, "/home/mpiuser/.ssh"),
}
PROGRAMS = {"Open MPI 4": "mpirun.openmpi", "MPICH": "mpirun.mpich"}


@pytest.fixture(scope="module")
def image(real_cluster: Cluster) -> str:
    """The image, on the node."""
    try:
        archive = build_mpi_image()
    except ImageNotBuilt as error:
        pytest.skip(f"NOT TESTED with real pods: {error}")
    real_cluster.node.import_image(archive)
    return MPI_IMAGE


@pytest.fixture
async def operator(real_cluster: Cluster, namespace: str) -> AsyncIterator[None]:
    connection = load_connection({"KUBECONFIG": str(real_cluster.kubeconfig)}, Path("/"))
    async with operating(connection, namespace):
        yield


def build_runtime(namespace: str, image: str, user: str, *, is_node: bool = True) -> Json:
    """The runtime of the tests, with this image and user."""
    context, keys = USERS[user]
    given = yaml.safe_load(RUNTIME.read_text())
    given["spec"]["mlPolicy"]["mpi"] |= {"sshAuthMountPath": keys, "runLauncherAsNode": is_node}
    for job in given["spec"]["template"]["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        pod["securityContext"] = context
        pod["terminationGracePeriodSeconds"] = 1
        [container] = pod["containers"]
        container["image"] = image
        container.pop("args", None)
        if job["name"] == "node":
            container["command"] = START_SSHD
    return {**given, "kind": "TrainingRuntime", "metadata": {"name": "mpi", "namespace": namespace}}


def build_job(namespace: str, program: str, nodes: int) -> Json:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "demo", "namespace": namespace},
        "spec": {
            "runtimeRef": {"name": "mpi", "kind": "TrainingRuntime"},
            "trainer": {"numNodes": nodes, "numProcPerNode": 2, "command": [program, "hostname"]},
        },
    }


async def run(kube: KubeCluster, cluster: Cluster, job: Json) -> list[str]:
    """Create the job, wait until it is complete, and return what its launcher said."""
    namespace = job["metadata"]["namespace"]
    await kube.create(job)
    status: Json = {}

    async def is_finished() -> bool:
        nonlocal status
        found = await kube.get(ObjectKey("TrainJob", namespace, "demo"))
        status = found.get("status") or {}
        return status.get("phase") in ("Complete", "Failed")

    await wait_until(kube, namespace, is_finished, seconds=100)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "launcher"}
    launchers = (await kube.list("Pod", namespace, labels)).items
    said = [read_log(cluster, namespace, launcher) for launcher in launchers]
    assert status["phase"] == "Complete", (status, said)
    return said[0].split()


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
async def test_mpirun_without_options_runs_ranks_in_all_pods(
    kube: KubeCluster,
    real_cluster: Cluster,
    operator: None,
    namespace: str,
    image: str,
    program: str,
    user: str,
) -> None:
    """The runtime is for Open MPI. The launcher is a node, without sshd: it must know itself."""
    await kube.create(build_runtime(namespace, image, user))
    hosts = await run(kube, real_cluster, build_job(namespace, program, nodes=3))
    assert sorted(hosts) == sorted(["demo-launcher-0-0", "demo-node-0-0", "demo-node-0-1"] * 2)


async def test_a_launcher_apart_runs_no_ranks(
    kube: KubeCluster, real_cluster: Cluster, operator: None, namespace: str, image: str
) -> None:
    await kube.create(build_runtime(namespace, image, "a user", is_node=False))
    hosts = await run(kube, real_cluster, build_job(namespace, "mpirun.mpich", nodes=2))
    assert sorted(hosts) == sorted(["demo-node-0-0", "demo-node-0-1"] * 2)
