"""What a pod comes to on one machine: programs, files and mounts. Pure.

In come a core/v1 Pod, its `PodContext` and the facts about the machine; out comes a `PodPlan`, which an
executor carries out. What keeps a container from starting is part of the plan (`Obstacle`), in Kubernetes'
words, because that is where `explain` looks for it. `image` is read by nobody here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from trainwright.api.constants import NODE
from trainwright.api.meta import Json
from trainwright.api.quantity import QuantityError, parse_quantity
from trainwright.runner.executor import PodContext
from trainwright.runner.executors.mpi_pod import RemoteStart, find_remote_start
from trainwright.runner.executors.pod_env import (
    Machine,
    Missing,
    PodIdentity,
    build_arguments,
    build_environment,
    build_names,
    count_processes,
    expand,
    find_rank_base,
    list_names,
    read_field,
    read_resource,
)

CONFIG_ERROR: Final = "CreateContainerConfigError"
_DEFAULT_MODE: Final = 0o644


class VolumeKind(StrEnum):
    """How a volume comes about."""

    EMPTY = "emptyDir"
    MEMORY = "emptyDir in memory"
    FILES = "files"
    CLAIM = "claim"
    HOST = "hostPath"


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a volume; `path` is relative to it."""

    path: str
    content: bytes
    mode: int = _DEFAULT_MODE


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that some container mounts; `path` (claim, hostPath) and `host_type` are the host's."""

    name: str
    kind: VolumeKind
    files: tuple[File, ...] = ()
    path: str = ""
    host_type: str = ""
    size_bytes: int | None = None


class VolumeMount(msgspec.Struct, frozen=True, kw_only=True):
    """Where a container sees a volume, or the part of it that `sub_path` names."""

    volume: str
    path: str
    sub_path: str = ""
    read_only: bool = False


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """Why a container waits, as in `state.waiting`."""

    reason: str
    message: str


class ContainerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One container. `is_sidecar`: an init container that goes on running beside the others.

    `rank_base` is the global rank of its first training process, or the only one where `processes` is None,
    which is where torchrun does not start them.
    An empty `arguments` means that the pod leaves the program to the image. `remote_start` is its part in an
    MPI job: a server's arguments are those of the sshd that it stands for.
    """

    name: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    working_directory: str = "/"
    mounts: tuple[VolumeMount, ...] = ()
    is_sidecar: bool = False
    readiness_probe: Json | None = None
    ports: Mapping[str, int] = msgspec.field(default_factory=dict)
    termination_path: str = "/dev/termination-log"
    falls_back_to_logs: bool = False
    rank_base: int | None = None
    processes: int | None = None
    remote_start: RemoteStart | None = None
    obstacle: Obstacle | None = None


class PodPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One pod. `hosts` goes into its /etc/hosts; `unschedulable` is what keeps it from being placed."""

    namespace: str
    name: str
    uid: str
    host_name: str
    address: str
    hosts: str
    names: frozenset[str]
    restart_policy: str = "Always"
    active_deadline_seconds: float | None = None
    grace_seconds: float = 30.0
    init_containers: tuple[ContainerPlan, ...] = ()
    containers: tuple[ContainerPlan, ...] = ()
    volumes: tuple[Volume, ...] = ()
    unschedulable: str | None = None


