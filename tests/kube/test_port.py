"""The suite of the port against a real API server: what the embedded store does is what a server does.

A control plane of its own: the suite uses fixed namespaces and looks at whole kinds, and its CRDs know no
fields, so that what comes back is what was sent. Everything is deleted after each test.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cluster.test_port import *  # noqa: F403
from kube.control_plane import ControlPlane
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.transport import AiohttpTransport

GROUP = "trainer.kubeflow.org"
KINDS = {
    "TrainJob": ("trainjobs", "Namespaced"),
    "TrainingRuntime": ("trainingruntimes", "Namespaced"),
    "ClusterTrainingRuntime": ("clustertrainingruntimes", "Cluster"),
}
NAMESPACES = ("default", "another", "team-a")


class PlainControlPlane(ControlPlane):
    """With kinds that know no fields instead of JobSet; made before the garbage collector looks for kinds."""

    def _install_jobset(self) -> None:
        self.install_crds([build_open_crd(kind, *names) for kind, names in KINDS.items()])
        for name in NAMESPACES[1:]:
            self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def clean(self) -> None:
        """Delete everything that a test may have made."""
        paths = [f"/apis/{GROUP}/v1alpha1/clustertrainingruntimes"]
        for namespace in NAMESPACES:
            paths.append(f"/apis/{GROUP}/v1alpha1/namespaces/{namespace}/trainjobs")
            paths += [
                f"/api/v1/namespaces/{namespace}/{plural}" for plural in ("pods", "configmaps", "events")
            ]
        for path in paths:
            self.call("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0})
        self.call("DELETE", "/api/v1/namespaces/default/secrets")


def build_open_crd(kind: str, plural: str, scope: str) -> dict[str, object]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            # The name of an API group of Kubernetes; whoever uses it says that it was agreed upon.
            "annotations": {"api-approved.kubernetes.io": "unapproved, test"},
        },
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [version],
        },
    }


@pytest.fixture(scope="module")
def plain_control_plane() -> Iterator[PlainControlPlane]:
    programs = os.environ.get("TRAINWRIGHT_CLUSTER_PROGRAMS")
    if not programs:
        pytest.skip("NOT TESTED: no Kubernetes; `make test` builds one where Go is installed")
    with PlainControlPlane(Path(programs)) as plane:
        yield plane


@pytest.fixture
async def cluster(plain_control_plane: PlainControlPlane, tmp_path: Path) -> AsyncIterator[KubeCluster]:
    connection = load_connection({"KUBECONFIG": str(plain_control_plane.kubeconfig())}, tmp_path)
    async with AiohttpTransport(connection) as transport:
        yield KubeCluster(transport, "test")
    plain_control_plane.clean()
