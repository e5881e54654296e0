"""`trainwright run` and `logs` where pods really run: the same script, here and there."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from cli.program import Program
from kube.cluster import Cluster
from kube.operating import operating
from trainwright.api.meta import ObjectKey
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.config import load_connection

SCRIPT = r"""
import os, sys, time
from pathlib import Path

from pkg import where
from trainwright.progress import report

rank = os.environ["JOB_COMPLETION_INDEX"]
assert Path("data.bin").read_bytes() == bytes(range(256))
assert not Path("ignored.txt").exists()
assert os.access("tool.sh", os.X_OK)
print("arguments", sys.argv[1:], where.NAME, flush=True)
for step in range(3):
    print(f"step {step} of rank {rank}", flush=True)
    time.sleep(0.3)
"""
ARGUMENTS = ("$(HOME)", "`id`", '"; exit 3', "$$", "é", "".join(map(chr, range(1, 128))))


@pytest.fixture
async def operator(
    real_cluster: Cluster, kube: KubeCluster, namespace: str, tmp_path: Path
) -> AsyncIterator[None]:
    for path in sorted((Path(__file__).parents[3] / "src/trainwright/manifests/crds").glob("*.yaml")):
        await kube.apply(yaml.safe_load(path.read_text()), "test")
    connection = load_connection({"KUBECONFIG": str(real_cluster.kubeconfig)}, tmp_path)
    async with operating(connection, namespace):
        yield


@pytest.fixture
def program(tmp_path: Path) -> Program:
    folder = tmp_path / "work"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "pkg" / "where.py").write_text("NAME = 'package'\n")
    (folder / "data.bin").write_bytes(bytes(range(256)))
    (folder / "ignored.txt").write_text("no")
    (folder / ".gitignore").write_text("ignored.txt\n")
    (folder / "tool.sh").write_text("#!/bin/sh\n")
    (folder / "tool.sh").chmod(0o755)
    return Program(folder=folder, state=tmp_path / "state")


async def test_a_script_runs_in_two_pods_and_its_output_is_followed(
    real_cluster: Cluster, kube: KubeCluster, operator: None, namespace: str, program: Program
):
    runtime = build_runtime(namespace, real_cluster.image)
    await kube.create(runtime)
    where = ("--on", "kubernetes", "--kubeconfig", str(real_cluster.kubeconfig), "-n", namespace)
    words = ("train.py", "--runtime", "small", "--nodes", "2", "--name", "demo", "--", *ARGUMENTS)

    running = program.start("run", *where, *words)
    stdout, stderr = await communicate(running, seconds=100)
    assert running.returncode == 0, stderr
    lines = stdout.splitlines()
    for rank in (0, 1):
        own = [line.removeprefix(f"[node {rank}] ") for line in lines if line.startswith(f"[node {rank}]")]
        assert own == [
            f"arguments {list(ARGUMENTS)!r} package",
            *(f"step {step} of rank {rank}" for step in range(3)),
        ]
    assert "demo: Complete after" in stderr

    read = await call(program, "logs", *where, "demo", "--rank", "1", "--tail", "1")
    assert read.stdout == "step 2 of rank 1\n"
    again = await call(program, "logs", *where, "demo", "--follow")
    assert sorted(again.stdout.splitlines()) == sorted(lines)
    assert (await call(program, "delete", *where, "demo")).returncode == 0
    assert (await kube.list("Pod", namespace)).items == []


async def test_ctrl_c_stops_the_job_and_a_wrong_image_is_explained(
    real_cluster: Cluster, kube: KubeCluster, operator: None, namespace: str, program: Program
):
    await kube.create(build_runtime(namespace, real_cluster.image))
    where = ("--on", "kubernetes", "--kubeconfig", str(real_cluster.kubeconfig), "-n", namespace)
    words = ("--runtime", "small", "--image", "no.such.host/image:1", "--name", "wrong", "train.py")
    running = program.start("run", *where, *words)
    said: list[str] = []
    try:
        reading = asyncio.create_task(asyncio.to_thread(read_until, running, "image:1", said))
        _, late = await asyncio.wait([reading], timeout=90)
        assert not late, f"said only {said}"
        assert any("waiting for wrong" in line for line in said)
        running.send_signal(signal.SIGINT)
        stdout, _ = await asyncio.to_thread(running.communicate, timeout=60)
    finally:
        running.kill()
        running.wait()
    assert (running.returncode, stdout) == (130, "")
    job = await kube.get(ObjectKey("TrainJob", namespace, "wrong"))
    assert job["status"]["phase"] == "Failed"


def read_until(process: subprocess.Popen[str], word: str, said: list[str]) -> None:
    assert process.stderr is not None
    while not (said and word in said[-1]) and (line := process.stderr.readline()):
        said.append(line)


async def communicate(process: subprocess.Popen[str], seconds: float) -> tuple[str, str]:
    """Return what the program says until it ends, or is ended because it takes too long."""
    telling = asyncio.create_task(asyncio.to_thread(process.communicate))
    await asyncio.wait([telling], timeout=seconds)
    if process.poll() is None:
        process.kill()
    return await telling


async def call(program: Program, *words: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(program.run, *words)


def build_runtime(namespace: str, image: str) -> dict[str, object]:
    container = {"name": "node", "image": image, "imagePullPolicy": "IfNotPresent"}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [container]}
    job = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}},
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "small", "namespace": namespace},
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": job}]}},
        },
    }
