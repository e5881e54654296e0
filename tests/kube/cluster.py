"""A whole Kubernetes on this machine: control plane, JobSet, our CRDs, and one node on which pods really run.

As a context manager it lives as long as the process that made it, however that ends. `running_in_background`
leaves one running (`make cluster`). All clusters of a user have a folder under one state folder; whoever
starts one first takes down what earlier ones left behind. A cluster lives as long as the first process of
its node holds the lock of its folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import psutil
import yaml

from kube.control_plane import ControlPlane, Variant
from kube.images import BASE_IMAGE, ImageNotBuilt, build_images
from kube.installing import install_our_crds
from kube.lifetime import DIE_WITH_PARENT
from kube.namespaces import Walls, claim_link, delete_link, remove_traces, run_inside
from kube.node import Node, list_missing
from trainwright.manifests.names import DEFAULT_NAMESPACE

BACKGROUND = "background"  # the name of the one cluster that `make cluster` leaves running
# A user without any right but those that everybody has, until somebody gives them a role.
PERSON = "person"

# In the environment of every process that a cluster starts: they are found by it when nobody else knows them.
MARK = "TRAINWRIGHT_CLUSTER_FOLDER"

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{DEFAULT_NAMESPACE}"]},
        {"level": "None"},
    ],
}
_PROGRAMS = ("kubelet", "kube-proxy", "kube-scheduler", "coredns")


class ClusterUnavailable(Exception):
    """No node can be started on this machine; the message says what is missing."""


@dataclass(frozen=True)
class Description:
    """What is written down of a running cluster, for whoever has to take it down."""

    node: str
    kubeconfig: str
    processes: dict[str, tuple[int, float]]  # name: process id and start time

    def run_on_node(self, *command: str | Path) -> str:
        """Run a program on the node to its end and return its output."""
        outside, _ = self.processes["init"]
        (init,) = psutil.Process(outside).children()
        return run_inside(init.pid, *command)


class Cluster:
    """A control plane and a node. Use as a context manager."""

    image = BASE_IMAGE

    def __init__(self, programs: Path, name: str | None = None, *, dies_with_parent: bool = True) -> None:
        unique = uuid.uuid4().hex[:6]
        self.name = name or f"test-{unique}"
        # Also the name of its cgroup: unique on the machine, also among clusters with a folder elsewhere.
        self.node_name = f"trainwright-{unique}"
        self._programs = programs
        self._dies_with_parent = dies_with_parent
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        check_machine(self._programs)
        sweep()
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator."""
        return self.plane.kubeconfig()

    @property
    def audit_log(self) -> Path:
        """What an installed operator sent to the API server, a line of JSON for each request."""
        return self.folder / "audit.log"

    def call(self, method: str, path: str, body: object = None, **options: str) -> Any:
        """Send one request as administrator and return the decoded answer."""
        return self.plane.call(method, path, body, **options)

    def install_crds(self) -> None:
        """Create our CRDs and wait until they are served."""
        install_our_crds(self.plane)

    def keep_running(self) -> None:
        """Leave the cluster when this process ends; `stop` ends it."""
        self._stack.pop_all()

    def _start(self, stack: contextlib.ExitStack) -> None:
        try:
            images = build_images()
        except ImageNotBuilt as error:
            raise ClusterUnavailable(str(error)) from error
        lock = stack.enter_context(self._make_folder())
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._write_description({})
        stack.callback(delete_link, self.node_name)
        addresses = claim_link(self.node_name)
        launcher = (
            *("env", f"{MARK}={self.folder}"),
            *(DIE_WITH_PARENT if self._dies_with_parent else ()),
        )
        walls = Walls(self.node_name, _make(self.folder / "node"), addresses, launcher, lock.fileno())
        stack.callback(walls.end)
        walls.start_init()
        self.node = node = Node(walls, self._programs)
        policy = self.folder / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        audit = (
            *(f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"),
            *("--audit-log-maxsize=50", "--audit-log-maxbackup=1"),  # megabytes: a cluster may run for weeks
        )
        self.plane = ControlPlane(
            self._programs, _make(self.folder / "control-plane"), _build_variant(walls, launcher, audit)
        )
        with ThreadPoolExecutor(1, "containerd") as pool:
            containers = pool.submit(node.start_containerd, images)
            stack.enter_context(self.plane)
            self.plane.start_scheduler()
            containers.result()
        node.start_services(
            kubelet=self.plane.kubeconfig(f"system:node:{walls.name}"),
            proxy=self.plane.kubeconfig("system:kube-proxy"),
            dns=self.plane.kubeconfig("coredns"),
        )
        self.install_crds()
        self.plane.wait_for("kubelet", lambda: self._is_ready(walls.name))
        node.wait_for_dns()
        self.plane.kubeconfig()  # the administrator's, for whoever reads the description
        programs = {name: process.pid for name, process in walls.processes.items()}
        self._write_description({**self.plane.pids, **programs})

    def _make_folder(self) -> IO[str]:
        """Make the folder and return its lock, held; nobody sees the folder before it is."""
        self.folder = get_state_folder() / self.name
        draft = self.folder.with_name(f".{self.name}-{os.getpid()}")
        draft.mkdir(parents=True)
        lock = (draft / "lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.rename(self.folder)
        return lock

    def _is_ready(self, name: str) -> bool:
        nodes = self.call("GET", "/api/v1/nodes")["items"]
        return any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for node in nodes
            if node["metadata"]["name"] == name
            for condition in node["status"].get("conditions") or []
        )

    def _write_description(self, pids: dict[str, int]) -> None:
        processes = {name: (pid, psutil.Process(pid).create_time()) for name, pid in pids.items()}
        kubeconfig = str(self.folder / "control-plane/admin.kubeconfig")
        content = {
            "node": self.node_name,
            "kubeconfig": kubeconfig,
            "processes": processes,
        }
        draft = self.folder / "cluster.json.new"
        draft.write_text(json.dumps(content))
        draft.rename(self.folder / "cluster.json")


def check_machine(programs: Path) -> None:
    """Raise ClusterUnavailable, with what to do, where no node can be started."""
    if os.geteuid() != 0:
        raise ClusterUnavailable("a node needs root: it makes namespaces, cgroups and network links")
    if missing := list_missing():
        raise ClusterUnavailable(f"not installed: {', '.join(missing)}; run scripts/system-packages")
    if missing := [program for program in _PROGRAMS if not (programs / program).exists()]:
        raise ClusterUnavailable(
            f"{programs} lacks {', '.join(missing)}: use what scripts/cluster-programs prints"
        )


def get_state_folder() -> Path:
    """Return the folder that has a folder per cluster; TRAINWRIGHT_CLUSTERS chooses another place."""
    if chosen := os.environ.get("TRAINWRIGHT_CLUSTERS"):
        return Path(chosen)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "trainwright/clusters"


@contextlib.contextmanager
def running_in_background(programs: Path) -> Iterator[Description]:
    """Give the cluster that is left running, started where there is none; nobody stops it meanwhile."""
    with _locked_state():
        running = find_running(BACKGROUND)
        if running is None:
            take_down(get_state_folder() / BACKGROUND)
            with Cluster(programs, BACKGROUND, dies_with_parent=False) as cluster:
                cluster.keep_running()
            running = find_running(BACKGROUND)
        if running is None:
            raise ClusterUnavailable("it ended at once; `make cluster-stop` takes down what is left")
        yield running


def stop() -> bool:
    """End the cluster that was left running; say whether there was anything of it."""
    folder = get_state_folder() / BACKGROUND
    with _locked_state():
        existed = folder.exists()
        take_down(folder)
    sweep()
    return existed


def find_running(name: str) -> Description | None:
    """Return what is known of a cluster that runs, with all that it started."""
    folder = get_state_folder() / name
    description = _read_description(folder)
    if description is None or not _is_held(folder) or not description.processes:
        return None
    return description if all(_is_alive(*process) for process in description.processes.values()) else None


def sweep() -> None:
    """Take down what clusters left behind that nobody holds any more."""
    folder = get_state_folder()
    for cluster in sorted(folder.iterdir()) if folder.exists() else []:
        if cluster.is_dir() and not cluster.name.startswith(".") and not _is_held(cluster):
            take_down(cluster)


def take_down(folder: Path) -> None:
    """End every process of a cluster and remove all that it made; nothing where there is no cluster."""
    if not folder.exists():
        return
    description = _read_description(folder)
    for process in _list_marked(folder):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _wait_until_free(folder)
    if description is not None:  # else it came to nothing
        remove_traces(description.node, folder / "node")
    shutil.rmtree(folder)


def _build_variant(walls: Walls, launcher: tuple[str, ...], audit: tuple[str, ...]) -> Variant:
    return Variant(
        address=str(walls.addresses.machine),
        authorization="Node,RBAC",
        # Webhooks that are services are called at their pods: this machine has no service addresses.
        apiserver_arguments=(
            "--enable-aggregator-routing=true",
            "--allow-privileged=true",
            # For logs and exec: nobody outside of the node knows its name.
            "--kubelet-preferred-address-types=InternalIP",
            *audit,
        ),
        controllers="*",
        users={
            f"system:node:{walls.name}": ("test-kubelet", "system:nodes"),
            "system:kube-proxy": ("test-kube-proxy", "system:node-proxier"),
            "system:kube-scheduler": ("test-kube-scheduler", "system:authenticated"),
            "coredns": ("test-coredns", "system:masters"),
            PERSON: ("test-person", "system:authenticated"),
        },
        launcher=launcher,
    )


def _make(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _read_description(folder: Path) -> Description | None:
    try:
        content = json.loads((folder / "cluster.json").read_text())
    except FileNotFoundError:
        return None
    processes = {name: (int(pid), float(start)) for name, (pid, start) in content["processes"].items()}
    return Description(content["node"], content["kubeconfig"], processes)


def _is_alive(pid: int, start_time: float) -> bool:
    """Say whether the process still is the one that was started; the clock may have been set meanwhile."""
    try:
        return abs(psutil.Process(pid).create_time() - start_time) < 5.0
    except psutil.NoSuchProcess:
        return False


def _list_marked(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == str(folder):
                found.append(process)
    return found


def _is_held(folder: Path) -> bool:
    try:
        with (folder / "lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _wait_until_free(folder: Path) -> None:
    """Wait until the first process of the node is gone, and all of the node with it."""
    with contextlib.suppress(FileNotFoundError), (folder / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


@contextlib.contextmanager
def _locked_state() -> Iterator[None]:
    """Let one at a time start or stop the cluster in the background."""
    folder = get_state_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "background.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
