"""kueue.x-k8s.io Workload, as far as we read it: never written, and the same in v1beta1 and v1beta2.

Kueue makes one for each TrainJob that goes through a queue, owned by the TrainJob, and says in its conditions
why the job waits. Source: clients, section 2.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from trainwright.api.meta import ApiStruct, ObjectMeta

KUEUE_GROUP: Final = "kueue.x-k8s.io"

# As the port names the kind, newest version first; one that is not served is not found.
WORKLOAD_KINDS: Final = (f"Workload.{KUEUE_GROUP}", f"Workload.v1beta1.{KUEUE_GROUP}")

# Of the entry in a TrainJob's `runtimePatches` that Kueue writes: where its pods may run.
PATCH_MANAGER: Final = f"{KUEUE_GROUP}/manager"
# On a TrainJob: the LocalQueue in which the job waits while it is suspended.
QUEUE_LABEL: Final = f"{KUEUE_GROUP}/queue-name"
# On a Workload: the uid of the job that it stands for.
JOB_UID_LABEL: Final = f"{KUEUE_GROUP}/job-uid"


class WorkloadCondition(ApiStruct, frozen=True, kw_only=True):
    """Types: QuotaReserved, Admitted, PodsReady, Evicted, Preempted, Requeued, Finished, ..."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class AdmissionCheckState(ApiStruct, frozen=True, kw_only=True):
    """What else has to agree once there is quota. `state`: Pending, Ready, Retry, Rejected."""

    name: str
    state: str
    message: str = ""


class RequeueState(ApiStruct, frozen=True, kw_only=True):
    """When an evicted job is queued again."""

    requeue_at: datetime | None = None


class WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    """What is to be admitted. `active` is false where somebody took it out of the queue."""

    queue_name: str = ""
    active: bool | None = None


class WorkloadStatus(ApiStruct, frozen=True, kw_only=True):
    """Where it stands."""

    conditions: list[WorkloadCondition] | None = None
    admission_checks: list[AdmissionCheckState] | None = None
    requeue_state: RequeueState | None = None


class Workload(ApiStruct, frozen=True, kw_only=True):
    """One job in Kueue's queues."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()
