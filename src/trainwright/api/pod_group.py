"""PodGroup of scheduler-plugins (scheduling.x-k8s.io) and Volcano (scheduling.volcano.sh), as far as read.

Both have the name of the TrainJob, and a status that their scheduler's controllers write.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from trainwright.api.meta import ApiStruct, Int32, ObjectMeta
from trainwright.api.runtime import Runtime

# As the port names the kind, by the field of a runtime's `podGroupPolicy` that asks for it.
POD_GROUP_KINDS: Final = {
    "coscheduling": "PodGroup.scheduling.x-k8s.io",
    "volcano": "PodGroup.scheduling.volcano.sh",
}


def list_pod_group_kinds(runtime: Runtime | None) -> list[str]:
    """Return the kinds of PodGroup that jobs of this runtime have: one at most, if admission has seen it."""
    policy = runtime.spec.pod_group_policy if runtime is not None and runtime.spec is not None else None
    if policy is None:
        return []
    return [kind for field, kind in POD_GROUP_KINDS.items() if getattr(policy, field) is not None]


class PodGroupCondition(ApiStruct, frozen=True, kw_only=True):
    """Volcano's alone. Types: Unschedulable, Scheduled."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class PodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """How many pods have to be placed together."""

    min_member: Int32 = 0


class PodGroupStatus(ApiStruct, frozen=True, kw_only=True):
    """`phase`: Pending, Inqueue, Scheduling, Running, Unknown, Finished, Completed, Failed."""

    phase: str = ""
    conditions: list[PodGroupCondition] | None = None


class PodGroup(ApiStruct, frozen=True, kw_only=True):
    """Pods that are placed all together or not at all."""

    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()
