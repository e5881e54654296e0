"""batch/v1 Job, as far as we read or make it. Pod templates stay plain JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar

from trainwright.api.markers import one_of, shape
from trainwright.api.meta import (
    ApiStruct,
    Int32,
    Int64,
    Json,
    LabelsAndAnnotations,
    NonNegativeInt32,
    ObjectMeta,
)
from trainwright.api.pod import PodTemplate


class JobSpec(ApiStruct, frozen=True, kw_only=True):
    """What a Job should be. `template` is a core/v1 PodTemplateSpec."""

    template: Annotated[Json, shape(PodTemplate)]
    parallelism: NonNegativeInt32 | None = None
    completions: NonNegativeInt32 | None = None
    completion_mode: Annotated[str, one_of("Indexed", "NonIndexed")] | None = None
    backoff_limit: NonNegativeInt32 | None = None
    backoff_limit_per_index: Int32 | None = None
    max_failed_indexes: Int32 | None = None
    active_deadline_seconds: Int64 | None = None
    pod_failure_policy: Json | None = None
    pod_replacement_policy: str | None = None
    selector: Json | None = None
    manual_selector: bool | None = None
    managed_by: str | None = None
    success_policy: Json | None = None
    suspend: bool | None = None
    ttl_seconds_after_finished: Int32 | None = None


class JobTemplate(ApiStruct, frozen=True, kw_only=True):
    """Jobs are made from it."""

    keeps_unknown: ClassVar[bool] = True

    spec: JobSpec
    metadata: LabelsAndAnnotations | None = None


class JobCondition(ApiStruct, frozen=True, kw_only=True):
    """Types: Suspended, SuccessCriteriaMet, Complete, FailureTarget, Failed."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class JobStatus(ApiStruct, frozen=True, kw_only=True):
    """Numbers of pods by state; indexes as "0,2-4"."""

    active: Int32 = 0
    ready: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    terminating: Int32 = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: list[JobCondition] | None = None


class Job(ApiStruct, frozen=True, kw_only=True):
    """Pods that run to completion."""

    metadata: ObjectMeta
    spec: JobSpec
    api_version: str = "batch/v1"
    kind: str = "Job"
    status: JobStatus | None = None
