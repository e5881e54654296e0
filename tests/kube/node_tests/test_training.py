"""PyTorch in pods of the cluster that `make cluster` leaves: the first command of somebody who has it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.program import Program
from kube.cluster import Cluster
from kube.images import ROOT
from kube.node_tests.training import wait_until
from trainwright.api.meta import Json
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.manifests.names import DEFAULT_NAMESPACE, LEASE

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(900)]

JOB_SET = "jobset.sigs.k8s.io/jobset-name"
RANK = "batch.kubernetes.io/job-completion-index"
SCRIPT = "examples/digits/train.py"
TRAINING_SECONDS = 400.0  # half a minute on two idle cores
EPOCHS = 20
NOT_FOUND = 3  # an exit code
# Also in the pods: one thread each, so that those of two processes do not wait for each other.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
RENEWALS = 8  # of the lease: about a quarter of a minute


@pytest.fixture
def kubectl(ready_cluster: Cluster) -> Callable[..., list[str]]:
    """What kubectl is asked with, as an administrator."""

    def build_command(*words: str) -> list[str]:
        program = ready_cluster.plane.programs / "kubectl"
        return [str(program), "--kubeconfig", str(ready_cluster.kubeconfig), *words]

    return build_command


@pytest.fixture
def program(ready_cluster: Cluster, tmp_path: Path) -> Program:
    """Somebody in a clone of the repository, with KUBECONFIG set."""
    folder = tmp_path / "clone"
    shutil.copytree(ROOT / "examples", folder / "examples")
    return Program(
        folder=folder, state=tmp_path / "state", extra={"KUBECONFIG": str(ready_cluster.kubeconfig)}
    )


async def test_a_script_trains_in_two_real_pods_as_it_does_here(
    kube: KubeCluster, program: Program, training_environment: Path, tmp_path: Path
):
    there = program.run(
        *("run", SCRIPT, "--on", "kubernetes", "--nodes", "2", "--name", "digits"), seconds=TRAINING_SECONDS
    )
    assert there.returncode == 0, there.stderr
    assert "[node 0] 2 processes on cpu, starting after epoch 0" in there.stdout

    pods = [pod for pod in (await kube.list("Pod", "default")).items if read_label(pod, JOB_SET) == "digits"]
    assert sorted(read_label(pod, RANK) for pod in pods) == ["0", "1"]
    assert [pod["status"]["phase"] for pod in pods] == ["Succeeded", "Succeeded"]
    assert len({pod["status"]["podIP"] for pod in pods}) == 2

    here = Program(
        folder=program.folder,
        state=tmp_path / "local-state",
        path=(str(training_environment / "bin"), *program.path),
        extra=ONE_THREAD,
    ).run("run", SCRIPT, "--nodes", "2", seconds=TRAINING_SECONDS)
    assert here.returncode == 0, here.stderr
    accuracies = read_accuracies(there.stdout)
    assert len(accuracies) == EPOCHS + 1
    assert accuracies == pytest.approx(read_accuracies(here.stdout), abs=0.02)
    assert accuracies[-1] > 0.95

    program.succeed("delete", "digits", "--on", "kubernetes")
    assert program.run("get", "digits", "--on", "kubernetes").returncode == NOT_FOUND


def test_kubectl_shows_state_runtime_nodes_and_age_of_jobs(
    ready_cluster: Cluster, namespace: str, kubectl: Callable[..., list[str]]
):
    job = build_suspended_job(namespace, "later")
    ready_cluster.call("POST", f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs", job)
    wait = ("wait", "tj/later", "-n", namespace, "--for=jsonpath={.status.phase}=Suspended", "--timeout=60s")
    subprocess.run(kubectl(*wait), check=True, capture_output=True)

    shown = subprocess.run(
        kubectl("get", "tj", "-n", namespace), check=True, capture_output=True, text=True
    ).stdout.splitlines()

    header, row = (re.split(r"  +", line.strip()) for line in shown)
    assert header == ["NAME", "STATE", "RUNTIME", "NODES", "PROGRESS", "AGE"]
    *cells, age = row
    assert cells == ["later", "Suspended", "torch-distributed", "2"]
    assert re.fullmatch(r"\d+m?\d*s", age)


async def test_an_operator_with_nothing_to_do_sends_only_watches_and_its_lease(
    ready_cluster: Cluster, kube: KubeCluster, namespace: str, kubectl: Callable[..., list[str]]
):
    """A suspended job and a finished one are there, of which nothing is to be said any more.

    1. The jobs reach their last phase.
    2. From one renewal of the lease on, everything that the operator sends is read from the audit log.
    """
    finished = build_suspended_job(namespace, "finished")
    finished["spec"].update(suspend=False, runtimeRef={"name": "plain"})
    finished["spec"]["trainer"].update(numNodes=1, command=["true"])
    for job in (build_suspended_job(namespace, "later"), finished):
        await kube.create(job)

    async def are_settled() -> bool:
        phases = [
            job.get("status", {}).get("phase") for job in (await kube.list("TrainJob", namespace)).items
        ]
        return sorted(map(str, phases)) == ["Complete", "Suspended"]

    await wait_until(kube, namespace, are_settled)
    words = (
        "get",
        "lease",
        LEASE,
        "-n",
        DEFAULT_NAMESPACE,
        "--watch",
        "-o",
        "jsonpath={.spec.renewTime}{'\\n'}",
    )
    with watching(kubectl(*words)) as renewals:
        for _ in range(2):  # the last write of a settled job may still be under way at the first
            next(renewals)
        start = ready_cluster.audit_log.stat().st_size
        for _ in range(RENEWALS):
            next(renewals)

    with ready_cluster.audit_log.open() as log:
        log.seek(start)
        sent = [json.loads(line) for line in log]
    leases = [one for one in sent if one.get("objectRef", {}).get("resource") == "leases"]
    others = [one for one in sent if one not in leases and one["verb"] != "watch"]
    assert others == []
    assert {one["verb"] for one in leases} == {"update"}
    assert RENEWALS - 1 <= len(leases) <= RENEWALS + 1


@contextlib.contextmanager
def watching(command: list[str]) -> Iterator[Iterator[str]]:
    """Give the lines that a command prints until the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield iter(process.stdout)
    finally:
        process.kill()
        process.communicate()


def read_accuracies(said: str) -> list[float]:
    return [float(found) for found in re.findall(r"test accuracy (\d\.\d+)", said)]


def read_label(pod: Json, label: str) -> str:
    return str(pod["metadata"]["labels"].get(label))


def build_suspended_job(namespace: str, name: str) -> Json:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "suspend": True,
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": 2, "command": ["torchrun", "train.py"]},
        },
    }
