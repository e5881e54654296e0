"""One node on which pods really run: containerd, kubelet, kube-proxy and CoreDNS behind `namespaces.Walls`.

In: the walls, the programs, images, and a kubeconfig per component. Out: a node that is Ready, with a domain
name service that knows the cluster's headless services. Settings that look odd say why: they were needed on
a machine with cgroup v1, without systemd, in a container or virtual machine.
"""

from __future__ import annotations

import json
import shutil
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kube.images import PAUSE_IMAGE
from kube.namespaces import Walls

PROGRAMS = (
    "containerd",
    "ctr",
    "runc",
    "iptables",
    "conntrack",
    "ip",
    "nsenter",
    "unshare",
    "setpriv",
    "mount",
)
# Debian's folder, and the one of the plugins' own releases.
PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
PLUGINS = ("bridge", "host-local", "loopback", "portmap")
SOCKET = "/run/containerd/containerd.sock"
DOMAIN = "cluster.local"
READY_PORT = 8181  # of CoreDNS
START_SECONDS = 60.0

# Runs a program on a node to its end and returns its output.
RunOnNode = Callable[..., str]
_IMAGES = ("ctr", "--address", SOCKET, "--namespace", "k8s.io", "images")


def list_missing() -> list[str]:
    """Return which programs of the operating system a node needs and this machine lacks."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    return missing if _find_plugins() else [*missing, "containernetworking-plugins"]


def import_image(run: RunOnNode, archive: Path) -> None:
    """Make an image known to a node."""
    run(*_IMAGES, "import", archive)


def has_image(run: RunOnNode, image: str) -> bool:
    """Say whether a node knows an image."""
    return bool(run(*_IMAGES, "list", "--quiet", f"name=={image}").strip())


@dataclass
class Node:
    """The programs of one node."""

    walls: Walls
    programs: Path

    @property
    def name(self) -> str:
        """The node's name in the cluster."""
        return self.walls.name

    def start_containerd(self, images: list[Path]) -> None:
        """Start the container runtime, and import images. Needs no API server."""
        walls, folder = self.walls, self.walls.folder
        networks = folder / "net.d"
        networks.mkdir()
        (networks / "10-pods.conflist").write_text(json.dumps(self._build_network()))
        config = folder / "containerd.toml"
        config.write_text(_build_containerd_config(networks))
        walls.start("containerd", "containerd", "--config", config, "--log-level", "warn")
        self._wait_for("containerd", lambda: self._succeeds("ctr", "--address", SOCKET, "version"))
        for image in images:
            self.import_image(image)

    def import_image(self, archive: Path) -> None:
        """Make an image known to the node."""
        import_image(self.walls.run, archive)

    def start_services(self, *, kubelet: Path, proxy: Path, dns: Path) -> None:
        """Start what needs an API server, each with a kubeconfig of its own."""
        self._start_kubelet(kubelet)
        self._start_proxy(proxy)
        self._start_dns(dns)

    def wait_for_dns(self) -> None:
        """Wait until names are answered."""
        url = f"http://{self.walls.addresses.node}:{READY_PORT}/ready"
        self._wait_for("coredns", lambda: _answers(url))

    def _start_kubelet(self, kubeconfig: Path) -> None:
        self.walls.start(
            "kubelet",
            self.programs / "kubelet",
            *("--config", self._write("kubelet.yaml", self._build_kubelet_config())),
            *("--kubeconfig", kubeconfig),
            *("--hostname-override", self.name, "--node-ip", str(self.walls.addresses.node)),
        )

    def _start_proxy(self, kubeconfig: Path) -> None:
        node = str(self.walls.addresses.node)
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "bindAddress": node,
            "hostnameOverride": self.name,
            "clusterCIDR": str(self.walls.addresses.pods),
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            # Those limits are the machine's, not the node's: leave them as they are.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
        self.walls.start(
            "kube-proxy", self.programs / "kube-proxy", "--config", self._write("kube-proxy.yaml", config)
        )

    def _start_dns(self, kubeconfig: Path) -> None:
        node = self.walls.addresses.node
        corefile = self.walls.folder / "Corefile"
        # ttl 1: a pod that is restarted has another address. Names of other zones are denied at once.
        corefile.write_text(
            f"""{DOMAIN}:53 {{
  bind {node}
  errors
  ready {node}:{READY_PORT}
  kubernetes {DOMAIN} {{
    kubeconfig {kubeconfig}
    ttl 1
  }}
}}
.:53 {{
  bind {node}
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""
        )
        self.walls.start("coredns", self.programs / "coredns", "-conf", corefile)

    def _build_network(self) -> dict[str, Any]:
        return {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": True,
                    "ipMasq": True,
                    "hairpinMode": True,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": str(self.walls.addresses.pods)}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}},
            ],
        }

    def _build_kubelet_config(self) -> dict[str, Any]:
        node = str(self.walls.addresses.node)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": node,
            # Open, for logs and exec: only this machine and the pods can reach the address.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "cgroupRoot": f"/{self.name}",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            # The disk is the machine's: how full it is says nothing about the test.
            "evictionHard": {
                "memory.available": "50Mi",
                "nodefs.available": "1%",
                "nodefs.inodesFree": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "serializeImagePulls": False,
            "clusterDNS": [node],
            "clusterDomain": DOMAIN,
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
            "nodeStatusUpdateFrequency": "5s",
            "kubeAPIQPS": 100,
            "kubeAPIBurst": 200,
        }

    def _write(self, name: str, config: dict[str, Any]) -> Path:
        path = self.walls.folder / name
        path.write_text(yaml.safe_dump(config))
        return path

    def _succeeds(self, *command: str) -> bool:
        try:
            self.walls.run(*command)
        except RuntimeError:
            return False
        return True

    def _wait_for(self, name: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            dead = self.walls.processes[name].poll() is not None
            if dead or time.monotonic() > deadline:
                said = (self.walls.folder / f"{name}.log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{name} {'ended' if dead else 'is not ready'}:\n{said}")
            time.sleep(0.1)


def _build_containerd_config(networks: Path) -> str:
    # restrict_oom_score_adj: a container may not lower its score below that of its parent, and where that is
    # refused every sandbox fails with "can't get final child's PID from pipe".
    return f"""\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{_find_plugins()}"
    conf_dir = "{networks}"
"""


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _find_plugins() -> Path | None:
    return next(
        (folder for folder in PLUGIN_FOLDERS if all((folder / plugin).exists() for plugin in PLUGINS)), None
    )
