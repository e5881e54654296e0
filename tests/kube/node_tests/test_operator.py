"""The operator as it is installed: a pod on the node, from its image, with its own rights and certificate."""

from __future__ import annotations

import asyncio
import json
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest

from kube.cluster import Cluster
from kube.development import installed
from kube.node_tests.training import exec_in_pod, read_log, wait_until
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.adapter import KubeCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ALLREDUCE = """
import os, socket, time

world, rank = int(os.environ["WORLD"]), int(os.environ["JOB_COMPLETION_INDEX"])
first = "sum-node-0-0.sum"
if rank == 0:
    server = socket.create_server(("", 29500))
    others = [server.accept()[0] for _ in range(world - 1)]
    total = 1 + sum(int(other.recv(16)) for other in others)
    for other in others:
        other.sendall(str(total).encode())
else:
    for _ in range(300):
        try:
            other = socket.create_connection((first, 29500))
            break
        except OSError:
            time.sleep(0.1)
    other.sendall(str(rank + 1).encode())
    total = int(other.recv(16))
print(f"rank {rank} of {world}: {total}", flush=True)
"""


@pytest.fixture(scope="module")
def operator(real_cluster: Cluster) -> Iterator[None]:
    with installed(real_cluster, training=None):
        yield


def build_train_job(name: str, namespace: str, image: str, command: list[str], nodes: int) -> Json:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "runtimeRef": {"name": "plain"},
            "trainer": {
                "image": image,
                "numNodes": nodes,
                "command": command,
                "env": [{"name": "WORLD", "value": str(nodes)}],
            },
        },
    }


async def until_finished(kube: KubeCluster, namespace: str, name: str) -> tuple[Json, list[str]]:
    """Return the status of a finished job, and the phases it went through."""
    phases: list[str] = []
    status: dict[str, Any] = {}

    async def is_finished() -> bool:
        nonlocal status
        job = await kube.get(ObjectKey("TrainJob", namespace, name))
        status = job.get("status", {})
        phase = status.get("phase", "")
        if phase and [phase] != phases[-1:]:
            phases.append(phase)
        return phase in ("Complete", "Failed")

    await wait_until(kube, namespace, is_finished, seconds=90)
    return status, phases


async def test_a_job_of_two_pods_runs_from_creation_to_complete(
    real_cluster: Cluster, kube: KubeCluster, operator: None, namespace: str
):
    command = ["python3", "-c", ALLREDUCE]
    await kube.create(build_train_job("sum", namespace, real_cluster.image, command, nodes=2))

    status, phases = await until_finished(kube, namespace, "sum")

    assert phases[-1] == "Complete", status
    assert set(phases) <= {"Created", "Running", "Complete"}
    [complete] = status["conditions"]
    assert (complete["type"], complete["status"], complete["reason"]) == (
        "Complete",
        "True",
        "AllJobsCompleted",
    )
    assert status["jobsStatus"] == [
        {"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}
    ]
    assert "cause" not in status
    pods = (await kube.list("Pod", namespace)).items
    logs = sorted(read_log(real_cluster, namespace, pod) for pod in pods)
    assert logs == ["rank 0 of 2: 3\n", "rank 1 of 2: 3\n"]


async def test_a_job_that_fails_says_why(
    real_cluster: Cluster, kube: KubeCluster, operator: None, namespace: str
):
    command = ["python3", "-c", "import missing_module"]
    await kube.create(build_train_job("broken", namespace, real_cluster.image, command, nodes=1))

    status, _ = await until_finished(kube, namespace, "broken")

    [failed] = status["conditions"]
    assert (failed["type"], failed["status"], failed["reason"]) == ("Failed", "True", "FailedJobs")
    assert "ModuleNotFoundError: No module named 'missing_module'" in failed["message"]
    cause = status["cause"]
    assert (cause["layer"], cause["kind"], cause["reason"]) == ("Container", "Pod", "NonZeroExit")
    assert "(node, rank 0): container node exited with code 1" in cause["message"]
    # The public SDK shows such events: core/v1, about the TrainJob.
    events = (await kube.list("Event", namespace)).items
    about = [event for event in events if event["involvedObject"]["kind"] == "TrainJob"]
    assert any("ModuleNotFoundError" in event["message"] and event["firstTimestamp"] for event in about), (
        about
    )


async def test_an_invalid_job_is_refused_by_the_webhook(
    real_cluster: Cluster, kube: KubeCluster, operator: None, namespace: str
):
    job = build_train_job("lost", namespace, real_cluster.image, ["true"], nodes=1)
    job["spec"]["runtimeRef"]["name"] = "no-such-runtime"
    path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs"
    with pytest.raises(urllib.error.HTTPError) as refused:
        real_cluster.call("POST", path, job)
    with refused.value as answer:
        message = json.load(answer)["message"]
    assert "spec.runtimeRef" in message
    assert "no-such-runtime" in message


async def test_the_operator_runs_as_nobody_on_a_read_only_root(
    real_cluster: Cluster, kube: KubeCluster, operator: None
):
    pods = (await kube.list("Pod", "kubeflow-system")).items
    [pod] = [pod for pod in pods if pod["status"]["phase"] == "Running"]
    [container] = pod["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    said = await asyncio.to_thread(
        exec_in_pod, real_cluster, pod, "sh", "-c", "id -u; touch /opt/x 2>&1 || true"
    )
    assert said.splitlines() == ["65532", "touch: cannot touch '/opt/x': Read-only file system"]
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
