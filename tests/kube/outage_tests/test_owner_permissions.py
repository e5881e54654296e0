"""A cluster on which an owner may be set only by who may block its deletion (case B096)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube.control_plane import ControlPlane
from kube.installing import wait_until_allowed
from kube.operating import People, condition, operating, runtime, train_job
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import Connection, load_connection
from trainwright.manifests.access import OPERATOR_RULES

USER = "operator-of-one-namespace"


async def test_the_rights_of_an_installation_are_enough(
    people: People, operator_connection: Connection
) -> None:
    await people.create(runtime())
    async with operating(operator_connection, people.namespace):
        await people.create(train_job())
        await people.set_pods("Succeeded", 1)
        assert condition(await people.until_phase("Complete"), "ResourcesCreated") is None


@pytest.fixture
def lesser_connection(control_plane: ControlPlane, crds: None, namespace: str, tmp_path: Path) -> Connection:
    """A user with all rules of the operator but the one for this."""
    rules = [rule for rule in OPERATOR_RULES if "trainjobs/finalizers" not in rule["resources"]]
    assert len(rules) == len(OPERATOR_RULES) - 1
    collection = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    role: Json = {"metadata": {"name": "lesser"}, "rules": rules}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lesser"}
    binding: Json = {"metadata": {"name": "lesser"}, "roleRef": reference}
    control_plane.call("POST", f"{collection}/roles", role)
    subjects = [control_plane.get_subject(USER)]
    control_plane.call("POST", f"{collection}/rolebindings", {**binding, "subjects": subjects})
    wait_until_allowed(control_plane, USER, rules, namespace)
    return load_connection({"KUBECONFIG": str(control_plane.kubeconfig(USER))}, tmp_path)


async def test_without_the_one_for_finalizers_the_status_says_which_is_missing(
    people: People, lesser_connection: Connection
) -> None:
    """That the cluster asks for it at all: else the test above would show nothing."""
    await people.create(runtime())
    async with operating(lesser_connection, people.namespace):
        await people.create(train_job())
        status = await people.until_status(lambda status: condition(status, "ResourcesCreated"))
        assert "cannot set blockOwnerDeletion" in condition(status, "ResourcesCreated")["message"]
        assert status["cause"]["reason"] == "Forbidden"
