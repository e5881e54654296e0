"""An operator for one namespace, with the rights of a Role there and no others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kube.control_plane import ControlPlane
from kube.installing import grant_operator_role, wait_until_rights_are_known
from kube.operating import SILENT, People, condition, operating, runtime, train_job
from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.config import Connection, load_connection
from trainwright.operator.configuration import Configuration, LeaderElectionSettings

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SHARED = "clustertrainingruntimes"


@pytest.fixture
def role_connection(control_plane: ControlPlane, crds: None, namespace: str, tmp_path: Path) -> Connection:
    """A user who may in one namespace what an installation lets the operator do in all."""
    grant_operator_role(control_plane, namespace)
    kubeconfig = control_plane.kubeconfig("operator-of-one-namespace")
    return load_connection({"KUBECONFIG": str(kubeconfig)}, tmp_path)


@pytest.fixture
def readable_cluster_runtimes(control_plane: ControlPlane, role_connection: Connection) -> Iterator[None]:
    """What an installation gives to everybody: cluster runtimes may be read."""
    name = f"read-{uuid.uuid4().hex[:8]}"
    rules = [
        {"apiGroups": ["trainer.kubeflow.org"], "resources": [SHARED], "verbs": ["get", "list", "watch"]}
    ]
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}
        ],
    }
    control_plane.call("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    control_plane.call("POST", f"{RBAC}/clusterrolebindings", binding)
    wait_until_rights_are_known(control_plane)
    yield
    control_plane.call("DELETE", f"{RBAC}/clusterrolebindings/{name}")
    control_plane.call("DELETE", f"{RBAC}/clusterroles/{name}")


def electing(namespace: str) -> Configuration:
    return Configuration(
        **SILENT, leader_election=LeaderElectionSettings(leader_elect=True, resource_namespace=namespace)
    )


async def run_a_job(people: People) -> Json:
    await people.create(train_job())
    await people.set_pods("Running", 1)
    await people.until_phase("Running")
    await people.edit({"spec": {"suspend": True}})
    await people.until_phase("Suspended")
    await people.until_status(lambda status: status["jobsStatus"][0]["active"] == 0)
    await people.edit({"spec": {"suspend": False}})
    await people.set_pods("Succeeded", 1)
    return await people.until_phase("Complete")


async def test_a_job_lives_with_the_rights_of_a_role_alone(
    people: People, role_connection: Connection
) -> None:
    await people.create(runtime())
    with capture_logs() as logs:
        async with operating(
            role_connection, people.namespace, configuration=electing(people.namespace)
        ) as running:
            status = await run_a_job(people)
    assert condition(status, "ResourcesCreated") is None
    # Outside of the namespace it asks only for what no namespace has, once, and is content without.
    outside = [r.path for r in running.transport.requests if f"/namespaces/{people.namespace}" not in r.path]
    assert outside == [
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainjobs.trainer.kubeflow.org"
    ]
    told = [(line["event"], line.get("kind")) for line in logs if "forbidden" in str(line.get("error"))]
    assert told == [("objects are not looked at", CLUSTER_TRAINING_RUNTIME)]


async def test_cluster_runtimes_are_used_where_everybody_may_read_them(
    people: People, role_connection: Connection, readable_cluster_runtimes: None
) -> None:
    name = f"shared-{uuid.uuid4().hex[:8]}"
    shared = runtime(name)
    metadata = {"name": name}
    await people.cluster.create({**shared, "kind": CLUSTER_TRAINING_RUNTIME, "metadata": metadata})
    try:
        async with operating(role_connection, people.namespace):
            reference = {"name": name, "kind": CLUSTER_TRAINING_RUNTIME}
            await people.create(train_job(runtimeRef=reference))
            await people.set_pods("Succeeded", 1)
            await people.until_phase("Complete")
    finally:
        await people.cluster.delete(ObjectKey(CLUSTER_TRAINING_RUNTIME, "", name))
