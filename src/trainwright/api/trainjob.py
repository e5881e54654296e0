"""TrainJob: what to train (spec 01 sections 1.2-1.4, and the additions of design section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import Meta

from trainwright.api.constants import (
    API_VERSION,
    CLUSTER_TRAINING_RUNTIME,
    CONTROLLER_NAME,
    GROUP,
    MULTIKUEUE_CONTROLLER_NAME,
    TRAIN_JOB,
)
from trainwright.api.markers import bounded, default, expects, list_atomic, list_map, one_of, shape
from trainwright.api.meta import (
    ApiStruct,
    Condition,
    Int32,
    Int64,
    Json,
    LabelsAndAnnotations,
    Name,
    NonNegativeInt32,
    NonNegativeInt64,
    ObjectMeta,
    PositiveInt32,
    PositiveInt64,
)
from trainwright.api.pod import (
    Affinity,
    EnvVarJson,
    LocalObjectReference,
    PodSchedulingGate,
    ResourceRequirements,
    Toleration,
    VolumeJson,
    VolumeMountJson,
)

EnvVars = Annotated[list[EnvVarJson], list_map("name", max_items=128)]
Words = Annotated[list[Annotated[str, Meta(max_length=1048576)]], list_atomic(max_items=128)]


class RuntimeRef(ApiStruct, frozen=True, kw_only=True):
    """Which runtime. Defaults: the API group of TrainJob, kind ClusterTrainingRuntime."""

    name: Name
    api_group: Annotated[str, Meta(max_length=253), default(GROUP)] | None = None
    kind: Annotated[str, Meta(max_length=253), default(CLUSTER_TRAINING_RUNTIME)] | None = None


class SecretRef(ApiStruct, frozen=True, kw_only=True):
    """A Secret in the TrainJob's namespace; its keys become environment variables."""

    name: str = ""


class InitializerSource(ApiStruct, frozen=True, kw_only=True):
    """Where a dataset or model is fetched from before training."""

    storage_uri: (
        Annotated[
            str,
            Meta(max_length=2048, pattern=r"^([A-Za-z][A-Za-z0-9+.-]*://.+)?$"),
            expects("a URI such as s3://bucket/path or hf://owner/name"),
        ]
        | None
    ) = None
    env: EnvVars | None = None
    secret_ref: SecretRef | None = None


class Initializer(ApiStruct, frozen=True, kw_only=True):
    """What is fetched before training."""

    dataset: InitializerSource | None = None
    model: InitializerSource | None = None


class Trainer(ApiStruct, frozen=True, kw_only=True):
    """What runs on each training node, and on how many."""

    image: Annotated[str, Meta(max_length=500)] | None = None
    command: Words | None = None
    args: Words | None = None
    env: EnvVars | None = None
    num_nodes: NonNegativeInt32 | None = None
    resources_per_node: ResourceRequirements | None = None
    num_proc_per_node: (
        Annotated[
            PositiveInt32, expects("a number from 1 on; leave the field out to choose it from the resources")
        ]
        | None
    ) = None


class ContainerPatch(ApiStruct, frozen=True, kw_only=True):
    """What a patch may set in a container, found by name."""

    name: Name
    env: EnvVars | None = None
    # Merged by mountPath, so one volume may appear at two paths.
    volume_mounts: Annotated[list[VolumeMountJson], list_map("mountPath", max_items=128)] | None = None
    security_context: Json | None = None


class PodSpecPatch(ApiStruct, frozen=True, kw_only=True):
    """What a patch may set in a pod template's spec."""

    service_account_name: Annotated[str, Meta(max_length=253)] | None = None
    volumes: Annotated[list[VolumeJson], list_map("name", max_items=128)] | None = None
    init_containers: Annotated[list[ContainerPatch], list_map("name", max_items=64)] | None = None
    containers: Annotated[list[ContainerPatch], list_map("name", max_items=64)] | None = None
    image_pull_secrets: (
        Annotated[list[Annotated[Json, shape(LocalObjectReference)]], list_map("name", max_items=64)] | None
    ) = None
    security_context: Json | None = None
    termination_grace_period_seconds: NonNegativeInt64 | None = None
    node_selector: dict[str, str] | None = None
    affinity: Annotated[Json, shape(Affinity)] | None = None
    tolerations: Annotated[list[Annotated[Json, shape(Toleration)]], list_atomic(max_items=128)] | None = None
    scheduling_gates: (
        Annotated[list[Annotated[Json, shape(PodSchedulingGate)]], list_map("name", max_items=16)] | None
    ) = None


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

    name: Name
    template: JobTemplatePatch | None = None


