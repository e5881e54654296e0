"""What an installation puts on a cluster, without the operator itself: our CRDs, and its rights.

For control planes on which tests run an operator in their own process, as the user `operator`.
"""

from __future__ import annotations

from pathlib import Path

from kube.control_plane import ControlPlane, load_documents
from kube.external_cluster import ExternalCluster
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
