"""What an installation puts on a cluster, without the operator itself: our CRDs, and its rights.

For control planes on which tests run an operator in their own process, as the user `operator`.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Sequence
from pathlib import Path

from kube.control_plane import ControlPlane, load_documents
from kube.external_cluster import ExternalCluster
from trainwright.api.meta import Json
from trainwright.manifests.access import OPERATOR_NAMESPACE_RULES, OPERATOR_RULES

ROOT = Path(__file__).resolve().parents[2]
CRDS = sorted((ROOT / "src/trainwright/manifests/crds").glob("*.yaml"))
_RBAC = "rbac.authorization.k8s.io"


def install_our_crds(plane: ControlPlane | ExternalCluster) -> None:
    """Create our CRDs and wait until they are served."""
    plane.install_crds(load_documents(CRDS))


def grant_operator_rights(plane: ControlPlane | ExternalCluster) -> None:
    """Give the user `operator` the rights that an installation gives to the operator, in all namespaces."""
    rules_by_name = {"operator": OPERATOR_RULES, "operator-own-namespace": OPERATOR_NAMESPACE_RULES}
    for suffix, rules in rules_by_name.items():
        name = f"{plane.prefix}-{suffix}"
        role = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
        plane.call("POST", f"/apis/{_RBAC}/v1/clusterroles", {**role, "rules": list(rules)})
        binding = {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [plane.get_subject("operator")],
        }
        plane.call("POST", f"/apis/{_RBAC}/v1/clusterrolebindings", binding)
        wait_until_allowed(plane, "operator", rules)


def grant_operator_role(plane: ControlPlane | ExternalCluster, namespace: str) -> None:
    """Give the user `operator-of-one-namespace` the rights of the operator in one namespace, by a Role."""
    where = f"/apis/{_RBAC}/v1/namespaces/{namespace}"
    role = {"metadata": {"name": "operator"}, "rules": [*OPERATOR_RULES, *OPERATOR_NAMESPACE_RULES]}
    binding = {
        "metadata": {"name": "operator"},
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": "operator"},
        "subjects": [plane.get_subject("operator-of-one-namespace")],
    }
    plane.call("POST", f"{where}/roles", role)
    plane.call("POST", f"{where}/rolebindings", binding)
    wait_until_rights_are_known(plane)


def wait_until_allowed(
    plane: ControlPlane | ExternalCluster, user: str, rules: Sequence[Json], namespace: str = ""
) -> None:
    """Wait until the API server lets a user do what a role with these rules has just given him.

    It learns of roles by watches of its own: on a busy machine a request that was sent at once was refused
    in one of eight tries. In the namespace, or in all of them.
    """
    asked = next(rule for rule in rules if rule.get("resources") and not rule.get("resourceNames"))
    resource, _, subresource = asked["resources"][0].partition("/")
    subject = plane.get_subject(user)
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        name = f"system:serviceaccount:{subject['namespace']}:{name}"
    attributes = {
        "namespace": namespace,
        "verb": asked["verbs"][0],
        "group": asked["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
    }
    review = {"spec": {"user": name, "resourceAttributes": attributes}}
    plane.wait_for(f"the rights of {name}", functools.partial(_is_allowed, plane, review))


def _is_allowed(plane: ControlPlane | ExternalCluster, review: Json) -> bool:
    answer = plane.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def wait_until_rights_are_known(plane: ControlPlane | ExternalCluster) -> None:
    """Wait until the API server acts by every role and binding that was made or deleted before.

    It learns of each of the four kinds by a watch of its own, in order: once it knows one of each that is
    made now, it knows all before them.
    """
    name = f"canary-{uuid.uuid4().hex[:8]}"
    subjects = [{"apiGroup": _RBAC, "kind": "User", "name": name}]
    made = []
    for scope, kind, asked in (
        ("", "ClusterRole", {"nonResourceURLs": [f"/{name}"]}),
        ("/namespaces/default", "Role", {"apiGroups": [""], "resources": ["configmaps"]}),
    ):
        prefix = f"/apis/{_RBAC}/v1{scope}/{kind.lower()}"
        role = {"metadata": {"name": name}, "rules": [{**asked, "verbs": ["get"]}]}
        reference = {"apiGroup": _RBAC, "kind": kind, "name": name}
        plane.call("POST", f"{prefix}s", role)
        plane.call(
            "POST",
            f"{prefix}bindings",
            {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects},
        )
        made += [f"{prefix}bindings/{name}", f"{prefix}s/{name}"]
    reviews: list[Json] = [
        {"nonResourceAttributes": {"path": f"/{name}", "verb": "get"}},
        {"resourceAttributes": {"namespace": "default", "resource": "configmaps", "verb": "get"}},
    ]
    for review in reviews:
        plane.wait_for("rights", functools.partial(_is_allowed, plane, {"spec": {"user": name, **review}}))
    for path in made:
        plane.call("DELETE", path)
