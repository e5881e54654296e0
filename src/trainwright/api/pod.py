"""The part of core/v1 pod templates that is checked: enough that nothing that reads them can stumble.

Pod templates are passed on as plain JSON, so fields that are not here survive; these structs only say which
type the known ones have. Source: the Kubernetes API reference, core/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from trainwright.api.markers import at_most_one, default, expects, list_map, not_empty, one_of, shape
from trainwright.api.meta import ApiStruct, Int32, Int64, Json, LabelsAndAnnotations, QuantityValue

DNS_LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_LABEL_WORDS = "lower case letters, digits and '-', no '-' at either end"


class ObjectFieldSelector(ApiStruct, frozen=True, kw_only=True):
    """A field of the pod."""

    field_path: str
    api_version: str | None = None


class ResourceFieldSelector(ApiStruct, frozen=True, kw_only=True):
    """A limit or request of a container.

    The default is what clients written in Go write where the field is absent (Kueue, in a TrainJob that it
    admits): to variables that may not change it would be a change. It means 1.
    """

    resource: str
    container_name: str | None = None
    divisor: Annotated[QuantityValue, default("0")] | None = None


class KeySelector(ApiStruct, frozen=True, kw_only=True):
    """A key of a ConfigMap or Secret."""

    key: str
    name: str = ""
    optional: bool | None = None


class FileKeySelector(ApiStruct, frozen=True, kw_only=True):
    """A variable in a file of a volume."""

    volume_name: str
    path: str
    key: str
    optional: bool | None = None


class EnvVarSource(ApiStruct, frozen=True, kw_only=True):
    """Where a variable's value comes from; exactly one."""

    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None
    file_key_ref: FileKeySelector | None = None


class EnvVar(ApiStruct, frozen=True, kw_only=True):
    """One environment variable."""

    name: Annotated[str, Meta(min_length=1, pattern="^[^=]+$"), expects("a name without =")]
    value: str | None = None
    value_from: (
        Annotated[
            EnvVarSource,
            at_most_one("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"),
            not_empty(),
        ]
        | None
    ) = None


EnvVarJson = Annotated[Json, shape(EnvVar), at_most_one("value", "valueFrom")]


class EnvFromSource(ApiStruct, frozen=True, kw_only=True):
    """All keys of a ConfigMap or Secret as variables."""

    prefix: str | None = None
    config_map_ref: Json | None = None
    secret_ref: Json | None = None


class ResourceClaim(ApiStruct, frozen=True, kw_only=True):
    """A device claim of the pod, by its name there."""

    name: Annotated[str, Meta(min_length=1)]
    request: str | None = None


ResourceClaims = Annotated[list[Annotated[Json, shape(ResourceClaim)]], list_map("name")]


class ResourceRequirements(ApiStruct, frozen=True, kw_only=True):
    """What a container needs and may use."""

    moved: ClassVar[Mapping[str, str]] = {
        name: f"write limits: {{{resource}: ...}}"
        for name, resource in (("cpu", "cpu"), ("memory", "memory"), ("gpu", "nvidia.com/gpu"))
    } | {"nvidia.com/gpu": "write limits: {nvidia.com/gpu: ...}"}

    limits: dict[str, QuantityValue] | None = None
    requests: dict[str, QuantityValue] | None = None
    claims: ResourceClaims | None = None


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    """A port a container listens on."""

    container_port: Annotated[int, Meta(ge=1, le=65535)]
    name: str | None = None
    protocol: str | None = None
    host_port: Int32 | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class VolumeMount(ApiStruct, frozen=True, kw_only=True):
    """Where a volume appears in a container."""

    name: Annotated[str, Meta(min_length=1)]
    mount_path: Annotated[str, Meta(min_length=1)]
    sub_path: str | None = None
    sub_path_expr: str | None = None
    read_only: bool | None = None
    mount_propagation: str | None = None
    recursive_read_only: str | None = None


class ConfigMapVolume(ApiStruct, frozen=True, kw_only=True):
    """Files from a ConfigMap."""

    name: str = ""
    items: list[Json] | None = None
    default_mode: Int32 | None = None
    optional: bool | None = None


class SecretVolume(ApiStruct, frozen=True, kw_only=True):
    """Files from a Secret."""

    secret_name: str = ""
    items: list[Json] | None = None
    default_mode: Int32 | None = None
    optional: bool | None = None


class ClaimVolume(ApiStruct, frozen=True, kw_only=True):
    """A PersistentVolumeClaim."""

    claim_name: Annotated[str, Meta(min_length=1)]
    read_only: bool | None = None


class HostPathVolume(ApiStruct, frozen=True, kw_only=True):
    """A folder of the machine."""

    path: Annotated[str, Meta(min_length=1)]
    type: str | None = None


class EmptyDirVolume(ApiStruct, frozen=True, kw_only=True):
    """A folder that lives as long as the pod."""

    medium: str | None = None
    size_limit: QuantityValue | None = None


class Volume(ApiStruct, frozen=True, kw_only=True):
    """A volume of a pod, with one source. Sources that we never look into are plain JSON."""

    name: Annotated[str, Meta(min_length=1, max_length=63)]
    empty_dir: EmptyDirVolume | None = None
    host_path: HostPathVolume | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None
    projected: Json | None = None
    downward_api: Json | None = msgspec.field(default=None, name="downwardAPI")
    nfs: Json | None = None
    csi: Json | None = None
    ephemeral: Json | None = None
    image: Json | None = None
    iscsi: Json | None = None
    fc: Json | None = None
    rbd: Json | None = None
    cephfs: Json | None = None
    glusterfs: Json | None = None
    cinder: Json | None = None
    flex_volume: Json | None = None
    flocker: Json | None = None
    gce_persistent_disk: Json | None = None
    aws_elastic_block_store: Json | None = msgspec.field(default=None, name="awsElasticBlockStore")
    azure_disk: Json | None = None
    azure_file: Json | None = None
    vsphere_volume: Json | None = None
    quobyte: Json | None = None
    photon_persistent_disk: Json | None = None
    portworx_volume: Json | None = None
    scale_io: Json | None = msgspec.field(default=None, name="scaleIO")
    storageos: Json | None = None
    git_repo: Json | None = None


