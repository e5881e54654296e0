"""core/v1 Pod, Event, ConfigMap, Secret and PersistentVolumeClaim, as far as we read them."""

from __future__ import annotations

from datetime import datetime

from trainwright.api.meta import ApiStruct, Int32, Int64, Json, ObjectMeta


class ContainerStateWaiting(ApiStruct, frozen=True, kw_only=True):
    """The container does not run yet."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(ApiStruct, frozen=True, kw_only=True):
    """The container runs."""

    started_at: datetime | None = None


class ContainerStateTerminated(ApiStruct, frozen=True, kw_only=True):
    """The container ended. `exit_code` is 128 + signal for one that a signal ended."""

    exit_code: Int32
    reason: str = ""
    message: str = ""
    signal: Int32 | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(ApiStruct, frozen=True, kw_only=True):
    """Exactly one of the three."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    """How one container does."""

    name: str
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: bool = False
    restart_count: Int32 = 0


class PodCondition(ApiStruct, frozen=True, kw_only=True):
    """Types: PodScheduled, Initialized, Ready, DisruptionTarget, ..."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """How a pod does. `phase`: Pending, Running, Succeeded, Failed, Unknown."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    conditions: list[PodCondition] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None
    start_time: datetime | None = None


class Pod(ApiStruct, frozen=True, kw_only=True):
    """A pod; `spec` is plain JSON and absent where only the status was read."""

    metadata: ObjectMeta
    api_version: str = "v1"
    kind: str = "Pod"
    spec: Json | None = None
    status: PodStatus = PodStatus()


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    """The object an event is about."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""


class Event(ApiStruct, frozen=True, kw_only=True):
    """A core/v1 event. `type` is Normal or Warning."""

    metadata: ObjectMeta
    involved_object: ObjectReference
    api_version: str = "v1"
    kind: str = "Event"
    type: str = "Normal"
    reason: str = ""
    message: str = ""
    action: str = ""
    reporting_component: str = ""
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    count: Int64 | None = None


class ConfigMap(ApiStruct, frozen=True, kw_only=True):
    """Named texts."""

    metadata: ObjectMeta
    api_version: str = "v1"
    kind: str = "ConfigMap"
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None  # base64
    immutable: bool | None = None


class Secret(ApiStruct, frozen=True, kw_only=True):
    """Named secrets, base64-encoded."""

    metadata: ObjectMeta
    api_version: str = "v1"
    kind: str = "Secret"
    type: str = "Opaque"
    data: dict[str, str] | None = None
    string_data: dict[str, str] | None = None  # plain text, for writing only; wins over `data`
    immutable: bool | None = None


class PersistentVolumeClaim(ApiStruct, frozen=True, kw_only=True):
    """A claim of storage; `spec` stays plain JSON."""

    metadata: ObjectMeta
    api_version: str = "v1"
    kind: str = "PersistentVolumeClaim"
    spec: Json | None = None
    status: Json | None = None
