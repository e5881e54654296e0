"""Volcano: PodGroup with queue, priority and network topology (spec 02 section 11.3).

Only what the job itself knows is applied: fields that Volcano's own webhook or controllers set (a queue where
the job names none, the phase) stay theirs.
"""

from __future__ import annotations

from typing import Final

from trainwright.api.meta import Json
from trainwright.api.runtime import NetworkTopology, PodGroupPolicy, VolcanoPolicy
from trainwright.gang.contract import Gang, Membership
from trainwright.gang.demand import sum_demand

API_VERSION: Final = "scheduling.volcano.sh/v1beta1"
POD_GROUP_ANNOTATION: Final = "scheduling.k8s.io/group-name"
# On the JobSet's metadata: which queue. On a pod outside the gang, for which Volcano makes a group of its
# own, it says the same.
QUEUE_ANNOTATION: Final = "scheduling.volcano.sh/queue-name"
DEFAULT_MODE: Final = "hard"
DEFAULT_TIER: Final = 1


class Volcano:
    """PodGroup of Volcano, by annotation."""

    name = "volcano"
    scheduler_name = "volcano"

    def build_membership(self, policy: PodGroupPolicy, gang: Gang) -> Membership:
        """Return the PodGroup of the job's name, and the annotation of its pods."""
        queue = gang.annotations.get(QUEUE_ANNOTATION)
        topology = (policy.volcano or VolcanoPolicy()).network_topology
        spec: Json = {
            "minMember": gang.members.count,
            "minResources": sum_demand(gang.members.all),
            "priorityClassName": _choose_priority_class(gang),
            "queue": queue or None,
            "networkTopology": _build_topology(topology) if topology else None,
        }
        pod_group = {
            "apiVersion": API_VERSION,
            "kind": "PodGroup",
            "metadata": {"name": gang.job_name},
            "spec": {field: value for field, value in spec.items() if value is not None},
        }
        return Membership(
            objects=(pod_group,),
            annotations={POD_GROUP_ANNOTATION: gang.job_name},
            outsider_annotations={QUEUE_ANNOTATION: queue} if queue else {},
            scheduler_name=self.scheduler_name,
        )


def _choose_priority_class(gang: Gang) -> str | None:
    """Return the priority class of the trainer, else that of the last replicated job that names one."""
    classes = {member.name: member.pod_spec.get("priorityClassName") for member in gang.members.all}
    named = [name for name in classes.values() if name]
    return (classes.get(gang.trainer) if gang.trainer else None) or (named[-1] if named else None)


def _build_topology(topology: NetworkTopology) -> Json:
    tier = topology.highest_tier_allowed
    return {
        "mode": topology.mode or DEFAULT_MODE,
        "highestTierAllowed": DEFAULT_TIER if tier is None else tier,
    }
