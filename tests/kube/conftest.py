"""A control plane for the tests of this folder, started once; a namespace for each test."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kube.control_plane import ControlPlane
from kube.external_cluster import ExternalCluster
from kube.installing import grant_operator_rights, install_our_crds
from kube.operating import People
from trainwright.cluster.kube.config import Connection, load_connection
from trainwright.cluster.kube.transport import AiohttpTransport

# The kubeconfig of an administrator of a cluster to run the tests on. Not KUBECONFIG itself: whoever works on
# clusters has that set, and does not mean tests by it.
EXTERNAL = os.environ.get("TRAINWRIGHT_TEST_KUBECONFIG", "")

# The first test of a folder pays for the start of its cluster: a minute on a machine that is busy with
# others. Each component and each wait has a bound of its own, which says what is late.
TEST_SECONDS = 300

# What runs on a cluster of others. All the rest installs things under names that exist once in a cluster, or
# webhooks that the API server could not reach; folders have clusters of their own.
_GUESTS = frozenset(
    {
        "test_crds.py",
        "test_informer.py",
        "test_leader.py",
        "test_operator_clocks.py",
        "test_operator_configured.py",
        "test_operator_faults.py",
        "test_operator_life.py",
        "test_operator_namespaced.py",
        "test_transport.py",
    }
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.kubernetes)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_SECONDS))
            if EXTERNAL and (item.path.parent != here or item.path.name not in _GUESTS):
                reason = f"NOT TESTED on the cluster of {EXTERNAL}: needs one of its own"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane | ExternalCluster]:
    if EXTERNAL:
        with ExternalCluster(Path(EXTERNAL)) as cluster:
            yield cluster
        return
    programs = os.environ.get("TRAINWRIGHT_CLUSTER_PROGRAMS")
    if not programs:
        pytest.skip("NOT TESTED: no Kubernetes; `make test` builds one where Go is installed")
    with ControlPlane(Path(programs)) as plane:
        yield plane


@pytest.fixture(scope="session")
def crds(control_plane: ControlPlane) -> None:
    """Our CRDs, installed; they stay for the session."""
    install_our_crds(control_plane)


@pytest.fixture(scope="session")
def operator_rights(control_plane: ControlPlane) -> None:
    """The rights that an installation gives to the operator, for the user of that name."""
    grant_operator_rights(control_plane)


@pytest.fixture
def operator_connection(
    control_plane: ControlPlane, crds: None, operator_rights: None, tmp_path: Path
) -> Connection:
    """The connection of a user who may do what the operator may, and no more."""
    control_plane.check_no_operator()
    return load_connection({"KUBECONFIG": str(control_plane.kubeconfig("operator"))}, tmp_path)


@pytest.fixture
def people(transport: AiohttpTransport, namespace: str, crds: None) -> People:
    """Users and machines in the namespace of the test; they may do everything."""
    # On a cluster with nodes no scheduler may touch the pods, whose kubelet the tests play.
    return People(transport, namespace, scheduler="nobody" if EXTERNAL else "")


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
