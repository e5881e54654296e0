"""Which URL each kind has. A table, not discovery: we send only what we know (spec 01 and 02).

The one table for the operator, the command line and the installation. A kind in it says nothing about rights:
those of the operator are in `manifests.access`.
"""

from __future__ import annotations

import msgspec

from trainwright.api.constants import (
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME,
    JOB_SET,
    JOBSET_API_VERSION,
    TRAIN_JOB,
    TRAINING_RUNTIME,
)
from trainwright.api.meta import Json

_RBAC = "rbac.authorization.k8s.io/v1"
_ADMISSION = "admissionregistration.k8s.io/v1"


class Resource(msgspec.Struct, frozen=True):
    """One kind as the API server names it in URLs."""

    kind: str
    api_version: str
    plural: str
    namespaced: bool = True

    @property
    def prefix(self) -> str:
        """`/api/v1` for the core group, else `/apis/<group>/<version>`."""
        return f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"


_RESOURCES = (
    Resource(TRAIN_JOB, API_VERSION, "trainjobs"),
    Resource(TRAINING_RUNTIME, API_VERSION, "trainingruntimes"),
    Resource(CLUSTER_TRAINING_RUNTIME, API_VERSION, "clustertrainingruntimes", namespaced=False),
    Resource(JOB_SET, JOBSET_API_VERSION, "jobsets"),
    Resource("Job", "batch/v1", "jobs"),
    Resource("Pod", "v1", "pods"),
    Resource("ConfigMap", "v1", "configmaps"),
    Resource("Secret", "v1", "secrets"),
    Resource("Service", "v1", "services"),
    Resource("Event", "v1", "events"),
    Resource("Namespace", "v1", "namespaces", namespaced=False),
    Resource("PersistentVolumeClaim", "v1", "persistentvolumeclaims"),
    Resource("Lease", "coordination.k8s.io/v1", "leases"),
    Resource("TokenReview", "authentication.k8s.io/v1", "tokenreviews", namespaced=False),
    Resource("SubjectAccessReview", "authorization.k8s.io/v1", "subjectaccessreviews", namespaced=False),
    Resource(
        "CustomResourceDefinition", "apiextensions.k8s.io/v1", "customresourcedefinitions", namespaced=False
    ),
    Resource("ServiceAccount", "v1", "serviceaccounts"),
    Resource("Deployment", "apps/v1", "deployments"),
    Resource("StatefulSet", "apps/v1", "statefulsets"),
    Resource("DaemonSet", "apps/v1", "daemonsets"),
    Resource("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets"),
    Resource("Role", _RBAC, "roles"),
    Resource("RoleBinding", _RBAC, "rolebindings"),
    Resource("ClusterRole", _RBAC, "clusterroles", namespaced=False),
    Resource("ClusterRoleBinding", _RBAC, "clusterrolebindings", namespaced=False),
    Resource("MutatingWebhookConfiguration", _ADMISSION, "mutatingwebhookconfigurations", namespaced=False),
    Resource(
        "ValidatingWebhookConfiguration", _ADMISSION, "validatingwebhookconfigurations", namespaced=False
    ),
    # Kinds that others own, read or applied where somebody serves them. One whose name several groups have is
    # qualified by its group, and by its version where we know two.
    Resource("Workload.kueue.x-k8s.io", "kueue.x-k8s.io/v1beta2", "workloads"),
    Resource("Workload.v1beta1.kueue.x-k8s.io", "kueue.x-k8s.io/v1beta1", "workloads"),
    Resource("PodGroup.scheduling.x-k8s.io", "scheduling.x-k8s.io/v1alpha1", "podgroups"),
    Resource("PodGroup.scheduling.volcano.sh", "scheduling.volcano.sh/v1beta1", "podgroups"),
    Resource("PodGroup.scheduling.k8s.io", "scheduling.k8s.io/v1alpha2", "podgroups"),
    Resource("PodGroup.v1alpha3.scheduling.k8s.io", "scheduling.k8s.io/v1alpha3", "podgroups"),
)

RESOURCES = {resource.kind: resource for resource in _RESOURCES}
_BY_VERSION: dict[tuple[str, str | None], Resource] = {
    (resource.kind.partition(".")[0], resource.api_version): resource for resource in _RESOURCES
}


def find_resource(obj: Json) -> Resource:
    """Return the resource that an object is one of: several groups have a kind PodGroup."""
    return _BY_VERSION.get((obj["kind"], obj.get("apiVersion"))) or RESOURCES[obj["kind"]]


def build_path(
    resource: Resource, namespace: str | None = None, name: str | None = None, subresource: str | None = None
) -> str:
    """Return the URL path of a collection, an object or a subresource.

    Without a namespace the collection of a namespaced kind is that of all namespaces.
    """
    parts = [resource.prefix]
    if resource.namespaced and namespace:
        parts.append(f"namespaces/{namespace}")
    parts.append(resource.plural)
    parts += [part for part in (name, subresource) if part]
    return "/".join(parts)
