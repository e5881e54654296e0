"""Kubernetes' own gang scheduling: PodGroup of `scheduling.k8s.io`, which a field of the pod names.

Alpha in Kubernetes 1.36 (v1alpha2) and 1.37 (v1alpha3), feature gates GenericWorkload and GangScheduling of
the API server and the scheduler. A PodGroup stands by itself; a Workload, which would be its template, says
nothing more about one gang. Its policy is immutable, so its name holds what it says: a job that is resumed
with another number of nodes gets another PodGroup, which its new pods name.

Source: Kubernetes documentation, "Workload API" and "Gang scheduling"; API reference, PodGroup.
"""

from __future__ import annotations

from typing import Final

from trainwright.api.runtime import NativePolicy, PodGroupPolicy
from trainwright.gang.contract import Gang, Membership

GROUP: Final = "scheduling.k8s.io"
DEFAULT_VERSION: Final = "v1alpha2"


class Native:
    """PodGroup of Kubernetes, by a field of the pod."""

    name = "native"
    scheduler_name = None  # the cluster's own

    def build_membership(self, policy: PodGroupPolicy, gang: Gang) -> Membership:
        """Return the PodGroup, and the field by which pods belong to it."""
        version = (policy.native or NativePolicy()).version or DEFAULT_VERSION
        name = f"{gang.job_name}-{gang.members.count}"
        pod_group = {
            "apiVersion": f"{GROUP}/{version}",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"schedulingPolicy": {"gang": {"minCount": gang.members.count}}},
        }
        return Membership(objects=(pod_group,), pod_fields={"schedulingGroup": {"podGroupName": name}})