VOLUME_SOURCES = tuple(f.encode_name for f in msgspec.structs.fields(Volume) if f.encode_name != "name")
VolumeJson = Annotated[Json, shape(Volume), at_most_one(*VOLUME_SOURCES)]
VolumeMountJson = Annotated[Json, shape(VolumeMount)]


class LocalObjectReference(ApiStruct, frozen=True, kw_only=True):
    """An object of the same namespace."""

    name: str = ""


class Toleration(ApiStruct, frozen=True, kw_only=True):
    """A taint that the pod tolerates."""

    key: str | None = None
    operator: Annotated[str, one_of("Exists", "Equal", "Lt", "Gt")] | None = None
    value: str | None = None
    effect: Annotated[str, one_of("NoSchedule", "PreferNoSchedule", "NoExecute", "")] | None = None
    toleration_seconds: Int64 | None = None


class PodSchedulingGate(ApiStruct, frozen=True, kw_only=True):
    """What must be taken away before the pod is scheduled."""

    name: Annotated[str, Meta(min_length=1)]


class Affinity(ApiStruct, frozen=True, kw_only=True):
    """Where the pod prefers to run."""

    node_affinity: Json | None = None
    pod_affinity: Json | None = None
    pod_anti_affinity: Json | None = None


class ExecAction(ApiStruct, frozen=True, kw_only=True):
    """A command in the container."""

    command: list[str] | None = None


class Probe(ApiStruct, frozen=True, kw_only=True):
    """A question to the container."""

    exec: ExecAction | None = None
    http_get: Json | None = None
    tcp_socket: Json | None = None
    grpc: Json | None = None
    termination_grace_period_seconds: Int64 | None = None
    initial_delay_seconds: Int32 | None = None
    timeout_seconds: Int32 | None = None
    period_seconds: Int32 | None = None
    success_threshold: Int32 | None = None
    failure_threshold: Int32 | None = None


class Container(ApiStruct, frozen=True, kw_only=True):
    """One container of a pod template. The image may come from the TrainJob."""

    name: Annotated[str, Meta(min_length=1, max_length=63, pattern=DNS_LABEL), expects(DNS_LABEL_WORDS)]
    image: str | None = None
    image_pull_policy: str | None = None
    command: list[str] | None = None
    args: list[str] | None = None
    working_dir: str | None = None
    env: Annotated[list[EnvVarJson], list_map("name")] | None = None
    env_from: list[EnvFromSource] | None = None
    ports: list[ContainerPort] | None = None
    resources: ResourceRequirements | None = None
    volume_mounts: Annotated[list[VolumeMountJson], list_map("mountPath")] | None = None
    lifecycle: Json | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    restart_policy: str | None = None
    security_context: Json | None = None
    stdin: bool | None = None
    stdin_once: bool | None = None
    resize_policy: list[Json] | None = None
    restart_policy_rules: list[Json] | None = None
    volume_devices: list[Json] | None = None
    termination_message_path: str | None = None
    termination_message_policy: str | None = None
    tty: bool | None = None


Containers = Annotated[list[Container], list_map("name")]


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """What a pod should be."""

    containers: Containers
    init_containers: Containers | None = None
    volumes: Annotated[list[VolumeJson], list_map("name")] | None = None
    restart_policy: Annotated[str, one_of("Always", "OnFailure", "Never", "")] | None = None
    termination_grace_period_seconds: Annotated[int, Meta(ge=0)] | None = None
    active_deadline_seconds: Annotated[int, Meta(ge=1)] | None = None
    node_selector: dict[str, str] | None = None
    node_name: str | None = None
    service_account_name: str | None = None
    service_account: str | None = None
    automount_service_account_token: bool | None = None
    host_network: bool | None = None
    host_users: bool | None = None
    hostname_override: str | None = None
    ephemeral_containers: list[Json] | None = None
    os: Json | None = None
    readiness_gates: list[Json] | None = None
    resources: Json | None = None
    host_pid: bool | None = msgspec.field(default=None, name="hostPID")
    host_ipc: bool | None = msgspec.field(default=None, name="hostIPC")
    share_process_namespace: bool | None = None
    security_context: Json | None = None
    image_pull_secrets: list[LocalObjectReference] | None = None
    hostname: str | None = None
    subdomain: str | None = None
    affinity: Json | None = None
    scheduler_name: str | None = None
    tolerations: list[Toleration] | None = None
    host_aliases: list[Json] | None = None
    priority_class_name: str | None = None
    priority: Int32 | None = None
    dns_policy: str | None = None
    dns_config: Json | None = None
    runtime_class_name: str | None = None
    overhead: dict[str, QuantityValue] | None = None
    topology_spread_constraints: list[Json] | None = None
    scheduling_gates: Annotated[list[PodSchedulingGate], list_map("name")] | None = None
    resource_claims: list[Json] | None = None
    set_hostname_as_fqdn: bool | None = msgspec.field(default=None, name="setHostnameAsFQDN")
    enable_service_links: bool | None = None
    preemption_policy: str | None = None


class PodTemplate(ApiStruct, frozen=True, kw_only=True):
    """Pods are made from it."""

    keeps_unknown: ClassVar[bool] = True

    spec: PodSpec
    metadata: LabelsAndAnnotations | None = None