class JobSetSpecPatch(ApiStruct, frozen=True, kw_only=True):
    """A patch of a JobSet's spec."""

    replicated_jobs: Annotated[list[ReplicatedJobPatch], list_map("name", max_items=100)] | None = None


class JobSetTemplatePatch(ApiStruct, frozen=True, kw_only=True):
    """A patch of the runtime's JobSet template."""

    metadata: LabelsAndAnnotations | None = None
    spec: JobSetSpecPatch | None = None


class TrainingRuntimeSpecPatch(ApiStruct, frozen=True, kw_only=True):
    """A patch of the runtime; the template is its only target."""

    template: JobSetTemplatePatch | None = None


class RuntimePatch(ApiStruct, frozen=True, kw_only=True):
    """What one manager changes in the runtime for this job. `manager` is a domain-prefixed path."""

    manager: Name
    time: datetime | None = None
    training_runtime_spec: TrainingRuntimeSpecPatch | None = None


class TrainJobSpec(ApiStruct, frozen=True, kw_only=True):
    """What to train."""

    # The first four are of earlier versions of the API.
    moved: ClassVar[Mapping[str, str]] = {
        "podTemplateOverrides": "runtimePatches took its place",
        "podSpecOverrides": "runtimePatches took its place",
        "datasetConfig": "initializer.dataset took its place",
        "modelConfig": "initializer.model took its place",
        "labels": "the TrainJob's own go to metadata.labels, those of pods to runtimePatches",
        "annotations": "the TrainJob's own go to metadata.annotations, those of pods to runtimePatches",
        "mlPolicy": "it belongs to the runtime; a TrainJob has trainer.numNodes and trainer.numProcPerNode",
    }

    runtime_ref: RuntimeRef
    initializer: Initializer | None = None
    trainer: Trainer | None = None
    runtime_patches: Annotated[list[RuntimePatch], list_map("manager", max_items=16)] | None = None
    suspend: Annotated[bool, default(False)] | None = None
    active_deadline_seconds: PositiveInt64 | None = None
    managed_by: (
        Annotated[str, one_of(CONTROLLER_NAME, MULTIKUEUE_CONTROLLER_NAME, default=CONTROLLER_NAME)] | None
    ) = None
    ttl_seconds_after_finished: NonNegativeInt32 | None = None  # ours


MAX_CONDITIONS = 8
MAX_STEPS = 100  # replicated jobs of a runtime; the status has an entry for each

StatusCount = Annotated[Int32, bounded(minimum=0)]


class JobStatus(ApiStruct, frozen=True, kw_only=True):
    """How many child Jobs of one replicated job are in each state. All five counters are always written."""

    name: Annotated[str, bounded(minLength=1, maxLength=253)]
    ready: StatusCount
    succeeded: StatusCount
    failed: StatusCount
    active: StatusCount
    suspended: StatusCount


class Metric(ApiStruct, frozen=True, kw_only=True):
    """One metric as the training code reported it; both parts are strings of 1 to 64 characters."""

    name: Annotated[str, bounded(minLength=1, maxLength=64)]
    value: Annotated[str, bounded(minLength=1, maxLength=64)]


class TrainerStatus(ApiStruct, frozen=True, kw_only=True):
    """What the training code last reported."""

    progress_percentage: Annotated[Int32, bounded(minimum=0, maximum=100)] | None = None
    estimated_remaining_seconds: StatusCount | None = None
    metrics: Annotated[list[Metric], list_atomic(), bounded(maxItems=256)] | None = None
    last_updated_time: datetime | None = None


class Cause(ApiStruct, frozen=True, kw_only=True):
    """Why the job makes no progress (ours).

    `layer` is where the evidence stood: TrainJob, Runtime, Queue, JobSet, Job, PodGroup, Pod, Container,
    Node. `kind` and `name` are the object; `reason` is CamelCase; `hint` says what to do next.
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

    keeps_unknown: ClassVar[bool] = True

    conditions: Annotated[list[Condition], list_map("type"), bounded(maxItems=MAX_CONDITIONS)] | None = None
    jobs_status: Annotated[list[JobStatus], list_map("name"), bounded(maxItems=MAX_STEPS)] | None = None
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
