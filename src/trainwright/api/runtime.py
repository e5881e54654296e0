"""TrainingRuntime and ClusterTrainingRuntime: how a kind of training runs (spec 01 section 1.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import msgspec
from msgspec import Meta

from trainwright.api.constants import API_VERSION, CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from trainwright.api.jobset import JobSetSpec
from trainwright.api.markers import (
    any_object,
    at_most_one,
    default,
    expects,
    list_map,
    list_set,
    not_empty,
    one_of,
    shape,
)
from trainwright.api.meta import (
    ApiStruct,
    Int32,
    Json,
    LabelsAndAnnotations,
    Name,
    NonNegativeInt32,
    ObjectMeta,
    PositiveInt32,
)


class EnvInjectionTarget(ApiStruct, frozen=True, kw_only=True):
    """Containers of one replicated job, besides the trainer's, that get the torch environment."""

    job_name: Name
    container_names: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=63)]], list_set(min_items=1, max_items=8)
    ]


class EnvInjection(ApiStruct, frozen=True, kw_only=True):
    """Where else the torch environment goes."""

    targets: Annotated[list[EnvInjectionTarget], list_map("jobName", max_items=16)] | None = None


class ElasticPolicy(ApiStruct, frozen=True, kw_only=True):
    """Training goes on while at least minNodes and at most maxNodes are there. Default: 0 restarts."""

    min_nodes: PositiveInt32
    max_nodes: PositiveInt32
    max_restarts: NonNegativeInt32 | None = None


class TorchPolicy(ApiStruct, frozen=True, kw_only=True):
    """The job is started by torchrun."""

    # Of earlier versions of the API; runtimes that are written for them stay usable.
    ineffective: ClassVar[Mapping[str, str]] = {
        "numProcPerNode": "set trainer.numProcPerNode in the TrainJob, or leave it to a node's resources",
        "elasticPolicy": "write elastic: {minNodes: ..., maxNodes: ...}",
    }

    env_injection: EnvInjection | None = None
    elastic: ElasticPolicy | None = None  # ours


class MPIPolicy(ApiStruct, frozen=True, kw_only=True):
    """The job is started by mpirun. Defaults: 1 process, OpenMPI, /root/.ssh, launcher apart."""

    num_proc_per_node: Annotated[PositiveInt32, default(1)] | None = None
    mpi_implementation: Annotated[str, one_of("OpenMPI", "Intel", "MPICH", "", default="OpenMPI")] | None = (
        None
    )
    ssh_auth_mount_path: Annotated[str, Meta(max_length=4096), default("/root/.ssh")] | None = None
    run_launcher_as_node: Annotated[bool, default(False)] | None = None


class JAXPolicy(ApiStruct, frozen=True, kw_only=True):
    """The job is a JAX distributed program."""


class XGBoostPolicy(ApiStruct, frozen=True, kw_only=True):
    """The job uses XGBoost's collective."""


class FluxPolicy(ApiStruct, frozen=True, kw_only=True):
    """The job runs under Flux. Default: 1 process per node."""

    num_proc_per_node: Annotated[PositiveInt32, default(1)] | None = None


class TensorFlowTask(ApiStruct, frozen=True, kw_only=True):
    """Which tasks of a TensorFlow cluster the pods of a replicated job are."""

    job_name: Name
    type: Annotated[str, one_of("chief", "master", "worker", "ps", "evaluator")]


class TensorFlowPolicy(ApiStruct, frozen=True, kw_only=True):
    """The job is a TensorFlow cluster. Default: workers, and replicated jobs named like a type of task."""

    tasks: Annotated[list[TensorFlowTask], list_map("jobName", max_items=16)] | None = None


class PaddlePolicy(ApiStruct, frozen=True, kw_only=True):
    """The job is started by paddle.distributed.launch. Default: without parameter servers."""

    server_job_name: Name | None = None


class CustomPolicy(ApiStruct, frozen=True, kw_only=True):
    """The job uses a framework of another package, which reads the parameters."""

    framework: Name
    parameters: Annotated[Json, any_object()] | None = None


# An extended resource: the longest domain, a slash, the longest name.
DeviceName = Annotated[
    str,
    Meta(max_length=317, pattern=r"^[^/]+/[^/]+$"),
    expects("the name of a device, with the domain of its vendor, such as habana.ai/gaudi"),
]


