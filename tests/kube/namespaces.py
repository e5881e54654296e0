"""The walls around a node: namespaces, cgroups and one link. Nothing of the machine is changed for good.

    PID namespace       all that the node starts, containers too, dies with its first process
    mount namespace     what is mounted is never seen outside; the usual paths are the node's own
    network namespace   iptables rules, forwarding, bridges and addresses are its own
    cgroup `/NAME`      all pods; removed at the end
    link `NAME`         one pair of network devices between the machine and the node

In: a name and a folder. Out: a `Walls`, in which `run` and `start` run programs. Only for root on Linux.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from kube.lifetime import DEATH_SIGNAL

CGROUPS = Path("/sys/fs/cgroup")
NETWORK = Path("/sys/class/net")
END_SECONDS = 20.0

# The kubelet sets these, for the whole machine: it gets files of its own in their place.
_TUNABLES = {
    "/proc/sys/vm/overcommit_memory": "1",
    "/proc/sys/vm/panic_on_oom": "0",
    "/proc/sys/kernel/panic": "10",
    "/proc/sys/kernel/panic_on_oops": "1",
    "/proc/sys/kernel/keys/root_maxkeys": "1000000",
    "/proc/sys/kernel/keys/root_maxbytes": "25000000",
}
# Where kubelet, containerd and its network plugins keep things, on a machine of their own.
_BOUND = {
    "containerd": "/var/lib/containerd",
    "kubelet": "/var/lib/kubelet",
    "logs": "/var/log/pods",
    "log-links": "/var/log/containers",
    "networks": "/var/lib/cni",
}


@dataclass(frozen=True)
class Addresses:
    """A network of its own for one cluster: the link to the machine, and the pods behind the node."""

    link: str
    machine: ipaddress.IPv4Address
    node: ipaddress.IPv4Address
    pods: ipaddress.IPv4Network

    @property
    def prefix_length(self) -> int:
        """Of the link: two addresses."""
        return 30


def claim_link(owner: str) -> Addresses:
    """Return free addresses; the network device that is made for them keeps them from other owners."""
    taken = _list_routes()
    for number in range(256):
        link_network = ipaddress.IPv4Network(f"10.213.{number}.0/30")
        pods = ipaddress.IPv4Network(f"10.214.{number}.0/24")
        if any(network.overlaps(link_network) or network.overlaps(pods) for network in taken):
            continue
        addresses = Addresses(f"trainwright{number}", link_network[1], link_network[2], pods)
        made = subprocess.run(
            ["ip", "link", "add", addresses.link, "type", "veth", "peer", "name", f"tw-peer{number}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode == 0:
            _ip("link", "set", addresses.link, "alias", owner)
            return addresses
        if "exists" not in made.stderr:
            raise RuntimeError(f"cannot make a network link: {made.stderr.strip()}")
    raise RuntimeError("no free network 10.213.N.0/30 with 10.214.N.0/24 is left on this machine")


def delete_link(owner: str) -> None:
    """Delete an owner's link, its addresses and its routes; nothing where there is none.

    By owner: the name may have been given to another cluster since the link went with its node.
    """
    for alias in NETWORK.glob("trainwright*/ifalias"):
        with contextlib.suppress(FileNotFoundError):
            if alias.read_text().strip() == owner:
                subprocess.run(["ip", "link", "delete", alias.parent.name], capture_output=True, check=False)


@dataclass
class Walls:
    """The namespaces of one node.

    `launcher` is put before the command that makes them. `held` is a file descriptor that stays open as long
    as the node lives.
    """

    name: str
    folder: Path
    addresses: Addresses
    launcher: Sequence[str]
    held: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    init: psutil.Process | None = None

    def start_init(self) -> None:
        """Make the namespaces."""
        for part in (*_BOUND, "programs"):
            (self.folder / part).mkdir(exist_ok=True)
        made = [target for target in _BOUND.values() if _make_folder(Path(target))]
        (self.folder / "made-folders.json").write_text(json.dumps(made))
        plan = {
            "hostname": self.name,
            "empty": ["/run"],
            "binds": [[str(self.folder / part), target] for part, target in _BOUND.items()],
            "files": [
                *_TUNABLES.items(),
                ("/etc/resolv.conf", f"nameserver {self.addresses.node}\n"),
            ],
        }
        with (self.folder / "init.log").open("wb") as log:
            unshare = subprocess.Popen(
                [
                    *self.launcher,
                    *("unshare", "--mount", "--propagation", "slave", "--uts", "--ipc", "--net"),
                    *("--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
                    *(sys.executable, "-I", str(Path(__file__).with_name("node_init.py")), json.dumps(plan)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(self.held,),
                start_new_session=True,
            )
        self.processes["init"] = unshare
        assert unshare.stdout is not None
        with unshare.stdout as said:
            if said.readline() != b"ready\n":
                raise RuntimeError(f"the node's namespaces: {(self.folder / 'init.log').read_text()}")
        (self.init,) = psutil.Process(unshare.pid).children()
        make_cgroups(self.name)
        self._connect()

    def run(self, *command: str | Path) -> str:
        """Run a program on the node to its end and return its output."""
        assert self.init is not None
        return run_inside(self.init.pid, *command)

    def start(self, name: str, *command: str | Path) -> subprocess.Popen[bytes]:
        """Start a program on the node; its output goes to NAME.log."""
        assert self.init is not None
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*_enter(self.init.pid), *DEATH_SIGNAL, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.processes[name]

    def stop(self, name: str) -> None:
        """Kill one program."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def end(self) -> None:
        """End all, and take down what was made outside of the namespaces."""
        if self.init is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.init.kill()
        for process in self.processes.values():
            try:
                process.wait(END_SECONDS)  # it ends by itself, and reaps its child only then
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        remove_traces(self.name, self.folder)

    def _connect(self) -> None:
        """Give both ends of the link their addresses, and a way to the pods."""
        assert self.init is not None
        addresses = self.addresses
        peer = addresses.link.replace("trainwright", "tw-peer")
        _ip("link", "set", peer, "netns", str(self.init.pid), "name", "eth0")
        _ip("address", "add", f"{addresses.machine}/{addresses.prefix_length}", "dev", addresses.link)
        _ip("link", "set", addresses.link, "up")
        _ip("route", "add", str(addresses.pods), "via", str(addresses.node))
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{addresses.node}/{addresses.prefix_length}", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        # No default route: a pod that sends anywhere else is told at once that it cannot.
        self.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")


