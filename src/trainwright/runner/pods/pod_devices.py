"""Hands accelerators to pods, all that one asks for or none.

What is free is known to all supervisors of this user through `devices`; here is what a pod asks for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwright.api.meta import Json
from trainwright.gang.demand import sum_pod_requests
from trainwright.runner.pods.devices import DeviceLease, Gpu, claim_gpus, list_gpus
from trainwright.template.resources import DEFAULT_ACCELERATORS


class PodDevices:
    """The accelerators of this machine, for the pods of one supervisor."""

    def __init__(
        self, state_root: Path, environment: Mapping[str, str], gpus: Sequence[Gpu] | None = None
    ) -> None:
        """Look for GPUs when the first pod asks for one; `gpus` are those that are known to be there."""
        self._locks = state_root / "devices"
        self._environment = environment
        self._gpus = gpus

    async def claim(self, pod_spec: Json) -> DeviceLease:
        """Return what the pod asks for, which is nothing for most. Raises NotEnoughDevices."""
        count = count_devices(pod_spec)
        if count == 0:
            return DeviceLease((), ())
        return claim_gpus(self._locks, await self._list(), count)

    async def _list(self) -> Sequence[Gpu]:
        if self._gpus is None:
            # In a thread: where the driver has to be asked, it may have to be loaded first.
            self._gpus = await asyncio.to_thread(list_gpus, self._environment)
        return self._gpus


def count_devices(pod_spec: Json) -> int:
    """Return how many GPUs a pod asks for, counted as a scheduler does."""
    return sum(amount.ceil() for name, amount in sum_pod_requests(pod_spec).items() if is_gpu(name))


def is_gpu(resource: str) -> bool:
    """Say whether a resource's name is that of GPUs or of parts of them (MIG), not of memory of one."""
    _, slash, name = resource.partition("/")
    is_one = "gpu" in name or name.startswith("mig-")
    return bool(slash) and is_one and DEFAULT_ACCELERATORS.match(resource)