class MLPolicy(ApiStruct, frozen=True, kw_only=True):
    """How many nodes a job has, and how its processes find each other; at most one framework.

    With nodesPerSlice they come in groups of that many, one Job each, and numNodes is a multiple of it.
    accelerators are devices, besides GPUs, that a process drives one of.
    """

    num_nodes: Int32 | None = None
    nodes_per_slice: PositiveInt32 | None = None  # ours
    accelerators: Annotated[list[DeviceName], list_set(max_items=16)] | None = None  # ours
    torch: TorchPolicy | None = None
    mpi: MPIPolicy | None = None
    jax: JAXPolicy | None = None
    xgboost: XGBoostPolicy | None = None
    flux: FluxPolicy | None = None
    tensorflow: TensorFlowPolicy | None = None  # ours, as the two below
    paddle: PaddlePolicy | None = None
    custom: CustomPolicy | None = None


# The fields of MLPolicy that choose a framework.
FRAMEWORK_CHOICES: Final = tuple(
    field.encode_name
    for field in msgspec.structs.fields(MLPolicy)
    if field.name not in ("num_nodes", "nodes_per_slice", "accelerators")
)


class CoschedulingPolicy(ApiStruct, frozen=True, kw_only=True):
    """Gang scheduling by the scheduler-plugins project. Default timeout: 60 s."""

    schedule_timeout_seconds: Annotated[Int32, default(60)] | None = None


class NetworkTopology(ApiStruct, frozen=True, kw_only=True):
    """Volcano's network topology. Defaults: hard, tier 1."""

    mode: Annotated[str, one_of("hard", "soft", default="hard")] | None = None
    highest_tier_allowed: Annotated[Int32, default(1)] | None = None


class VolcanoPolicy(ApiStruct, frozen=True, kw_only=True):
    """Gang scheduling by Volcano."""

    network_topology: NetworkTopology | None = None


class KaiPolicy(ApiStruct, frozen=True, kw_only=True):
    """Gang scheduling by the KAI scheduler. `queue` is for jobs that name none by a label of their own."""

    queue: Annotated[str, Meta(min_length=1, max_length=63)] | None = None


class NativePolicy(ApiStruct, frozen=True, kw_only=True):
    """Gang scheduling by Kubernetes itself, in the version of `scheduling.k8s.io` that the cluster serves."""

    version: Annotated[str, one_of("v1alpha2", "v1alpha3", default="v1alpha2")] | None = None


class PodGroupPolicy(ApiStruct, frozen=True, kw_only=True):
    """Gang scheduling; at most one of the four."""

    coscheduling: CoschedulingPolicy | None = None
    volcano: VolcanoPolicy | None = None
    kai: KaiPolicy | None = None  # ours
    native: NativePolicy | None = None  # ours


class JobSetMetadata(LabelsAndAnnotations, frozen=True, kw_only=True):
    """Labels and annotations of the JobSet. Name and namespace are the TrainJob's, whatever stands here."""

    passed_over: ClassVar[tuple[str, ...]] = ("creationTimestamp", "name", "namespace", "finalizers")


class JobSetTemplate(ApiStruct, frozen=True, kw_only=True):
    """The JobSet that a job becomes. `spec` is a JobSet v1alpha2 spec and stays plain JSON.

    `api.jobset.JobSetSpec` is the typed view of it, for reading.
    """

    metadata: JobSetMetadata | None = None
    spec: Annotated[Json, shape(JobSetSpec)] | None = None


# The key of a label, or its prefix with the slash.
LabelPattern = Annotated[
    str,
    Meta(max_length=317, pattern=r"^([^/]+/)?[^/]+$|^[^/]+/$"),
    expects("the key of a label, or a prefix with its slash, such as example.com/"),
]


class RuntimeSpec(ApiStruct, frozen=True, kw_only=True):
    """How a kind of training runs.

    propagatedLabels says which labels of a TrainJob its JobSet and pods get: keys, and prefixes with a slash.
    """

    ml_policy: Annotated[MLPolicy, at_most_one(*FRAMEWORK_CHOICES)] | None = None
    pod_group_policy: (
        Annotated[PodGroupPolicy, at_most_one("coscheduling", "volcano", "kai", "native")] | None
    ) = None
    template: Annotated[JobSetTemplate, not_empty()] | None = None
    ttl_seconds_after_finished: NonNegativeInt32 | None = None  # ours: default for jobs that set none
    propagated_labels: Annotated[list[LabelPattern], list_set(max_items=16)] | None = None  # ours


class TrainingRuntime(ApiStruct, frozen=True, kw_only=True):
    """A runtime for one namespace."""

    metadata: ObjectMeta
    api_version: str = API_VERSION
    kind: str = TRAINING_RUNTIME
    spec: Annotated[RuntimeSpec, not_empty()] | None = None


class ClusterTrainingRuntime(ApiStruct, frozen=True, kw_only=True):
    """A runtime for all namespaces."""

    metadata: ObjectMeta
    api_version: str = API_VERSION
    kind: str = CLUSTER_TRAINING_RUNTIME
    spec: Annotated[RuntimeSpec, not_empty()] | None = None


Runtime = TrainingRuntime | ClusterTrainingRuntime
