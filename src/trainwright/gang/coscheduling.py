"""Coscheduling, a plugin of the scheduler-plugins project (spec 02 section 11.2).

The scheduler finds the PodGroup by a label of its pods. Under which `schedulerName` a cluster runs the plugin
is for its administrator to say in the runtime: it may be the cluster's only scheduler.
"""

from __future__ import annotations

from typing import Final

from trainwright.api.runtime import CoschedulingPolicy, PodGroupPolicy
from trainwright.gang.contract import Gang, Membership
from trainwright.gang.demand import sum_demand

API_VERSION: Final = "scheduling.x-k8s.io/v1alpha1"
POD_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
DEFAULT_TIMEOUT_SECONDS: Final = 60


class Coscheduling:
    """PodGroup of scheduler-plugins, by label."""

    name = "coscheduling"
    scheduler_name = None

    def build_membership(self, policy: PodGroupPolicy, gang: Gang) -> Membership:
        """Return the PodGroup of the job's name, and the label of its pods."""
        timeout = (policy.coscheduling or CoschedulingPolicy()).schedule_timeout_seconds
        pod_group = {
            "apiVersion": API_VERSION,
            "kind": "PodGroup",
            "metadata": {"name": gang.job_name},
            "spec": {
                "minMember": gang.members.count,
                "minResources": sum_demand(gang.members.all),
                "scheduleTimeoutSeconds": DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout,
            },
        }
        return Membership(objects=(pod_group,), labels={POD_GROUP_LABEL: gang.job_name})
