"""A real Kubernetes control plane of host processes on loopback: etcd, kube-apiserver, controllers, JobSet.

In: the folder of programs that `scripts/cluster-programs` builds. Out: a running control plane with a
kubeconfig per component, each with a user of its own. There is no scheduler and no node: pods stay Pending
(`cluster.Cluster` and `kwok.SimulatedNodes` add them, through `Variant`).
Everything that was started ends with the context, by its process id; the folder is removed. Where this
process is killed the programs end all the same (`lifetime`).
"""

from __future__ import annotations

import base64
import functools
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from kube.lifetime import DIE_WITH_PARENT, start_in_background

START_SECONDS = 60.0
ADMIN_TOKEN = "test-admin"
# Every component is a user of its own, so that the audit log and RBAC tell them apart.
USERS = {
    "admin": (ADMIN_TOKEN, "system:masters"),
    "controller-manager": ("test-controller-manager", "system:masters"),
    "jobset": ("test-jobset", "system:masters"),
    "operator": ("test-operator", "system:serviceaccounts"),
    "operator-of-one-namespace": ("test-operator-of-one-namespace", "system:serviceaccounts"),
}


@dataclass(frozen=True)
class Variant:
    """What can differ between control planes; the defaults are the fastest that has Jobs and JobSets.

    `address` is the one of this machine that the API server listens on and tells to pods. `users` are token
    and group by name, besides those above. `launcher` is put before every command.
    """

    address: str = "127.0.0.1"
    authorization: str = "RBAC"
    apiserver_arguments: tuple[str, ...] = ("--disable-admission-plugins=ServiceAccount",)
    controllers: str = "job-controller,garbage-collector-controller,namespace-controller"
    controller_manager_arguments: tuple[str, ...] = ()
    users: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    launcher: tuple[str, ...] = DIE_WITH_PARENT


