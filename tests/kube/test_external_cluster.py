"""A cluster of others is left as it was: our own control plane plays it here."""

from __future__ import annotations

import urllib.error
from pathlib import Path

import pytest

from kube.control_plane import ControlPlane
from kube.external_cluster import ExternalCluster
from kube.installing import grant_operator_rights, install_our_crds
from kube.operating import People, operating, runtime, train_job
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.transport import AiohttpTransport

COLLECTIONS = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
)


def list_versions(plane: ControlPlane) -> dict[str, str]:
    """Return the version of everything that belongs to the whole cluster, and of live namespaces."""
    items: list[Json] = [item for path in COLLECTIONS for item in plane.call("GET", path)["items"]]
    versions = {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in items}
    for item in plane.call("GET", "/api/v1/namespaces")["items"]:
        if "deletionTimestamp" not in item["metadata"]:
            versions[item["metadata"]["uid"]] = item["metadata"]["resourceVersion"]
    return versions


async def test_a_guest_leaves_everything_as_it_was(
    control_plane: ControlPlane, crds: None, namespace: str, tmp_path: Path
) -> None:
    """The kinds are there already, and stay; rights, users and namespaces of the guest go with it."""
    before = list_versions(control_plane)
    with ExternalCluster(control_plane.kubeconfig()) as cluster:
        install_our_crds(cluster)
        grant_operator_rights(cluster)
        cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": f"{cluster.prefix}-jobs"}})
        admin, operator = (
            load_connection({"KUBECONFIG": str(cluster.kubeconfig(user))}, tmp_path)
            for user in ("admin", "operator")
        )
        async with AiohttpTransport(admin) as transport:
            people = People(transport, f"{cluster.prefix}-jobs", scheduler="nobody")
            await people.create(runtime())
            async with operating(operator, people.namespace):
                await people.create(train_job())
                (pod,) = await people.until_pods(1)
                assert pod["spec"]["schedulerName"] == "nobody"
        assert list_versions(control_plane).items() > before.items()
    assert list_versions(control_plane) == before


def test_kinds_that_a_guest_brought_go_with_it(control_plane: ControlPlane) -> None:
    schema = {"openAPIV3Schema": {"type": "object"}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "guests.test.example.com"},
        "spec": {
            "group": "test.example.com",
            "names": {"kind": "Guest", "plural": "guests"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    with ExternalCluster(control_plane.kubeconfig()) as cluster:
        cluster.install_crds([crd])
        assert control_plane.call("GET", f"{COLLECTIONS[0]}/guests.test.example.com")

    def is_gone() -> bool:
        try:
            control_plane.call("GET", f"{COLLECTIONS[0]}/guests.test.example.com")
        except urllib.error.HTTPError as error:
            return error.code == 404
        return False

    control_plane.wait_for("kube-apiserver", is_gone)


def test_what_only_an_owner_can_do_skips_the_test(control_plane: ControlPlane) -> None:
    with (
        ExternalCluster(control_plane.kubeconfig()) as cluster,
        pytest.raises(pytest.skip.Exception, match=r"needs a control plane of its own \(stop_apiserver\)"),
    ):
        cluster.stop_apiserver()


def test_where_an_operator_is_at_work_its_tests_are_skipped_with_what_to_do(
    control_plane: ControlPlane, namespace: str
) -> None:
    name = "kubeflow-trainer-controller-manager"
    labels = {"app": "operator"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pod}
    with ExternalCluster(control_plane.kubeconfig()) as cluster:
        cluster.check_no_operator()
        control_plane.call("POST", deployments, {"metadata": {"name": name}, "spec": spec})
        with pytest.raises(pytest.skip.Exception, match=f"kubectl -n {namespace} scale deployment {name}"):
            cluster.check_no_operator()
        patch = {"spec": {"replicas": 0}}
        control_plane.call("PATCH", f"{deployments}/{name}", patch, "application/merge-patch+json")
        cluster.check_no_operator()
