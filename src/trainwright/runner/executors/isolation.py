"""Which namespaces the processes of a pod get. What this machine has to give is found out in `trial`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from trainwright.errors import UsageError

PID_NAMESPACE_ENV: Final = "TRAINWRIGHT_PID_NAMESPACE"


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """Which namespaces a container gets.

    `mount`: its own mounts and host name, so volumes and addresses are as on a cluster.
    `user`: a user namespace around them, which a plain user needs to make them.
    `pid`: its own processes, which the kernel ends with its first one. Without, a subreaper ends them.
    """

    mount: bool = False
    user: bool = False
    pid: bool = False


PROCESSES = Isolation()


def separates_pids(isolation: Isolation, environment: Mapping[str, str], *, shares_gpus: bool) -> bool:
    """Say whether a pod gets a PID namespace; TRAINWRIGHT_PID_NAMESPACE=auto|yes|no has the last word.

    Pods of one job that have GPUs share the machine's: CUDA IPC, by which NCCL moves data between the GPUs
    of one machine, needs to see the other process. Raises UsageError for another value.
    """
    wanted = environment.get(PID_NAMESPACE_ENV, "auto")
    if wanted not in ("auto", "yes", "no"):
        raise UsageError(f"{PID_NAMESPACE_ENV}={wanted!r}: use auto, yes or no")
    if wanted == "auto":
        return isolation.pid and not shares_gpus
    return isolation.pid and wanted == "yes"
