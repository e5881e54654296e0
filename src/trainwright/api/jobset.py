"""JobSet v1alpha2, as far as we read it (spec 02 section 14). Job templates stay plain JSON.

These are views for reading: encoding one back drops what it does not know. What is sent is built as JSON.
"""

from __future__ import annotations

import msgspec

from trainwright.api.constants import JOB_SET, JOBSET_API_VERSION
from trainwright.api.meta import ApiStruct, Condition, Int32, Json, ObjectMeta


class DependsOn(ApiStruct, frozen=True, kw_only=True):
    """Start only when all Jobs of an earlier replicated job are `Ready` or `Complete`."""

    name: str
    status: str


class ReplicatedJob(ApiStruct, frozen=True, kw_only=True):
    """`replicas` Jobs made from one template (a batch/v1 JobTemplateSpec)."""

    name: str
    template: Json
    group_name: str = "default"
    replicas: Int32 = 1
    depends_on: list[DependsOn] | None = None


class Network(ApiStruct, frozen=True, kw_only=True):
    """Host names of pods. `subdomain` defaults to the JobSet's name."""

    enable_dns_hostnames: bool | None = None
    subdomain: str | None = None
    publish_not_ready_addresses: bool | None = None


class SuccessPolicy(ApiStruct, frozen=True, kw_only=True):
    """`operator` is All or Any; no targets means all replicated jobs."""

    operator: str = "All"
    target_replicated_jobs: list[str] | None = None


class FailurePolicyRule(ApiStruct, frozen=True, kw_only=True):
    """What to do when a Job fails in a certain way; the first matching rule counts."""

    action: str
    name: str = ""
    on_job_failure_reasons: list[str] | None = None
    on_job_failure_message_patterns: list[str] | None = None
    target_replicated_jobs: list[str] | None = None


class FailurePolicy(ApiStruct, frozen=True, kw_only=True):
    """How often, and how, the JobSet starts again after a failure."""

    max_restarts: Int32 = 0
    restart_strategy: str = "Recreate"
    rules: list[FailurePolicyRule] | None = None


class StartupPolicy(ApiStruct, frozen=True, kw_only=True):
    """AnyOrder, or InOrder: each replicated job starts when the one before it is ready."""

    startup_policy_order: str = "AnyOrder"


class Coordinator(ApiStruct, frozen=True, kw_only=True):
    """Which pod coordinates."""

    replicated_job: str
    job_index: Int32 = 0
    pod_index: Int32 = 0


class JobSetSpec(ApiStruct, frozen=True, kw_only=True):
    """What a JobSet should be."""

    replicated_jobs: list[ReplicatedJob] = msgspec.field(default_factory=list)
    network: Network | None = None
    success_policy: SuccessPolicy | None = None
    failure_policy: FailurePolicy | None = None
    startup_policy: StartupPolicy | None = None
    suspend: bool | None = None
    coordinator: Coordinator | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: Int32 | None = None
    volume_claim_policies: list[Json] | None = None


class ReplicatedJobStatus(ApiStruct, frozen=True, kw_only=True):
    """Numbers of child Jobs (not pods) by state."""

    name: str
    ready: Int32
    succeeded: Int32
    failed: Int32
    active: Int32
    suspended: Int32


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
