"""Pods and contexts for the tests of the process executor, and ways to wait for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainwright.api.core import PodStatus
from trainwright.runner.executor import PodContext, PodRun
from trainwright.runner.executors.process import ProcessExecutor

PATIENCE_SECONDS = 60.0
# Of those that import a framework in several processes; pytest's own limit for such a test is 300 s.
TRAINING_SECONDS = 240.0


def shell(script: str, **fields: Any) -> dict[str, Any]:
    """Return a container that runs a shell script."""
    return {"name": "node", "image": "ignored", "command": ["sh", "-c", script], **fields}


def pod(*containers: dict[str, Any], name: str = "demo-node-0-0-abcde", **spec: Any) -> dict[str, Any]:
    """Return a pod of the first rank of the job `demo`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "labels": {"app": "demo"},
            "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
        },
        "spec": {
            "restartPolicy": "Never",
            "hostname": name.rsplit("-", 1)[0],
            "containers": list(containers),
            **spec,
        },
    }


def context(folder: Path, **fields: Any) -> PodContext:
    """Return the context of a pod of a job of two pods."""
    defaults: dict[str, Any] = {
        "folder": folder,
        "shared_folder": folder.parent / "shared",
        "mount_points": folder.parent / "mount-points",
        "host_names": ("demo-node-0-0", "demo-node-0-1"),
        "subdomain": "demo",
        "working_directory": folder.parent,
        "environment": {"PATH": os.environ["PATH"], "HOME": str(folder.parent)},
    }
    return PodContext(**{**defaults, **fields})


async def until(
    run: PodRun, holds: Callable[[PodStatus], bool], seconds: float = PATIENCE_SECONDS
) -> PodStatus:
    """Wait until the status is so, for a bounded time."""
    async with asyncio.timeout(seconds):
        status = await run.changed()
        while not holds(status):
            if status.phase in ("Succeeded", "Failed"):
                raise AssertionError(f"ended otherwise: {status}")
            status = await run.changed()
    return status


async def end(run: PodRun, seconds: float = PATIENCE_SECONDS) -> PodStatus:
    """Wait for the end."""
    return await until(run, lambda status: status.phase in ("Succeeded", "Failed"), seconds)


async def complete(executor: ProcessExecutor, body: dict[str, Any], surroundings: PodContext) -> PodStatus:
    """Run a pod to its end."""
    return await end(await executor.start(body, surroundings))


def read_log(folder: Path, container: str = "node") -> str:
    """Return what a container printed."""
    return (folder / f"{container}.log").read_text()


async def until_exists(path: Path) -> str:
    """Wait until a file has content, for a bounded time; return it."""
    await until_true(lambda: read_text(path) != "")
    return read_text(path)


def read_text(path: Path) -> str:
    """Return what a file has, nothing where there is none."""
    return path.read_text() if path.exists() else ""


async def until_true(holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for something that only looking again shows, for a bounded time."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 (other processes set no events of ours)
            await asyncio.sleep(0.005)


def list_processes(marker: str) -> list[int]:
    """Return the processes whose command line has the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marker.encode() in command and state not in "ZX":
                found.append(int(entry.name))
    return found


def terminated(status: PodStatus, number: int = 0) -> Any:
    """Return how a container of the pod ended, None where it has not."""
    return status.container_statuses[number].state.terminated