def plan_pod(pod: Json, context: PodContext, machine: Machine) -> PodPlan:
    """Return the plan of a pod. Never raises for what users can write: obstacles are part of the plan."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    namespace = metadata.get("namespace") or "default"
    names = build_names(context.host_names, context.subdomain, namespace)
    host_name = spec.get("hostname") or metadata.get("name", "")
    address = names.get(host_name, "127.0.0.1")
    identity = PodIdentity(pod=pod, host_name=host_name, address=address, addresses=names)
    planner = _Planner(identity, context, machine)
    grace = spec.get("terminationGracePeriodSeconds")
    init_containers = tuple(planner.plan_container(item) for item in spec.get("initContainers") or ())
    containers = tuple(planner.plan_container(item) for item in spec.get("containers") or ())
    return PodPlan(
        namespace=namespace,
        name=metadata.get("name", ""),
        uid=metadata.get("uid") or "",
        host_name=host_name,
        address=address,
        hosts="".join(
            f"{names[host]} {' '.join(list_names(host, context.subdomain, namespace))}\n"
            for host in context.host_names
        ),
        names=frozenset(names),
        restart_policy=spec.get("restartPolicy") or "Always",
        active_deadline_seconds=spec.get("activeDeadlineSeconds"),
        grace_seconds=30.0 if grace is None else float(grace),
        init_containers=init_containers,
        containers=containers,
        volumes=tuple(planner.volumes.values()),
        unschedulable=_find_missing_claim(spec, context),
    )


class _Planner:
    """Plans containers and gathers the volumes that they mount: one that nobody mounts is not made."""

    def __init__(self, identity: PodIdentity, context: PodContext, machine: Machine) -> None:
        self._identity = identity
        self._context = context
        self._machine = machine
        spec = identity.pod.get("spec") or {}
        self._sources: dict[str, Json] = {item["name"]: item for item in spec.get("volumes") or ()}
        self.volumes: dict[str, Volume] = {}

    def plan_container(self, container: Json) -> ContainerPlan:
        try:
            return self._plan_container(container)
        except Missing as missing:
            return ContainerPlan(
                name=container["name"],
                is_sidecar=container.get("restartPolicy") == "Always",
                obstacle=Obstacle(reason=CONFIG_ERROR, message=str(missing)),
            )

    def _plan_container(self, container: Json) -> ContainerPlan:
        identity, context, machine = self._identity, self._context, self._machine
        environment = build_environment(container, identity, context, machine)
        processes = count_processes(environment, context, machine)
        # Without a command the arguments would go to the image's own, which is not there.
        arguments = build_arguments(container, environment, identity, context, machine)
        return ContainerPlan(
            name=container["name"],
            arguments=arguments if container.get("command") else (),
            environment=environment,
            working_directory=container.get("workingDir") or str(context.working_directory),
            mounts=tuple(
                self._plan_mount(mount, environment) for mount in container.get("volumeMounts") or ()
            ),
            is_sidecar=container.get("restartPolicy") == "Always",
            readiness_probe=container.get("readinessProbe"),
            ports={
                port["name"]: port["containerPort"]
                for port in container.get("ports") or ()
                if "name" in port and "containerPort" in port
            },
            termination_path=container.get("terminationMessagePath") or "/dev/termination-log",
            falls_back_to_logs=container.get("terminationMessagePolicy") == "FallbackToLogsOnError",
            rank_base=find_rank_base(environment, processes) if processes else self._find_rank(container),
            processes=processes,
            remote_start=find_remote_start(container),
        )

    def _find_rank(self, container: Json) -> int | None:
        """Return the rank of a container that torchrun does not start: one process, as far as can be seen.

        What mpirun starts prints through mpirun, for all ranks at once.
        """
        is_rank = container["name"] == NODE and find_remote_start(container) is None
        return self._context.node_rank if is_rank else None

    def _plan_mount(self, mount: Json, environment: Mapping[str, str]) -> VolumeMount:
        name = mount["name"]
        if name not in self._sources:
            raise Missing(f'volume mount "{name}" names no volume of the pod')
        if name not in self.volumes:
            try:
                self.volumes[name] = self._plan_volume(self._sources[name])
            except Missing as missing:
                raise Missing(f'MountVolume.SetUp failed for volume "{name}" : {missing}') from missing
        sub_path = mount.get("subPath") or expand(mount.get("subPathExpr") or "", environment)
        if sub_path.startswith("/") or ".." in sub_path.split("/"):
            raise Missing(f'subPath "{sub_path}" of volume mount "{name}" must stay inside the volume')
        kind = self.volumes[name].kind
        return VolumeMount(
            volume=name,
            path=mount["mountPath"],
            sub_path=sub_path,
            # Kubernetes mounts these read-only whatever the pod says.
            read_only=bool(mount.get("readOnly")) or kind is VolumeKind.FILES or self._is_read_only(name),
        )

    def _is_read_only(self, name: str) -> bool:
        claim = self._sources[name].get("persistentVolumeClaim") or {}
        return bool(claim.get("readOnly"))

    def _plan_volume(self, source: Json) -> Volume:
        name = source["name"]
        if (empty := source.get("emptyDir")) is not None:
            in_memory = empty.get("medium") == "Memory"
            return Volume(
                name=name,
                kind=VolumeKind.MEMORY if in_memory else VolumeKind.EMPTY,
                size_bytes=_parse_bytes(empty.get("sizeLimit")),
            )
        if (host := source.get("hostPath")) is not None:
            return Volume(
                name=name, kind=VolumeKind.HOST, path=host["path"], host_type=host.get("type") or ""
            )
        if (claim := source.get("persistentVolumeClaim")) is not None:
            path = self._context.claims.get(claim["claimName"])
            return Volume(name=name, kind=VolumeKind.CLAIM, path=str(path or ""))
        if (projected := source.get("projected")) is not None:
            mode = projected.get("defaultMode", _DEFAULT_MODE)
            files = [file for part in projected.get("sources") or () for file in self._read_files(part, mode)]
        else:
            kind = next((key for key in ("configMap", "secret", "downwardAPI") if key in source), None)
            if kind is None:
                known = "emptyDir, configMap, secret, projected, downwardAPI, hostPath, persistentVolumeClaim"
                given = ", ".join(sorted(set(source) - {"name"})) or "nothing"
                raise Missing(f"a volume of kind {given} cannot be had on this machine; use one of {known}")
            content = dict(source[kind])
            if kind == "secret":
                content["name"] = content.get("secretName", "")
            files = self._read_files({kind: content}, content.get("defaultMode", _DEFAULT_MODE))
        by_path = {file.path: file for file in files}
        return Volume(name=name, kind=VolumeKind.FILES, files=tuple(by_path.values()))

    def _read_files(self, source: Json, mode: int) -> list[File]:
        """Return the files of a configMap, secret or downwardAPI source, `items` and modes as they say."""
        if (downward := source.get("downwardAPI")) is not None:
            return [
                File(path=item["path"], content=self._read_item(item).encode(), mode=item.get("mode", mode))
                for item in downward.get("items") or ()
            ]
        for key, kind, known in (
            ("configMap", "configmap", self._context.config_maps),
            ("secret", "secret", self._context.secrets),
        ):
            if (reference := source.get(key)) is None:
                continue
            name = reference.get("name", "")
            if name not in known:
                if reference.get("optional"):
                    return []
                raise Missing(f'{kind} "{name}" not found')
            content = known[name]
            items = reference.get("items")
            if items is None:
                return [File(path=entry, content=content[entry], mode=mode) for entry in sorted(content)]
            return [
                File(path=item["path"], content=content[item["key"]], mode=item.get("mode", mode))
                for item in _check_items(items, content, kind, reference)
            ]
        raise Missing(f"a projected source of kind {', '.join(sorted(source))} cannot be had on this machine")

    def _read_item(self, item: Json) -> str:
        if (field := item.get("fieldRef")) is not None:
            return read_field(field.get("fieldPath", ""), self._identity)
        return read_resource(item.get("resourceFieldRef") or {}, {}, self._identity.pod, self._machine)


def _check_items(
    items: Iterable[Json], content: Mapping[str, bytes], kind: str, reference: Mapping[str, Any]
) -> Iterable[Json]:
    for item in items:
        if item["key"] in content:
            yield item
        elif not reference.get("optional"):
            raise Missing(f"{kind} references non-existent {kind} key: {item['key']}")


def _find_missing_claim(spec: Json, context: PodContext) -> str | None:
    """Return what a scheduler says of a pod whose claim does not exist, mounted or not."""
    for volume in spec.get("volumes") or ():
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim is not None and claim not in context.claims:
            return f'persistentvolumeclaim "{claim}" not found'
    return None


def _parse_bytes(text: Any) -> int | None:
    if text is None:
        return None
    try:
        return parse_quantity(text).ceil()
    except QuantityError as error:
        raise Missing(f"sizeLimit: {error}") from error
