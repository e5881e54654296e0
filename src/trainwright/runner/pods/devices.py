"""Which NVIDIA GPUs this machine has, and which job has which, across all jobs of the user.

Listing does not import torch and, where /proc tells, starts no process; the first source that answers
counts: /proc/driver/nvidia, then libnvidia-ml through `nvidia-ml-py` where it is installed, then
`nvidia-smi`. Containers may have /dev/nvidia0 but no /proc entry, so an empty /proc is no answer as long as
/dev says otherwise.

A claim is a lock file per GPU, named by its UUID (MIG devices have nothing else) and held by flock: the
kernel gives it up when the holder dies, however it dies.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec

_SMI_SECONDS: Final = 20.0  # without persistence mode the driver is loaded first


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, or one MIG device; `index` is where CUDA_VISIBLE_DEVICES counts it, None where unknown."""

    uuid: str
    name: str = ""
    index: int | None = None


class NotEnoughDevices(Exception):
    """So many GPUs are not free now, or not there at all; the message says which."""


class DeviceLease:
    """GPUs, by UUID, that this process holds until `release`, or until it dies."""

    def __init__(self, uuids: Sequence[str], locks: Sequence[int]) -> None:
        self.uuids = tuple(uuids)
        self._locks = list(locks)

    def release(self) -> None:
        """Give the GPUs back. A second time it does nothing."""
        while self._locks:
            lock = self._locks.pop()
            # Closing alone would not do while a process that is just being started has the descriptor too.
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def __enter__(self) -> DeviceLease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def list_gpus(environment: Mapping[str, str], root: Path = Path("/")) -> tuple[Gpu, ...]:
    """Return the GPUs that may be used, in the order in which they are to be handed out.

    CUDA_VISIBLE_DEVICES of the environment, where it is set, limits and orders them; it takes indexes,
    UUIDs and unambiguous beginnings of UUIDs, and ends at the first entry that is none, as CUDA reads it.
    `root` is where /proc and /dev are looked for.
    """
    found = _read_proc(root) or (_ask_driver() if any((root / "dev").glob("nvidia[0-9]*")) else ())
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    return found if visible is None else _select_visible(found, visible)


def claim_gpus(locks: Path, gpus: Sequence[Gpu], count: int) -> DeviceLease:
    """Hold `count` of these GPUs; `locks` is the folder of the lock files, made where it is missing.

    Raises NotEnoughDevices.
    """
    locks.mkdir(parents=True, exist_ok=True, mode=0o700)
    held: list[int] = []
    uuids: list[str] = []
    for gpu in gpus:
        if len(uuids) == count:
            break
        fd = os.open(locks / re.sub(r"[^\w.-]", "_", gpu.uuid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            continue
        held.append(fd)
        uuids.append(gpu.uuid)
    lease = DeviceLease(uuids, held)
    if len(uuids) < count:
        lease.release()
        raise NotEnoughDevices(_explain_shortage(count, len(gpus), len(uuids)))
    return lease


def _explain_shortage(count: int, present: int, free: int) -> str:
    if count > present:
        return f"{count} GPUs wanted, but this machine has {present} to give; ask for fewer"
    return f"{count} GPUs wanted, {free} of {present} are free: others are in use by other jobs of this user"


def _read_proc(root: Path) -> tuple[Gpu, ...]:
    """Return what /proc/driver/nvidia/gpus/<bus address>/information says, in the order of device minors."""
    gpus: list[Gpu] = []
    for file in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        try:
            fields = dict(re.findall(r"^([^:\n]+):[ \t]*(.*?)[ \t]*$", file.read_text(), flags=re.M))
        except OSError:
            continue
        # "GPU-????????-..." until the driver has initialised the device.
        uuid = fields.get("GPU UUID", "")
        if not uuid or "?" in uuid or fields.get("GPU Excluded") == "Yes":
            continue
        minor = fields.get("Device Minor", "")
        gpus.append(
            Gpu(uuid=uuid, name=fields.get("Model", ""), index=int(minor) if minor.isdigit() else None)
        )
    # /proc lists the machine's GPUs, even in a container that was given only some of their devices.
    present = {entry.name for entry in (root / "dev").glob("nvidia[0-9]*")}
    gpus = [gpu for gpu in gpus if gpu.index is None or f"nvidia{gpu.index}" in present]
    return tuple(Gpu(uuid=gpu.uuid, name=gpu.name, index=position) for position, gpu in enumerate(gpus))


def _ask_driver() -> tuple[Gpu, ...]:
    return _ask_library() or _ask_nvidia_smi()


def _ask_library() -> tuple[Gpu, ...]:
    try:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        gpus: list[Gpu] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
            gpus.append(Gpu(uuid=uuid, name=name, index=index))
        return tuple(gpus)
    except pynvml.NVMLError:
        return ()
    finally:
        pynvml.nvmlShutdown()


def _ask_nvidia_smi() -> tuple[Gpu, ...]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    command = [program, "--query-gpu=index,uuid,name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return parse_smi(answer.stdout)


def parse_smi(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs of `nvidia-smi --query-gpu=index,uuid,name --format=csv,noheader`."""
    gpus: list[Gpu] = []
    for line in text.splitlines():
        index, _, rest = line.partition(",")
        uuid, _, name = rest.partition(",")
        if index.strip().isdigit() and uuid.strip():
            gpus.append(Gpu(uuid=uuid.strip(), name=name.strip(), index=int(index)))
    return tuple(gpus)


def _select_visible(found: Sequence[Gpu], visible: str) -> tuple[Gpu, ...]:
    chosen: list[Gpu] = []
    for entry in filter(None, (part.strip() for part in visible.split(","))):
        if entry.startswith("MIG-"):  # no listing of ours shows these
            matches = [Gpu(uuid=entry)]
        elif entry.isdigit():
            matches = [gpu for gpu in found if gpu.index == int(entry)]
        else:
            matches = [gpu for gpu in found if gpu.uuid.startswith(entry)]
        if len(matches) != 1 or matches[0] in chosen:
            break
        chosen += matches
    return tuple(chosen)
