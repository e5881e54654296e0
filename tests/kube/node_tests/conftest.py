"""A cluster whose pods really run, started once; a namespace for each test."""

from __future__ import annotations

import os
import urllib.error
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from kube.cluster import Cluster, ClusterUnavailable
from kube.development import installed
from kube.node_tests.training import connect
from trainwright.cluster.kube.adapter import KubeCluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.node)


@pytest.fixture(scope="session")
def cluster_programs() -> Path:
    programs = os.environ.get("TRAINWRIGHT_CLUSTER_PROGRAMS")
    if not programs:
        pytest.skip("NOT TESTED: no Kubernetes; `make test` builds one where Go is installed")
    return Path(programs)


@pytest.fixture(scope="session")
def real_cluster(cluster_programs: Path) -> Iterator[Cluster]:
    try:
        cluster = Cluster(cluster_programs).__enter__()
    except ClusterUnavailable as error:
        pytest.skip(f"NOT TESTED on a real node: {error}")
    try:
        yield cluster
    finally:
        cluster.__exit__(None, None, None)


@pytest.fixture(scope="module")
def ready_cluster(real_cluster: Cluster, training_environment: Path) -> Iterator[Cluster]:
    """The cluster as `make cluster` leaves it, until the end of the module."""
    with installed(real_cluster, training_environment):
        yield real_cluster


@pytest.fixture
async def kube(real_cluster: Cluster) -> AsyncIterator[KubeCluster]:
    """The cluster through the port."""
    async with connect(real_cluster) as kube:
        yield kube


@pytest.fixture(scope="module")
def make_namespaces(real_cluster: Cluster) -> Iterator[Callable[..., str]]:
    """Make namespaces in which pods can be created at once; they go after the tests of the module."""
    made: list[str] = []

    def make(**labels: str) -> str:
        name = f"test-{uuid.uuid4().hex[:8]}"
        real_cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        made.append(name)
        # Until the controller has made its service account, the API server refuses every pod.
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        real_cluster.plane.wait_for("kube-controller-manager", lambda: _exists(real_cluster, account))
        return name

    yield make
    for name in made:
        real_cluster.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def namespace(make_namespaces: Callable[..., str]) -> str:
    return make_namespaces()


def _exists(cluster: Cluster, path: str) -> bool:
    try:
        cluster.call("GET", path)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return False
        raise
    return True