@dataclass
class ControlPlane:
    """One control plane. Use as a context manager."""

    programs: Path
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="trainwright-kube-")))
    variant: Variant = Variant()
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _webhook_urls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = ("etcd", "etcd-peer", "apiserver", "jobset-webhook", "jobset-metrics", "jobset-health")
        self.port = dict(zip(names, find_free_ports(len(names)), strict=True))

    def __enter__(self) -> Self:
        try:
            self._make_keys()
            self._start_etcd()
            self.start_apiserver()
            self._install_jobset()
            self.start_controller_manager()
            # Ready is said before the webhooks are there.
            self.wait_for("jobset", lambda: self.serves(self._webhook_urls))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{self.variant.address}:{self.port['apiserver']}"

    @property
    def etcd_url(self) -> str:
        """Where the API server looks for etcd."""
        return f"http://127.0.0.1:{self.port['etcd']}"

    @property
    def users(self) -> dict[str, tuple[str, str]]:
        """Token and group of every user, by name."""
        return {**USERS, **self.variant.users}

    @property
    def pids(self) -> dict[str, int]:
        """The process id of every component that was started."""
        return {name: process.pid for name, process in self._processes.items()}

    def kubeconfig(self, user: str = "admin") -> Path:
        """Return the kubeconfig of a user."""
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        if not path.exists():
            self._write_kubeconfig(path, self.users[user][0])
        return path

    def account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Return the kubeconfig of a service account, which exists, for a day."""
        path = self.folder / f"{namespace}-{name}.kubeconfig"
        if not path.exists():
            account = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"
            asked = self.call("POST", f"{account}/token", {"spec": {"expirationSeconds": 86_400}})
            self._write_kubeconfig(path, asked["status"]["token"])
        return path

    @property
    def prefix(self) -> str:
        """What the names of cluster-scoped objects of tests begin with."""
        return "test"

    def get_subject(self, user: str) -> dict[str, str]:
        """Return the user as the subject of a binding."""
        return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}

    def check_no_operator(self) -> None:
        """Skip the test where another operator is at work: here there is none but those of tests."""

    def call(
        self, method: str, path: str, body: object = None, content_type: str = "application/json"
    ) -> Any:
        """Send one request as admin and return the decoded answer. Raises urllib.error.HTTPError."""
        request = urllib.request.Request(
            self.server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": content_type},
        )
        context = ssl.create_default_context(cafile=str(self.folder / "pki/apiserver.crt"))
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return json.load(answer)

    def create_all(self, objects: list[dict[str, Any]]) -> None:
        """Create cluster-scoped objects, in order."""
        plurals = {
            "CustomResourceDefinition": "customresourcedefinitions",
            "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
            "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
        }
        for obj in objects:
            self.call("POST", f"/apis/{obj['apiVersion']}/{plurals[obj['kind']]}", obj)

    def install_crds(self, crds: list[dict[str, Any]]) -> None:
        """Create the CRDs and wait until the API server serves their kinds."""
        self.create_all(crds)

        def is_established(name: str) -> bool:
            crd = self.call("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
            conditions = crd.get("status", {}).get("conditions") or []  # null at first
            return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

        for crd in crds:
            name = crd["metadata"]["name"]
            self.wait_for(name, functools.partial(is_established, name))
            # What answers requests learns of it a moment later: mostly 10 ms, on a busy machine 130 ms.
            for version in crd["spec"]["versions"]:
                if version["served"]:
                    where = f"/apis/{crd['spec']['group']}/{version['name']}/{crd['spec']['names']['plural']}"
                    self.wait_for(name, functools.partial(self._is_served, where))

    def start_apiserver(self) -> None:
        """Start the API server, or start it again after `stop_apiserver`."""
        pki = self.folder / "pki"
        self.start_program(
            "kube-apiserver",
            "--etcd-servers",
            self.etcd_url,
            "--cert-dir",
            str(pki),
            "--secure-port",
            str(self.port["apiserver"]),
            f"--bind-address={self.variant.address}",
            f"--advertise-address={self.variant.address}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-key-file",
            str(pki / "sa.pub"),
            "--service-account-signing-key-file",
            str(pki / "sa.key"),
            f"--authorization-mode={self.variant.authorization}",
            "--token-auth-file",
            str(self.folder / "tokens.csv"),
            "--service-cluster-ip-range=10.97.0.0/16",
            *self.variant.apiserver_arguments,
        )
        self.wait_for("kube-apiserver", self._is_ready)
        self._signal_clients(signal.SIGCONT)

    def start_scheduler(self) -> None:
        """Start the scheduler, for a cluster that has nodes."""
        self.start_program(
            "kube-scheduler",
            *("--kubeconfig", str(self.kubeconfig("system:kube-scheduler"))),
            *("--leader-elect=false", "--secure-port=0"),
        )

    def stop_apiserver(self) -> None:
        """End the API server; etcd and everything stored stay.

        Controllers of others stand still until it is there again. They would fail meanwhile, each time pause
        twice as long, and be away for up to 30 s more: no test is about that.
        """
        self._signal_clients(signal.SIGSTOP)
        self.stop_program("kube-apiserver")

    def compact(self) -> None:
        """Make etcd forget its history, so that old resource versions expire (410)."""
        url = f"http://127.0.0.1:{self.port['etcd']}/v3"
        revision = _post(f"{url}/kv/range", {"key": "AA==", "limit": "1"})["header"]["revision"]
        _post(f"{url}/kv/compaction", {"revision": revision, "physical": True})

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; on time-out or death show the end of the component's log."""
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            process = self._processes.get(what)
            dead = process is not None and process.poll() is not None
            if dead or time.monotonic() > deadline:
                log = self.folder / f"{what}.log"
                said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
                raise RuntimeError(f"{what} {'ended' if dead else 'is not ready'}:\n{said}")
            time.sleep(0.05)

    def _is_served(self, path: str) -> bool:
        try:
            self.call("GET", f"{path}?limit=1")
        except urllib.error.HTTPError as error:
            with error:
                if error.code != HTTPStatus.NOT_FOUND:
                    raise
            return False
        return True

    def _write_kubeconfig(self, path: Path, token: str) -> None:
        ca = base64.b64encode((self.folder / "pki/apiserver.crt").read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "clusters": [
                {"name": "test", "cluster": {"server": self.server, "certificate-authority-data": ca}}
            ],
            "users": [{"name": "test", "user": {"token": token}}],
        }
        path.write_text(yaml.safe_dump(config))

    def _is_ready(self) -> bool:
        if not (self.folder / "pki/apiserver.crt").exists():
            return False
        try:
            request = urllib.request.Request(
                f"{self.server}/readyz", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}
            )
            context = ssl.create_default_context(cafile=str(self.folder / "pki/apiserver.crt"))
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _make_keys(self) -> None:
        pki = self.folder / "pki"
        (pki / "hook").mkdir(parents=True)
        _openssl("genrsa", "-out", pki / "sa.key", "2048")
        _openssl("rsa", "-in", pki / "sa.key", "-pubout", "-out", pki / "sa.pub")
        _openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=webhook"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", pki / "hook/tls.key", "-out", pki / "hook/tls.crt"),
        )
        rows = [f'{token},{user},{user},"{group}"' for user, (token, group) in self.users.items()]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")

    def _start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{self.port[name]}" for name in ("etcd", "etcd-peer"))
        self.start_program(
            "etcd",
            *("--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync", "--log-level", "warn"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        )

    def _install_jobset(self) -> None:
        source = find_module_folder("jobset", "sigs.k8s.io/jobset") / "config/components"
        self.install_crds(load_documents(sorted((source / "crd/bases").glob("*.yaml"))))
        rendered = subprocess.run(
            [self.programs / "kubectl", "kustomize", source / "webhook"], capture_output=True, check=True
        )
        webhooks = [
            document
            for document in yaml.safe_load_all(rendered.stdout)
            if document["kind"].endswith("WebhookConfiguration")
        ]
        local = [self.to_local_url(webhook, self.port["jobset-webhook"]) for webhook in webhooks]
        self._webhook_urls = [
            webhook["clientConfig"]["url"] for configuration in local for webhook in configuration["webhooks"]
        ]
        self.create_all(local)
        config = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "webhook": {"port": self.port["jobset-webhook"], "certDir": str(self.folder / "pki/hook")},
            "metrics": {
                "bindAddress": f"127.0.0.1:{self.port['jobset-metrics']}",
                "certDir": str(self.folder / "pki/hook"),
            },
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self.port['jobset-health']}"},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "clientConnection": {"qps": 1000, "burst": 2000},
        }
        (self.folder / "jobset.yaml").write_text(yaml.safe_dump(config))
        self.start_program(
            "jobset",
            *("--config", str(self.folder / "jobset.yaml")),
            *("--kubeconfig", str(self.kubeconfig("jobset"))),
        )
        self.wait_for("jobset", lambda: answers(self.port["jobset-health"], "/readyz"))

    def serves(self, urls: Sequence[str]) -> bool:
        """Say whether a webhook server knows its paths; until then it answers 404."""
        context = ssl.create_default_context(cafile=str(self.folder / "pki/hook/tls.crt"))
        try:
            for url in urls:
                urllib.request.urlopen(url, b"{}", timeout=5, context=context).close()
        except urllib.error.HTTPError as error:
            return error.code != 404
        except OSError:
            return False
        return True

    def to_local_url(self, configuration: dict[str, Any], port: int) -> dict[str, Any]:
        """Return the webhook configuration with a URL of this machine in place of the service."""
        ca = base64.b64encode((self.folder / "pki/hook/tls.crt").read_bytes()).decode()
        webhooks = [
            {
                **webhook,
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}{webhook['clientConfig']['service']['path']}",
                    "caBundle": ca,
                },
            }
            for webhook in configuration["webhooks"]
        ]
        return {**configuration, "webhooks": webhooks}

    def start_controller_manager(self) -> None:
        """Jobs and garbage collection; last, since the collector looks for new kinds only twice a minute."""
        self.start_program(
            "kube-controller-manager",
            *("--kubeconfig", str(self.kubeconfig("controller-manager"))),
            *("--service-account-private-key-file", str(self.folder / "pki/sa.key")),
            *("--use-service-account-credentials=false", "--leader-elect=false", "--secure-port=0"),
            *("--root-ca-file", str(self.folder / "pki/apiserver.crt")),
            *("--controllers", self.variant.controllers),
            *("--kube-api-qps=1000", "--kube-api-burst=2000"),
            *self.variant.controller_manager_arguments,
        )

    def start_program(self, program: str, *arguments: str, launcher: Sequence[str] = ()) -> None:
        """Start a component; it ends with the control plane, or with `stop_program`.

        `launcher` is put before its command.
        """
        with (self.folder / f"{program}.log").open("ab") as log:
            command = [*self.variant.launcher, *launcher, self.programs / program, *arguments]
            self._processes[program] = start_in_background(command, log)

    def stop_program(self, program: str) -> None:
        """Kill a component: nothing of it is to be kept, and an orderly end waits for every open watch."""
        process = self._processes.pop(program)
        process.kill()
        process.wait()

    def _signal_clients(self, number: signal.Signals) -> None:
        for program, process in self._processes.items():
            if program not in ("etcd", "kube-apiserver"):
                process.send_signal(number)

    def _end(self) -> None:
        for program in reversed(list(self._processes)):
            self.stop_program(program)
        shutil.rmtree(self.folder, ignore_errors=True)