def run_inside(init: int, *command: str | Path) -> str:
    """Run a program in the namespaces of a node, given its first process, and return its output."""
    done = subprocess.run([*_enter(init), *map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} on the node ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def make_cgroups(name: str) -> None:
    """Make the cgroup that all pods are under, in every hierarchy."""
    for hierarchy in _list_hierarchies():
        group = hierarchy / name
        group.mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (group / setting).exists() and not (group / setting).read_text().strip():
                # Version 1 starts empty, and then takes no process.
                (group / setting).write_text((hierarchy / setting).read_text())


def remove_traces(name: str, folder: Path) -> None:
    """Remove what a node leaves when its processes are gone: the link, the cgroups, folders it made.

    The folders stay as long as another cluster runs: what is mounted on a folder in another namespace does
    not keep it from being removed, and goes with it.
    """
    delete_link(name)
    for hierarchy in _list_hierarchies():
        _remove_cgroup(hierarchy / name)
    made = folder / "made-folders.json"
    if made.exists() and not any(NETWORK.glob("trainwright*")):
        for target in json.loads(made.read_text()):
            with contextlib.suppress(OSError):  # somebody else uses it
                Path(target).rmdir()


def _enter(init: int) -> Sequence[str]:
    return ("nsenter", "--target", str(init), "--mount", "--uts", "--ipc", "--net", "--pid", "--")


def _make_folder(path: Path) -> bool:
    """Say whether the folder had to be made."""
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _list_hierarchies() -> list[Path]:
    if (CGROUPS / "cgroup.controllers").exists():  # version 2
        return [CGROUPS]
    return [path for path in sorted(CGROUPS.iterdir()) if (path / "cgroup.procs").exists() and path.is_dir()]


def _remove_cgroup(group: Path) -> None:
    """Remove a cgroup and those in it. The kernel lets go of ended processes a moment after their end."""
    deadline = time.monotonic() + END_SECONDS
    for folder in _list_bottom_up(group):
        while True:
            try:
                folder.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                break


def _list_bottom_up(group: Path) -> Iterator[Path]:
    if group.is_dir():
        for inner, _, _ in os.walk(group, topdown=False):
            yield Path(inner)


def _list_routes() -> list[ipaddress.IPv4Network]:
    """Return the networks that this machine has routes to, besides the default route."""
    listed = subprocess.run(["ip", "-json", "-4", "route"], capture_output=True, check=True, text=True)
    return [
        ipaddress.IPv4Network(route["dst"], strict=False)
        for route in json.loads(listed.stdout or "[]")
        if route["dst"] != "default"
    ]


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
