"""Where the API server is, and who we are to it: kubeconfig files, or the service account of a pod.

In: the environment and files. Out: a `Connection`, a value. Credentials that expire (token files, exec
plugins) are given as sources that `credentials.py` reads when they are due; nothing is cached here.

Source: the kubeconfig format v1, client.authentication.k8s.io/v1.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from trainwright.errors import TargetUnreachable, UsageError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A program that prints an ExecCredential."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    provide_cluster_info: bool = False


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """One API server and one identity. PEM texts are bytes; at most one source of a token is set."""

    server: str
    namespace: str = "default"
    context: str = ""
    ca_pem: bytes | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    client_certificate_pem: bytes | None = None
    client_key_pem: bytes | None = None
    token: str | None = None
    token_file: Path | None = None
    basic: tuple[str, str] | None = None
    exec_plugin: ExecPlugin | None = None

    def __repr__(self) -> str:
        """Show where, never with which secret."""
        return f"Connection(server={self.server!r}, context={self.context!r}, namespace={self.namespace!r})"


def load_connection(environment: Mapping[str, str], home: Path, context: str | None = None) -> Connection:
    """Return the connection that kubectl would use.

    KUBECONFIG (several files are merged, the first to set a value wins), else the pod's service account, else
    ~/.kube/config. Raises TargetUnreachable where there is none of these: the command may be right, there is
    nothing to send it to; UsageError, which names the file, where something in one is wrong.
    """
    if named := environment.get("KUBECONFIG"):
        files = [Path(part).expanduser() for part in named.split(":") if part]
        if not any(path.exists() for path in files):
            raise TargetUnreachable(
                f"no cluster is configured: KUBECONFIG names {named}, which does not exist"
            )
        return parse_kubeconfig([(path, _read(path)) for path in files if path.exists()], context)
    if context is None and "KUBERNETES_SERVICE_HOST" in environment and (SERVICE_ACCOUNT / "token").exists():
        return load_in_cluster(environment, SERVICE_ACCOUNT)
    default = home / ".kube" / "config"
    if not default.exists():
        raise TargetUnreachable(
            "no cluster is configured: set KUBECONFIG, or create ~/.kube/config, or run inside a pod"
        )
    return parse_kubeconfig([(default, _read(default))], context)


def load_in_cluster(environment: Mapping[str, str], folder: Path) -> Connection:
    """Return the connection of a pod's service account, whose files lie in `folder`."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = folder / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        context="in-cluster",
        ca_pem=(folder / "ca.crt").read_bytes(),
        token_file=folder / "token",
    )


def parse_kubeconfig(files: list[tuple[Path, str]], context: str | None = None) -> Connection:
    """Return the connection of a context (default: the current one) in kubeconfig files already read."""
    clusters: dict[str, _Entry] = {}
    users: dict[str, _Entry] = {}
    contexts: dict[str, _Entry] = {}
    current = context
    for path, text in files:
        document = _parse_yaml(path, text)
        current = current or document.get("current-context")
        for section, item_key, entries in (
            ("clusters", "cluster", clusters),
            ("users", "user", users),
            ("contexts", "context", contexts),
        ):
            for item in document.get(section) or []:
                entries.setdefault(item["name"], _Entry(path, item.get(item_key) or {}))
    if not current:
        raise UsageError(f"no current context in {_names(files)}; name one with --context")
    if current not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise UsageError(f"context {current!r} is not in {_names(files)}; known: {known}")
    chosen = contexts[current].body
    cluster = _find(clusters, chosen.get("cluster"), "cluster", current)
    user = (
        _find(users, chosen.get("user"), "user", current) if chosen.get("user") else _Entry(cluster.path, {})
    )
    return _build_connection(current, chosen.get("namespace") or "default", cluster, user)


class _Entry(msgspec.Struct, frozen=True):
    """A named item of a kubeconfig; paths in it are relative to the file."""

    path: Path
    body: dict[str, Any]

    def resolve(self, name: str) -> Path:
        return self.path.parent / Path(name).expanduser()

    def pem(self, key: str) -> bytes | None:
        """Return `<key>-data` decoded, else the content of the file `<key>`."""
        if data := self.body.get(f"{key}-data"):
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error as error:
                raise UsageError(f"{self.path}: {key}-data is not base64: {error}") from error
        if name := self.body.get(key):
            return _read(self.resolve(name)).encode()
        return None


def _build_connection(context: str, namespace: str, cluster: _Entry, user: _Entry) -> Connection:
    server = cluster.body.get("server")
    if not server:
        raise UsageError(f"{cluster.path}: the cluster of context {context!r} has no server")
    plugin = user.body.get("exec")
    token_file = user.body.get("tokenFile")
    basic = (user.body["username"], user.body.get("password", "")) if user.body.get("username") else None
    return Connection(
        server=str(server).rstrip("/"),
        namespace=namespace,
        context=context,
        ca_pem=cluster.pem("certificate-authority"),
        insecure_skip_tls_verify=bool(cluster.body.get("insecure-skip-tls-verify")),
        tls_server_name=cluster.body.get("tls-server-name"),
        proxy_url=cluster.body.get("proxy-url"),
        client_certificate_pem=user.pem("client-certificate"),
        client_key_pem=user.pem("client-key"),
        # A token file wins over a token, as in client-go.
        token=None if token_file else user.body.get("token"),
        token_file=user.resolve(token_file) if token_file else None,
        basic=basic,
        exec_plugin=_build_plugin(user, plugin) if plugin else None,
    )


def _build_plugin(user: _Entry, plugin: dict[str, Any]) -> ExecPlugin:
    command = str(plugin.get("command") or "")
    if not command:
        raise UsageError(f"{user.path}: the exec plugin of a user has no command")
    return ExecPlugin(
        # A relative path is relative to the file; a bare name is looked up on PATH.
        command=str(user.resolve(command)) if "/" in command else command,
        api_version=str(plugin.get("apiVersion") or "client.authentication.k8s.io/v1"),
        args=tuple(str(argument) for argument in plugin.get("args") or ()),
        env=tuple((str(item["name"]), str(item["value"])) for item in plugin.get("env") or ()),
        provide_cluster_info=bool(plugin.get("provideClusterInfo")),
    )


def _find(entries: dict[str, _Entry], name: str | None, kind: str, context: str) -> _Entry:
    if name is None or name not in entries:
        raise UsageError(f"context {context!r} names {kind} {name!r}, which the kubeconfig does not have")
    return entries[name]


def _parse_yaml(path: Path, text: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not a kubeconfig: it holds no mapping")
    return document


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _names(files: list[tuple[Path, str]]) -> str:
    return ", ".join(str(path) for path, _ in files) or "any kubeconfig file"
