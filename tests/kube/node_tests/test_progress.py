"""Progress where pods really run: the operator in its pod, a script in others, a Service between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.program import Program
from kube.cluster import Cluster
from kube.development import installed
from kube.node_tests.test_cli import build_runtime, call, communicate
from kube.node_tests.training import wait_until
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.errors import NotFound

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCRIPT = """
import os

from trainwright.progress import flush, report

assert os.environ["KUBEFLOW_TRAINER_SERVER_URL"].startswith("https://kubeflow-trainer-controller-manager.")
report(step=21, total=50, epoch=1, metrics={"loss": 0.5})
print("delivered", flush(60), flush=True)
report(step=50, total=50, epoch=2, metrics={"loss": 0.25, "accuracy": 0.875})
"""

OUTLIVES_CERTIFICATES = """
import os, time
from pathlib import Path

from trainwright.progress import flush, report

authority = Path(os.environ["KUBEFLOW_TRAINER_SERVER_CA_CERT"])
before = authority.read_bytes()
report(step=1, total=4)
print("first", flush(60), flush=True)
while authority.read_bytes() == before:
    time.sleep(0.2)
report(step=2, total=4)
print("second", flush(60), flush=True)
"""


@pytest.fixture(scope="module")
def operator(real_cluster: Cluster) -> Iterator[None]:
    with installed(real_cluster, None, "--feature-gates", "TrainJobStatus=true"):
        yield


@pytest.fixture
def program(tmp_path: Path) -> Program:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    return Program(folder=folder, state=tmp_path / "state")


async def test_a_script_reports_and_its_last_words_are_not_lost(
    real_cluster: Cluster, kube: KubeCluster, operator: None, namespace: str, program: Program
):
    """Both nodes report, rank 0 counts. The last report is sent while the interpreter and the job end."""
    await kube.create(build_runtime(namespace, real_cluster.image))
    where = ("--on", "kubernetes", "--kubeconfig", str(real_cluster.kubeconfig), "-n", namespace)

    running = program.start("run", *where, "train.py", "--runtime", "small", "--nodes", "2", "--name", "demo")
    stdout, stderr = await communicate(running, seconds=150)

    assert running.returncode == 0, stderr
    assert "[node 0] delivered True" in stdout.splitlines(), stdout + stderr
    job: Json = {}

    async def is_told() -> bool:
        nonlocal job
        job = await kube.get(ObjectKey("TrainJob", namespace, "demo"))
        reported = (job.get("status") or {}).get("trainerStatus") or {}
        return bool(reported.get("progressPercentage") == 100)

    await wait_until(kube, namespace, is_told)
    assert job["status"]["phase"] == "Complete"
    assert job["status"]["trainerStatus"]["metrics"] == [
        {"name": "epoch", "value": "2"},
        {"name": "step", "value": "50"},
        {"name": "loss", "value": "0.25"},
        {"name": "accuracy", "value": "0.875"},
    ]
    listed = await call(program, "list", *where, "-o", "wide")
    assert "100%" in listed.stdout
    assert "loss" in listed.stdout


async def test_a_pod_that_runs_goes_on_reporting_after_all_certificates_were_made_anew(
    real_cluster: Cluster, kube: KubeCluster, operator: None, namespace: str, program: Program
):
    """1. A pod reports. 2. The Secret is emptied. 3. The kubelet brings the new CA. 4. It reports again."""
    (program.folder / "train.py").write_text(OUTLIVES_CERTIFICATES)
    await kube.create(build_runtime(namespace, real_cluster.image))
    where = ("--on", "kubernetes", "--kubeconfig", str(real_cluster.kubeconfig), "-n", namespace)
    running = program.start("run", *where, "train.py", "--runtime", "small", "--name", "demo")

    async def is_reporting() -> bool:
        return await find_percent(kube, namespace) == 25 or running.poll() is not None

    await wait_until(kube, namespace, is_reporting, seconds=100)
    secret = ObjectKey("Secret", "kubeflow-system", "kubeflow-trainer-webhook-cert")
    await kube.patch(secret, {"data": None})
    stdout, stderr = await communicate(running, seconds=180)

    assert running.returncode == 0, stdout + stderr
    assert [line for line in stdout.splitlines() if line.endswith("True")] == [
        "[node 0] first True",
        "[node 0] second True",
    ]
    assert await find_percent(kube, namespace) == 50


async def find_percent(kube: KubeCluster, namespace: str) -> int | None:
    try:
        job = await kube.get(ObjectKey("TrainJob", namespace, "demo"))
    except NotFound:
        return None
    reported = (job.get("status") or {}).get("trainerStatus") or {}
    return reported.get("progressPercentage")
