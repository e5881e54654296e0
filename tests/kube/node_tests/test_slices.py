"""PyTorch in slices of real pods: torchrun numbers the nodes by their names, and finds them by DNS."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from cli.program import Program
from kube.cluster import Cluster
from kube.images import ROOT
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.adapter import KubeCluster

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(900)]

SCRIPT = "examples/slices/train.py"
TRAINING_SECONDS = 500.0  # a minute on two idle cores


@pytest.fixture
async def sliced_runtime(ready_cluster: Cluster, kube: KubeCluster) -> str:
    """The runtime for torch that the cluster has, whose nodes come in slices of two."""
    found = await kube.get(ObjectKey("ClusterTrainingRuntime", "", "torch-distributed"))
    metadata: Json = {"name": "torch-slices", "labels": found["metadata"]["labels"]}
    policy = {**found["spec"]["mlPolicy"], "numNodes": 2, "nodesPerSlice": 2}
    await kube.create({**found, "metadata": metadata, "spec": {**found["spec"], "mlPolicy": policy}})
    return "torch-slices"


async def test_two_slices_of_two_real_pods_shard_a_model_each(
    ready_cluster: Cluster, kube: KubeCluster, sliced_runtime: str, tmp_path: Path
):
    folder = tmp_path / "clone"
    shutil.copytree(ROOT / "examples", folder / "examples")
    program = Program(
        folder=folder, state=tmp_path / "state", extra={"KUBECONFIG": str(ready_cluster.kubeconfig)}
    )
    words = ("--on", "kubernetes", "--runtime", sliced_runtime, "--nodes", "4", "--nproc-per-node", "1")
    run = program.run(
        "run", SCRIPT, *words, "--name", "slices", "--", "--epochs", "5", seconds=TRAINING_SECONDS
    )
    assert run.returncode == 0, run.stderr
    assert "[node 0] 2 slices of 2 processes on cpu" in run.stdout
    # The number that the output has in front is the rank by which torchrun has put the node into the mesh.
    told = re.findall(r"\[node (\d)\] slice (\d) process (\d) keeps", run.stdout)
    assert sorted(told) == [("0", "0", "0"), ("1", "0", "1"), ("2", "1", "0"), ("3", "1", "1")]

    job_set = await kube.get(ObjectKey("JobSet", "default", "slices"))
    [counted] = job_set["status"]["replicatedJobsStatus"]
    assert counted["succeeded"] == 2
    job = await kube.get(ObjectKey("TrainJob", "default", "slices"))
    [told_of_all] = job["status"]["jobsStatus"]
    assert told_of_all["succeeded"] == 1
    program.succeed("delete", "slices", "--on", "kubernetes")
