"""JobSet v1alpha2, as far as we read it (spec 02 section 14). Job templates stay plain JSON.

These are views for reading: encoding one back drops what it does not know. What is sent is built as JSON.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from trainwright.api.batch import JobTemplate
from trainwright.api.constants import JOB_SET, JOBSET_API_VERSION
from trainwright.api.markers import default, list_atomic, list_map, one_of, shape
from trainwright.api.meta import (
    ApiStruct,
    Condition,
    Int32,
    Json,
    LabelsAndAnnotations,
    Name,
    NonNegativeInt32,
    ObjectMeta,
)


class DependsOn(ApiStruct, frozen=True, kw_only=True):
    """Start only when all Jobs of an earlier replicated job are `Ready` or `Complete`."""

    name: Name
    status: Annotated[str, one_of("Ready", "Complete")]


class ReplicatedJob(ApiStruct, frozen=True, kw_only=True):
    """`replicas` Jobs made from one template (a batch/v1 JobTemplateSpec)."""

    name: Annotated[str, Meta(min_length=1)]
    template: Annotated[Json, shape(JobTemplate)]
    group_name: Annotated[str, default("default")] = "default"
    replicas: Annotated[NonNegativeInt32, default(1)] = 1
    depends_on: Annotated[list[DependsOn], list_map("name", max_items=5)] | None = None


class Network(ApiStruct, frozen=True, kw_only=True):
    """Host names of pods. `subdomain` defaults to the JobSet's name."""

    enable_dns_hostnames: bool | None = msgspec.field(default=None, name="enableDNSHostnames")
    subdomain: str | None = None
    publish_not_ready_addresses: bool | None = None


class SuccessPolicy(ApiStruct, frozen=True, kw_only=True):
    """`operator` is All or Any; no targets means all replicated jobs."""

    operator: Annotated[str, one_of("All", "Any")] = "All"
    target_replicated_jobs: list[str] | None = None


class FailurePolicyRule(ApiStruct, frozen=True, kw_only=True):
    """What to do when a Job fails in a certain way; the first matching rule counts."""

    action: Annotated[
        str,
        one_of(
            "FailJobSet",
            "RestartJobSet",
            "RestartJobSetAndIgnoreMaxRestarts",
            "RestartJob",
            "RestartJobAndIgnoreMaxRestarts",
        ),
    ]
    name: str = ""
    on_job_failure_reasons: list[str] | None = None
    on_job_failure_message_patterns: list[str] | None = None
    target_replicated_jobs: list[str] | None = None


class FailurePolicy(ApiStruct, frozen=True, kw_only=True):
    """How often, and how, the JobSet starts again after a failure."""

    max_restarts: NonNegativeInt32 = 0
    restart_strategy: Annotated[
        str, one_of("Recreate", "BlockingRecreate", "InPlaceRestart", default="Recreate")
    ] = "Recreate"
    rules: list[FailurePolicyRule] | None = None


class StartupPolicy(ApiStruct, frozen=True, kw_only=True):
    """AnyOrder, or InOrder: each replicated job starts when the one before it is ready."""

    startup_policy_order: Annotated[str, one_of("AnyOrder", "InOrder")] = "AnyOrder"


class Coordinator(ApiStruct, frozen=True, kw_only=True):
    """Which pod coordinates."""

    replicated_job: str
    job_index: NonNegativeInt32 = 0
    pod_index: NonNegativeInt32 = 0


class RetentionPolicy(ApiStruct, frozen=True, kw_only=True):
    """What becomes of the claims when the JobSet goes."""

    when_deleted: Annotated[str, one_of("Delete", "Retain", default="Delete")] = "Delete"


class VolumeClaimMetadata(LabelsAndAnnotations, frozen=True, kw_only=True):
    """A claim becomes `<name>-<JobSet>` in the JobSet's namespace."""

    name: Annotated[str, Meta(min_length=1)]


class VolumeClaimTemplate(ApiStruct, frozen=True, kw_only=True):
    """A PersistentVolumeClaim to be made for all pods of the JobSet."""

    keeps_unknown: ClassVar[bool] = True

    metadata: VolumeClaimMetadata
    spec: dict[str, Any]
    api_version: str | None = None
    kind: str | None = None
    status: Json | None = None


class VolumeClaimPolicy(ApiStruct, frozen=True, kw_only=True):
    """Claims, and whether they outlive the JobSet."""

    templates: Annotated[list[VolumeClaimTemplate], list_atomic(max_items=50)]
    retention_policy: RetentionPolicy | None = None


class JobSetSpec(ApiStruct, frozen=True, kw_only=True):
    """What a JobSet should be."""

    replicated_jobs: Annotated[list[ReplicatedJob], list_map("name")] = msgspec.field(default_factory=list)
    network: Network | None = None
    success_policy: SuccessPolicy | None = None
    failure_policy: FailurePolicy | None = None
    startup_policy: StartupPolicy | None = None
    suspend: bool | None = None
    coordinator: Coordinator | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: NonNegativeInt32 | None = None
    volume_claim_policies: (
        Annotated[list[Annotated[Json, shape(VolumeClaimPolicy)]], list_atomic(max_items=50)] | None
    ) = None


class ReplicatedJobStatus(ApiStruct, frozen=True, kw_only=True):
    """Numbers of child Jobs (not pods) by state."""

    name: str
    ready: Int32
    succeeded: Int32
    failed: Int32
    active: Int32
    suspended: Int32
    # By job index; only where a failure policy restarted single Jobs.
    job_restarts: list[Int32] | None = None
    job_restarts_count_towards_max: list[Int32] | None = None


class JobSetStatus(ApiStruct, frozen=True, kw_only=True):
    """What is known about a JobSet. Condition types: Completed, Failed, Suspended, RestartingJobSet, ..."""

    conditions: list[Condition] | None = None
    restarts: Int32 = 0
    restarts_count_towards_max: Int32 = 0
    terminal_state: str | None = None
    replicated_jobs_status: list[ReplicatedJobStatus] | None = None


class JobSet(ApiStruct, frozen=True, kw_only=True):
    """A group of Jobs."""

    metadata: ObjectMeta
    api_version: str = JOBSET_API_VERSION
    kind: str = JOB_SET
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus | None = None
