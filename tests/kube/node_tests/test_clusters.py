"""A cluster leaves the machine as it was, however it ends; one runs in the background until it is stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from kube import cluster as clusters
from kube.cluster import Cluster
from kube.namespaces import CGROUPS, NETWORK, remove_traces
from trainwright.runtimes import load_shipped_runtimes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[3]
TUNABLES = (
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/netfilter/nf_conntrack_max",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/panic_on_oops",
    "/proc/sys/kernel/keys/root_maxkeys",
)
# Under which a node mounts something; elsewhere others may, meanwhile.
MOUNTED = (
    *("/run", "/var/lib", "/var/log", "/proc/sys", "/etc", "/sys/fs/cgroup"),
    f"{tempfile.gettempdir()}/pytest",
)
# Runs a cluster until it is killed.
HOLD = """
import sys, time
from pathlib import Path
from kube.cluster import Cluster
with Cluster(Path(sys.argv[1]), "crashes"):
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def state(real_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of its own, on a machine that can run a node."""
    monkeypatch.setenv("TRAINWRIGHT_CLUSTERS", str(tmp_path / "clusters"))
    return tmp_path / "clusters"


def look_at_machine() -> dict[str, Any]:
    """Return what a node changes where it is not walled in; the traces of clusters are looked for apart."""
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    return {
        "mounts": sorted(line for line in mounts if line.split()[1].startswith(MOUNTED)),
        "rules": [line for line in rules.splitlines() if not line.startswith(("#", ":"))],
        "routes": sorted(line for line in routes.splitlines() if " trainwright" not in line),
        "tunables": {path: Path(path).read_text() for path in TUNABLES if Path(path).exists()},
    }


def list_traces(folder: Path) -> list[str]:
    """Return what there is of a cluster outside of its folder: network link and cgroups."""
    node = json.loads((folder / "cluster.json").read_text())["node"]
    links = [alias for alias in NETWORK.glob("*/ifalias") if alias.read_text().strip() == node]
    return [str(place) for place in (*links, *CGROUPS.glob(f"*/{node}"))]


def list_marked(folder: Path) -> list[psutil.Process]:
    """Return the processes of a cluster that are alive."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(clusters.MARK) == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_what_a_crashed_run_leaves_is_taken_down_by_the_next(
    state: Path, cluster_programs: Path, tmp_path: Path
):
    before, copy = look_at_machine(), tmp_path
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(cluster_programs)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        with holder.stdout as said:
            assert said.readline() == b"up\n"
        running = list_marked(state / "crashes")
        assert {process.name() for process in running} >= {"etcd", "kube-apiserver", "unshare", "jobset"}
        shutil.copy(state / "crashes/cluster.json", copy)
        assert list_traces(copy) != []
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    # Everything that ran died with the one that was killed; its folder and cgroups nobody could remove.
    _, alive = psutil.wait_procs(running, timeout=30)
    assert alive == []
    assert (state / "crashes").exists()
    assert list_traces(copy) != []

    clusters.sweep()

    assert not (state / "crashes").exists()
    assert list_traces(copy) == []
    assert look_at_machine() == before


def test_a_cluster_that_ends_leaves_the_folders_on_which_others_have_mounts(
    real_cluster: Cluster, tmp_path: Path
):
    """Removing the folder would unmount what the other cluster has there, in its own namespace."""
    (tmp_path / "mounted-on").mkdir()
    (tmp_path / "made-folders.json").write_text(json.dumps([str(tmp_path / "mounted-on")]))

    remove_traces("trainwright-ended", tmp_path)

    assert (tmp_path / "mounted-on").exists()


def test_one_cluster_runs_in_the_background_until_it_is_stopped(
    state: Path, cluster_programs: Path, tmp_path: Path
):
    before, copy = look_at_machine(), tmp_path
    kubeconfig = state / "background/control-plane/admin.kubeconfig"

    def make(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, ROOT / "scripts/cluster.py", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done

    def get(*words: str) -> list[str]:
        done = subprocess.run(
            [cluster_programs / "kubectl", "--kubeconfig", kubeconfig, "get", "-o", "name", *words],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()

    def look_at_cluster() -> tuple[object, list[str]]:
        """Return its processes, and the operator's pod."""
        description = json.loads((state / "background/cluster.json").read_text())
        return description["processes"], get("pods", "-n", "kubeflow-system")

    try:
        first = make("start", str(cluster_programs)).stdout
        running = look_at_cluster()
        again = make("start", str(cluster_programs)).stdout
        assert first == again == f"export KUBECONFIG={kubeconfig}\n"
        assert look_at_cluster() == running
        assert [name.rpartition("-")[0] for name in get("nodes")] == ["node/trainwright"]
        assert get("clustertrainingruntimes") == [
            f"clustertrainingruntime.trainer.kubeflow.org/{name}" for name in load_shipped_runtimes()
        ]
        shutil.copy(state / "background/cluster.json", copy)
        assert list_traces(copy) != []
    finally:
        ended = make("stop")
    assert ended.stderr == "The cluster is gone.\n"
    assert list_marked(state / "background") == []
    assert list_traces(copy) == []
    assert look_at_machine() == before
    assert make("stop").stderr == "No cluster was running.\n"
