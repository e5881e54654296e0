"""The contract between the runner, which decides which pods should run, and what runs a pod.

The runner hands an executor a whole core/v1 Pod and all that the pod needs from outside; the executor makes
processes (or containers) of it and reports a core/v1 PodStatus, as a kubelet would. Executors never touch the
store.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from trainwright.api.core import PodStatus
from trainwright.api.meta import Json


class PodContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod needs from outside its own object.

    `folder` is the pod's own folder in the state directory (`cluster.local.paths`), for logs and volumes;
    `shared_folder` one that all pods of the job can reach, where processes of one start some in another.
    `mount_points` is one by which all pods on this machine know of mount points that they share.
    `host_names` are those of all pods of the JobSet, in order (`demo-node-0-0`), `subdomain` their domain.
    `config_maps` and `secrets` map name -> key -> content, for those that the pod names and that exist.
    `claims` maps the name of a PersistentVolumeClaim to the folder that stands for it.
    `ports` maps a port written in the pod (29500) to the free one that this job has on this machine;
    `host_ports` does for pods, by host name, that have one of their own: `HOST:29500` is theirs.
    `environment` is the environment of whoever submitted or resumed the job; containers inherit it.
    `working_directory` is where containers without `workingDir` start.
    `node_rank` says which training node the pod is; None where it is part of another step.
    `devices` are the accelerators of this pod by UUID; empty where it has none.
    `extra_environment` is added to every container (progress URL and the like) but gives way to its own.
    """

    folder: Path
    shared_folder: Path
    mount_points: Path
    host_names: tuple[str, ...]
    subdomain: str
    working_directory: Path
    environment: Mapping[str, str]
    config_maps: Mapping[str, Mapping[str, bytes]] = msgspec.field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, bytes]] = msgspec.field(default_factory=dict)
    claims: Mapping[str, Path] = msgspec.field(default_factory=dict)
    ports: Mapping[int, int] = msgspec.field(default_factory=dict)
    host_ports: Mapping[str, Mapping[int, int]] = msgspec.field(default_factory=dict)
    node_rank: int | None = None
    devices: tuple[str, ...] = ()
    extra_environment: Mapping[str, str] = msgspec.field(default_factory=dict)


class PodRun(Protocol):
    """One pod that was started."""

    @property
    def status(self) -> PodStatus:
        """How the pod does at this moment."""
        ...

    async def changed(self) -> PodStatus:
        """Wait until the status differs from what the last call returned, and return it.

        After Succeeded or Failed it is final: no process of the pod is left.
        """
        ...

    async def stop(self, grace_seconds: float) -> None:
        """SIGTERM, the grace period, then SIGKILL to all that is left; returns when nothing is left."""
        ...


class Executor(Protocol):
    """Makes pods run."""

    async def start(self, pod: Json, context: PodContext) -> PodRun:
        """Start the pod. What cannot start (no such program, no such ConfigMap) shows in its status."""
        ...