# Sockets of the ports that were given away.
_held: list[int] = []


def find_free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 for servers that are about to start, or to start again.

    Until this process ends a socket is bound to each, without listening. So nobody else who looks for a free
    port finds one of them, and a server can have it all the same: those of Go and of asyncio set
    SO_REUSEADDR, as the socket does. The ports are below those that jobs on this machine choose from (20,000
    and up) and those that the kernel gives to outgoing connections (32,768 and up).
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randint(10_000, 19_999)
        with socket.socket() as one:
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _held.append(one.detach())
        found.append(port)
    return found


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def find_module_folder(program: str, module: str) -> Path:
    """Return where Go keeps the source of a module that one of our programs is built from."""
    here = Path(__file__).parent / "programs" / program
    listed = subprocess.run(
        ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module],
        cwd=here,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "GOFLAGS": ""},
    )
    return Path(listed.stdout.strip())


def load_documents(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the objects in YAML files. CRDs are large: the parser in Python would take seconds for them."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [
        document
        for path in paths
        if path.name != "kustomization.yaml"
        for document in yaml.load_all(path.read_text(), loader)
        if document
    ]


def answers(port: int, path: str) -> bool:
    """Say whether a component answers a probe."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False


def _post(url: str, body: object) -> Any:
    request = urllib.request.Request(url, data=json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)
