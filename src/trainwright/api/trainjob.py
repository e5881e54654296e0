"""TrainJob: what to train (spec 01 sections 1.2-1.4, and the additions of design section 4)."""

from __future__ import annotations

from datetime import datetime

from trainwright.api.constants import API_VERSION, TRAIN_JOB
from trainwright.api.meta import (
    ApiStruct,
    Condition,
    Int32,
    Int64,
    Json,
    LabelsAndAnnotations,
    ObjectMeta,
    QuantityValue,
)


class RuntimeRef(ApiStruct, frozen=True, kw_only=True):
    """Which runtime. Defaults: the API group of TrainJob, kind ClusterTrainingRuntime."""

    name: str
    api_group: str | None = None
    kind: str | None = None


class SecretRef(ApiStruct, frozen=True, kw_only=True):
    """A Secret in the TrainJob's namespace; its keys become environment variables."""

    name: str = ""


class InitializerSource(ApiStruct, frozen=True, kw_only=True):
    """Where a dataset or model is fetched from before training."""

    storage_uri: str | None = None
    env: list[Json] | None = None  # core/v1 EnvVar
    secret_ref: SecretRef | None = None


class Initializer(ApiStruct, frozen=True, kw_only=True):
    """What is fetched before training."""

    dataset: InitializerSource | None = None
    model: InitializerSource | None = None


class ResourceRequirements(ApiStruct, frozen=True, kw_only=True):
    """core/v1 ResourceRequirements."""

    limits: dict[str, QuantityValue] | None = None
    requests: dict[str, QuantityValue] | None = None
    claims: list[Json] | None = None


class Trainer(ApiStruct, frozen=True, kw_only=True):
    """What runs on each training node, and on how many."""

    image: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Json] | None = None  # core/v1 EnvVar
    num_nodes: Int32 | None = None
    resources_per_node: ResourceRequirements | None = None
    num_proc_per_node: Int32 | None = None


class ContainerPatch(ApiStruct, frozen=True, kw_only=True):
    """What a patch may set in a container, found by name."""

    name: str
    env: list[Json] | None = None
    volume_mounts: list[Json] | None = None
    security_context: Json | None = None


class PodSpecPatch(ApiStruct, frozen=True, kw_only=True):
    """What a patch may set in a pod template's spec."""

    service_account_name: str | None = None
    volumes: list[Json] | None = None
    init_containers: list[ContainerPatch] | None = None
    containers: list[ContainerPatch] | None = None
    image_pull_secrets: list[Json] | None = None
    security_context: Json | None = None
    termination_grace_period_seconds: Int64 | None = None
    node_selector: dict[str, str] | None = None
    affinity: Json | None = None
    tolerations: list[Json] | None = None
    scheduling_gates: list[Json] | None = None


class PodTemplatePatch(ApiStruct, frozen=True, kw_only=True):
    """A patch of a pod template."""

    metadata: LabelsAndAnnotations | None = None
    spec: PodSpecPatch | None = None


class JobSpecPatch(ApiStruct, frozen=True, kw_only=True):
    """A patch of a Job's spec: only its pod template."""

    template: PodTemplatePatch | None = None


class JobTemplatePatch(ApiStruct, frozen=True, kw_only=True):
    """A patch of a Job template."""

    metadata: LabelsAndAnnotations | None = None
    spec: JobSpecPatch | None = None


class ReplicatedJobPatch(ApiStruct, frozen=True, kw_only=True):
    """A patch of one replicated job, found by name."""

    name: str
    template: JobTemplatePatch | None = None


class JobSetSpecPatch(ApiStruct, frozen=True, kw_only=True):
    """A patch of a JobSet's spec."""

    replicated_jobs: list[ReplicatedJobPatch] | None = None


class JobSetTemplatePatch(ApiStruct, frozen=True, kw_only=True):
    """A patch of the runtime's JobSet template."""

    metadata: LabelsAndAnnotations | None = None
    spec: JobSetSpecPatch | None = None


class TrainingRuntimeSpecPatch(ApiStruct, frozen=True, kw_only=True):
    """A patch of the runtime; the template is its only target."""

    template: JobSetTemplatePatch | None = None


class RuntimePatch(ApiStruct, frozen=True, kw_only=True):
    """What one manager changes in the runtime for this job. `manager` is a domain-prefixed path."""

    manager: str
    time: datetime | None = None
    training_runtime_spec: TrainingRuntimeSpecPatch | None = None


class TrainJobSpec(ApiStruct, frozen=True, kw_only=True):
    """What to train."""

    runtime_ref: RuntimeRef
    initializer: Initializer | None = None
    trainer: Trainer | None = None
    runtime_patches: list[RuntimePatch] | None = None
    suspend: bool | None = None
    active_deadline_seconds: Int64 | None = None
    managed_by: str | None = None
    ttl_seconds_after_finished: Int32 | None = None  # ours


class JobStatus(ApiStruct, frozen=True, kw_only=True):
    """How many child Jobs of one replicated job are in each state. All five counters are always written."""

    name: str
    ready: Int32
    succeeded: Int32
    failed: Int32
    active: Int32
    suspended: Int32


class Metric(ApiStruct, frozen=True, kw_only=True):
    """One metric as the training code reported it; both parts are strings of 1 to 64 characters."""

    name: str
    value: str


class TrainerStatus(ApiStruct, frozen=True, kw_only=True):
    """What the training code last reported."""

    progress_percentage: Int32 | None = None
    estimated_remaining_seconds: Int32 | None = None
    metrics: list[Metric] | None = None
    last_updated_time: datetime | None = None


class Cause(ApiStruct, frozen=True, kw_only=True):
    """Why the job makes no progress (ours).

    `layer` is where the evidence stood: TrainJob, Runtime, Queue, JobSet, Job, Pod, Container, Node.
    `kind` and `name` are the object; `reason` is CamelCase; `hint` says what to do next.
    """

    layer: str
    kind: str
    name: str
    reason: str
    message: str
    hint: str
    since: datetime


class RuntimeSnapshotRef(ApiStruct, frozen=True, kw_only=True):
    """Which runtime, exactly, the job was made from (ours)."""

    name: str
    uid: str | None = None
    generation: Int64 | None = None
    hash: str = ""


class TrainJobStatus(ApiStruct, frozen=True, kw_only=True):
    """What is known about the job."""

    conditions: list[Condition] | None = None
    jobs_status: list[JobStatus] | None = None
    trainer_status: TrainerStatus | None = None
    # Ours, all optional.
    phase: str | None = None
    start_time: datetime | None = None
    completion_time: datetime | None = None
    restarts: Int32 | None = None
    cause: Cause | None = None
    runtime_snapshot: RuntimeSnapshotRef | None = None


class TrainJob(ApiStruct, frozen=True, kw_only=True):
    """One training job."""

    metadata: ObjectMeta
    api_version: str = API_VERSION
    kind: str = TRAIN_JOB
    spec: TrainJobSpec | None = None
    status: TrainJobStatus | None = None
