"""The operator with the account and the rights that an installation gives it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kube.admitting import build_url
from kube.control_plane import ControlPlane
from trainwright.cluster.kube.config import Connection, load_connection
from trainwright.manifests.access import build_operator_access
from trainwright.manifests.names import DEFAULT_NAMESPACE, OPERATOR
from trainwright.manifests.settings import InstallSettings


def install_operator_account(plane: ControlPlane) -> None:
    """Create the operator's service account with its rights, and nothing else of an installation."""
    plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": DEFAULT_NAMESPACE}})
    for obj in build_operator_access(InstallSettings()):
        plane.call("POST", build_url(obj, obj["metadata"].get("namespace", "")), obj)


def connect_operator(plane: ControlPlane, home: Path) -> Connection:
    """Return the connection of that account."""
    kubeconfig = plane.account_kubeconfig(DEFAULT_NAMESPACE, OPERATOR)
    connection = load_connection({"KUBECONFIG": str(kubeconfig)}, home)
    return msgspec.structs.replace(connection, namespace=DEFAULT_NAMESPACE)
