"""Flux jobs in real pods: a view image, scripts and certificate as kubelet mounts them, names of the DNS.

A program stands for Flux, which no package registry has. Its pods share a folder of the node.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.cluster import Cluster
from kube.images import BASE_IMAGE, ImageNotBuilt
from kube.node_tests.flux_image import VIEW_IMAGE, build_view_image
from kube.node_tests.training import read_log, wait_until
from kube.operating import operating
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.config import load_connection
from trainwright.runtimes import load_shipped_runtimes

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

USERS: dict[str, Json] = {
    "root": {},
    "a user": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000},
}
# Fails where a pod cannot be found by its name, or where memory cannot be shared.
CHECKS = """\
import multiprocessing.shared_memory, socket, sys
socket.gethostbyname("demo-node-0-1.demo")
multiprocessing.shared_memory.SharedMemory(create=True, size=1000).unlink()
print("words:", sys.argv[1:])
"""


@pytest.fixture(scope="module")
def view_image(real_cluster: Cluster) -> str:
    """The image, on the node."""
    try:
        archive = build_view_image()
    except ImageNotBuilt as error:
        pytest.skip(f"NOT TESTED with real pods: {error}")
    real_cluster.node.import_image(archive)
    return VIEW_IMAGE


@pytest.fixture
async def operator(real_cluster: Cluster, namespace: str) -> AsyncIterator[None]:
    connection = load_connection({"KUBECONFIG": str(real_cluster.kubeconfig)}, Path("/"))
    async with operating(connection, namespace):
        yield


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder that the node sees at the same path, for whoever the pods run as."""
    tmp_path.chmod(0o777)
    return tmp_path


def build_runtime(namespace: str, context: Json, notes: Path) -> Json:
    """The shipped runtime, with a folder of the node for the notes of the stand-in."""
    given = build_object(load_shipped_runtimes()["flux-distributed"])
    [job] = given["spec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    container["image"] = BASE_IMAGE
    container["env"] = [{"name": "STAND_IN", "value": "/notes"}]
    container["volumeMounts"] = [{"name": "notes", "mountPath": "/notes"}]
    job["template"]["spec"]["template"]["spec"] = {
        **pod,
        "securityContext": context,
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "notes", "hostPath": {"path": str(notes), "type": "Directory"}}],
    }
    return {**given, "kind": "TrainingRuntime", "metadata": {"name": "flux", "namespace": namespace}}


async def run(
    kube: KubeCluster, cluster: Cluster, namespace: str, *command: str
) -> tuple[Json, dict[str, str]]:
    """Run a job to its end; return its status, and host name -> log."""
    trainer = {
        "numNodes": 2,
        "command": list(command),
        "env": [{"name": "FLUX_VIEW_IMAGE", "value": VIEW_IMAGE}],
    }
    await kube.create(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "demo", "namespace": namespace},
            "spec": {"runtimeRef": {"name": "flux", "kind": "TrainingRuntime"}, "trainer": trainer},
        }
    )
    status: Json = {}

    async def is_finished() -> bool:
        nonlocal status
        status = (await kube.get(ObjectKey("TrainJob", namespace, "demo"))).get("status") or {}
        return status.get("phase") in ("Complete", "Failed")

    await wait_until(kube, namespace, is_finished, seconds=100)
    pods = (await kube.list("Pod", namespace)).items
    return status, {pod["spec"]["hostname"]: read_log(cluster, namespace, pod) for pod in pods}


@pytest.mark.parametrize("context", USERS.values(), ids=USERS)
async def test_a_job_runs_under_flux_from_a_view(
    kube: KubeCluster,
    real_cluster: Cluster,
    operator: None,
    namespace: str,
    view_image: str,
    notes: Path,
    context: Json,
) -> None:
    await kube.create(build_runtime(namespace, context, notes))
    status, said = await run(kube, real_cluster, namespace, "python3", "-c", CHECKS, "two words", "$(X) `X`")
    assert status["phase"] == "Complete", (status, said)
    assert "words: ['two words', '$(X) `X`']" in said["demo-node-0-0"]


async def test_a_job_whose_command_fails_fails(
    kube: KubeCluster, real_cluster: Cluster, operator: None, namespace: str, view_image: str, notes: Path
) -> None:
    await kube.create(build_runtime(namespace, {}, notes))
    status, said = await run(kube, real_cluster, namespace, "sh", "-c", "echo out of luck; exit 3")
    assert status["phase"] == "Failed", (status, said)
    assert status["cause"]["name"].startswith("demo-node-0-0-"), (status, said)
    assert "out of luck" in said["demo-node-0-0"]
