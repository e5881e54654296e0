"""A control plane for the tests of this folder, started once; a namespace for each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from kube.control_plane import ControlPlane
from kube.operating import People
from trainwright.cluster.kube.config import Connection, load_connection
from trainwright.cluster.kube.transport import AiohttpTransport
from trainwright.manifests.access import OPERATOR_NAMESPACE_RULES, OPERATOR_RULES


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            # One worker runs them all: one control plane is enough for two cores.
            item.add_marker(pytest.mark.xdist_group("kubernetes"))
            item.add_marker(pytest.mark.kubernetes)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    programs = os.environ.get("TRAINWRIGHT_CLUSTER_PROGRAMS")
    if not programs:
        pytest.skip("NOT TESTED: no Kubernetes; `make test` builds one where Go is installed")
    with ControlPlane(Path(programs)) as plane:
        yield plane


@pytest.fixture(scope="session")
def crds(control_plane: ControlPlane) -> None:
    """Our CRDs, installed; they stay for the session."""
    folder = Path(__file__).resolve().parents[2] / "src/trainwright/manifests/crds"
    control_plane.install_crds([yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))])


@pytest.fixture(scope="session")
def operator_rights(control_plane: ControlPlane) -> None:
    """The rights that an installation gives to the operator, for the user of that name."""
    rbac = "rbac.authorization.k8s.io"
    for name, rules in (("test", OPERATOR_RULES), ("test-own-namespace", OPERATOR_NAMESPACE_RULES)):
        role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
        control_plane.call("POST", f"/apis/{rbac}/v1/clusterroles", {**role, "rules": list(rules)})
        binding = {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "operator"}],
        }
        control_plane.call("POST", f"/apis/{rbac}/v1/clusterrolebindings", binding)


@pytest.fixture
def operator_connection(
    control_plane: ControlPlane, crds: None, operator_rights: None, tmp_path: Path
) -> Connection:
    """The connection of a user who may do what the operator may, and no more."""
    return load_connection({"KUBECONFIG": str(control_plane.kubeconfig("operator"))}, tmp_path)


@pytest.fixture
def people(transport: AiohttpTransport, namespace: str, crds: None) -> People:
    """Users and machines in the namespace of the test; they may do everything."""
    return People(transport, namespace)


@pytest.fixture
async def transport(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[AiohttpTransport]:
    connection = load_connection({"KUBECONFIG": str(control_plane.kubeconfig())}, tmp_path)
    async with AiohttpTransport(connection) as transport:
        yield transport


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    control_plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    control_plane.call("DELETE", f"/api/v1/namespaces/{name}")
