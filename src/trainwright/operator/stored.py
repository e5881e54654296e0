"""What the operator keeps of each watched object: the fields that are read, and nothing of the rest.

A queue of 50,000 jobs has to fit. Specs are kept as the bytes they came in and decoded when their turn
comes (20 microseconds); metadata lose what nobody here reads; of Jobs and pods the status is kept, and of
their specs what `decide` reads. Each `decode_*` takes the JSON of one object.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Final

import msgspec

from trainwright.api.batch import Job, JobSpec, JobStatus
from trainwright.api.constants import (
    CLUSTER_TRAINING_RUNTIME,
    COMPLETION_INDEX,
    JOB_INDEX,
    JOBSET_NAME,
    JOBSET_UID,
    REPLICATED_JOB_NAME,
    RESTART_ATTEMPT,
    SNAPSHOT_KEY,
    TRAIN_JOB,
)
from trainwright.api.core import ConfigMap, Event, Pod, PodStatus
from trainwright.api.jobset import JobSet, JobSetSpec, JobSetStatus
from trainwright.api.kueue import Workload
from trainwright.api.meta import ApiStruct, Json, ObjectMeta, OwnerReference
from trainwright.api.pod_group import PodGroup, list_pod_group_kinds
from trainwright.api.runtime import ClusterTrainingRuntime, TrainingRuntime
from trainwright.api.trainjob import TrainJob, TrainJobSpec, TrainJobStatus

Body = bytes | msgspec.Raw

# A copy of the whole object that kubectl leaves; it would double every job that was made with it.
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_LABELS_OF_CHILDREN: Final[tuple[str, ...]] = (
    JOBSET_NAME,
    JOBSET_UID,
    REPLICATED_JOB_NAME,
    JOB_INDEX,
    COMPLETION_INDEX,
    RESTART_ATTEMPT,
)


class StoredTrainJob(msgspec.Struct, frozen=True, kw_only=True):
    """A TrainJob; what indexes and metrics ask for is at hand, the rest is still JSON.

    `runtime` is `<kind>/<namespace>/<name>` of the runtime it refers to, `snapshot_hash` the snapshot that
    its status names. `has_ended` is Complete or Failed, `is_refused` that ResourcesCreated is False.
    """

    metadata: ObjectMeta
    spec: bytes
    status: bytes
    runtime: str
    phase: str
    snapshot_hash: str
    has_ended: bool
    is_refused: bool


class StoredJobSet(msgspec.Struct, frozen=True, kw_only=True):
    """A JobSet; its spec is still JSON."""

    metadata: ObjectMeta
    spec: bytes
    status: JobSetStatus | None


class _RawTrainJob(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()


class _RawJobSet(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw()
    status: JobSetStatus | None = None


class _RuntimeRef(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    kind: str = CLUSTER_TRAINING_RUNTIME


class _SpecGlance(ApiStruct, frozen=True, kw_only=True):
    runtime_ref: _RuntimeRef = _RuntimeRef()


class _ConditionGlance(ApiStruct, frozen=True, kw_only=True):
    type: str
    status: str


class _SnapshotGlance(ApiStruct, frozen=True, kw_only=True):
    hash: str = ""


class _StatusGlance(ApiStruct, frozen=True, kw_only=True):
    phase: str = ""
    conditions: list[_ConditionGlance] | None = None
    runtime_snapshot: _SnapshotGlance | None = None


class _PodPlaceGlance(ApiStruct, frozen=True, kw_only=True):
    node_selector: Json | None = None
    tolerations: list[Json] | None = None
    scheduling_gates: list[Json] | None = None


class _PodTemplateGlance(ApiStruct, frozen=True, kw_only=True):
    spec: _PodPlaceGlance = _PodPlaceGlance()


class _JobSpecGlance(ApiStruct, frozen=True, kw_only=True):
    parallelism: int | None = None
    template: _PodTemplateGlance = _PodTemplateGlance()


class _JobView(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: _JobSpecGlance = _JobSpecGlance()
    status: JobStatus | None = None


class _PodSpecGlance(ApiStruct, frozen=True, kw_only=True):
    restart_policy: str = ""
    node_name: str = ""


class _PodView(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: _PodSpecGlance = _PodSpecGlance()
    status: PodStatus = PodStatus()


_TRAIN_JOBS: Final = msgspec.json.Decoder(_RawTrainJob)
_JOB_SETS: Final = msgspec.json.Decoder(_RawJobSet)
_SPEC_GLANCES: Final = msgspec.json.Decoder(_SpecGlance)
_STATUS_GLANCES: Final = msgspec.json.Decoder(_StatusGlance)
_TRAIN_JOB_SPECS: Final = msgspec.json.Decoder(TrainJobSpec)
_TRAIN_JOB_STATUSES: Final = msgspec.json.Decoder(TrainJobStatus)
_JOB_SET_SPECS: Final = msgspec.json.Decoder(JobSetSpec)
_JOBS: Final = msgspec.json.Decoder(_JobView)
_PODS: Final = msgspec.json.Decoder(_PodView)
_WORKLOADS: Final = msgspec.json.Decoder(Workload)
_POD_GROUPS: Final = msgspec.json.Decoder(PodGroup)
_SNAPSHOTS: Final = msgspec.json.Decoder(TrainingRuntime)

decode_training_runtime = msgspec.json.Decoder(TrainingRuntime).decode
decode_cluster_training_runtime = msgspec.json.Decoder(ClusterTrainingRuntime).decode
decode_config_map = msgspec.json.Decoder(ConfigMap).decode
decode_event = msgspec.json.Decoder(Event).decode


def decode_train_job(body: Body) -> StoredTrainJob:
    """Return the TrainJob as it is kept."""
    raw = _TRAIN_JOBS.decode(body)
    # Copied: a Raw is a view that would keep the whole answer of the server alive.
    spec, status = bytes(raw.spec), bytes(raw.status)
    ref = (_SPEC_GLANCES.decode(spec) if spec else _SpecGlance()).runtime_ref
    glance = _STATUS_GLANCES.decode(status) if status else _StatusGlance()
    truths = {(condition.type, condition.status) for condition in glance.conditions or ()}
    namespace = raw.metadata.namespace or ""
    return StoredTrainJob(
        metadata=_trim(raw.metadata),
        spec=spec,
        status=status,
        runtime=build_runtime_name(ref.kind or CLUSTER_TRAINING_RUNTIME, namespace, ref.name),
        phase=glance.phase,
        snapshot_hash=glance.runtime_snapshot.hash if glance.runtime_snapshot else "",
        has_ended=("Complete", "True") in truths or ("Failed", "True") in truths,
        is_refused=("ResourcesCreated", "False") in truths,
    )


def build_runtime_name(kind: str, namespace: str, name: str) -> str:
    """Return the name under which TrainJobs are filed by the runtime that they refer to."""
    return f"{kind}/{'' if kind == CLUSTER_TRAINING_RUNTIME else namespace}/{name}"


def open_train_job(stored: StoredTrainJob) -> TrainJob:
    """Return the whole TrainJob. Raises msgspec.ValidationError where it does not fit its schema."""
    return TrainJob(
        metadata=stored.metadata,
        spec=_TRAIN_JOB_SPECS.decode(stored.spec) if stored.spec else None,
        status=_TRAIN_JOB_STATUSES.decode(stored.status) if stored.status else None,
    )


def decode_job_set(body: Body) -> StoredJobSet:
    """Return the JobSet as it is kept."""
    raw = _JOB_SETS.decode(body)
    return StoredJobSet(metadata=_trim(raw.metadata), spec=bytes(raw.spec), status=raw.status)


def open_job_set(stored: StoredJobSet) -> JobSet:
    """Return the whole JobSet. Raises msgspec.ValidationError where it does not fit its schema."""
    spec = _JOB_SET_SPECS.decode(stored.spec) if stored.spec else JobSetSpec()
    return JobSet(metadata=stored.metadata, spec=spec, status=stored.status)


def decode_job(body: Body) -> Job:
    """Return the Job; of its template only where its pods may run."""
    view = _JOBS.decode(body)
    spec = _build_job_spec(view.spec.parallelism, msgspec.json.encode(view.spec.template.spec))
    return Job(metadata=_trim_child(view.metadata), spec=spec, status=view.status)


def decode_pod(body: Body) -> Pod:
    """Return the pod without its containers: where it is, and whether it restarts in place, is kept."""
    view = _PODS.decode(body)
    spec = _build_pod_spec(view.spec.restart_policy, view.spec.node_name)
    return Pod(metadata=_trim_child(view.metadata), spec=spec, status=view.status)


@lru_cache(maxsize=1_000)
def _build_job_spec(parallelism: int | None, place: bytes) -> JobSpec:
    """Return the spec, shared by all Jobs of that size whose pods may run in the same places."""
    pod_spec = msgspec.json.decode(place)
    return JobSpec(template={"spec": pod_spec} if pod_spec else {}, parallelism=parallelism)


@lru_cache(maxsize=20_000)
def _build_pod_spec(restart_policy: str, node_name: str) -> Json:
    """Return the spec, shared by the pods of a node; nobody changes it."""
    spec = {"restartPolicy": restart_policy, "nodeName": node_name}
    return {name: value for name, value in spec.items() if value}


def decode_workload(body: Body) -> Workload:
    """Return the Workload without its pod sets."""
    workload = _WORKLOADS.decode(body)
    return msgspec.structs.replace(workload, metadata=_trim_owned(workload.metadata))


def decode_pod_group(body: Body) -> PodGroup:
    """Return the PodGroup."""
    pod_group = _POD_GROUPS.decode(body)
    return msgspec.structs.replace(pod_group, metadata=_trim_owned(pod_group.metadata))


def is_of_train_job(obj: Workload | PodGroup) -> bool:
    """Say whether a TrainJob is the controlling owner."""
    return find_train_job_owner(obj) is not None


def find_train_job_owner(obj: Workload | PodGroup) -> OwnerReference | None:
    """Return the TrainJob that is the controlling owner, or None."""
    owners = obj.metadata.owner_references or ()
    return next((ref for ref in owners if ref.controller and ref.kind == TRAIN_JOB), None)


def list_gangs_of_snapshot(config_map: ConfigMap) -> list[str]:
    """Index snapshots by the kinds of PodGroup that their jobs have; one that cannot be read has none."""
    try:
        runtime = _SNAPSHOTS.decode((config_map.data or {}).get(SNAPSHOT_KEY, ""))
    except msgspec.DecodeError:
        return []
    return list_pod_group_kinds(runtime)


def list_job_set_names(child: Job | Pod) -> list[str]:
    """Index Jobs and pods by `<namespace>/<JobSet>`."""
    name = (child.metadata.labels or {}).get(JOBSET_NAME)
    return [f"{child.metadata.namespace}/{name}"] if name else []


def _trim(metadata: ObjectMeta) -> ObjectMeta:
    annotations = metadata.annotations
    if not annotations or _LAST_APPLIED not in annotations:
        return metadata
    kept = {key: value for key, value in annotations.items() if key != _LAST_APPLIED}
    return msgspec.structs.replace(metadata, annotations=kept)


def _trim_owned(metadata: ObjectMeta) -> ObjectMeta:
    """Keep the name, the age and the controlling owner."""
    return ObjectMeta(
        name=metadata.name,
        namespace=sys.intern(metadata.namespace or ""),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        creation_timestamp=metadata.creation_timestamp,
        deletion_timestamp=metadata.deletion_timestamp,
        owner_references=[ref for ref in metadata.owner_references or () if ref.controller] or None,
    )


def _trim_child(metadata: ObjectMeta) -> ObjectMeta:
    """Keep what places a Job or pod: a dozen labels, their copies in annotations and owners are not read.

    Keys and values that all children of a JobSet share are shared in memory too: 2 kB a pod instead of 9.
    """
    labels = metadata.labels or {}
    kept = {name: sys.intern(labels[name]) for name in _LABELS_OF_CHILDREN if name in labels}
    return ObjectMeta(
        name=metadata.name,
        namespace=sys.intern(metadata.namespace or ""),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        creation_timestamp=metadata.creation_timestamp,
        deletion_timestamp=metadata.deletion_timestamp,
        deletion_grace_period_seconds=metadata.deletion_grace_period_seconds,
        labels=kept or None,
    )
