"""An executor that runs each container's command as it is: real processes, no isolation, no restarts.

Its processes outlive it, as those of an executor do that cannot tie them to its own life.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.lab import is_process_alive
from trainwright.api.core import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStatus,
    PodStatus,
)
from trainwright.runner.executor import PodContext, PodRun


class ShellRun:
    """One process group."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process
        self._began = datetime.now(UTC)
        state = ContainerState(running=ContainerStateRunning(started_at=self._began))
        self._status = PodStatus(
            phase="Running", container_statuses=[ContainerStatus(name=name, ready=True, state=state)]
        )

    @property
    def status(self) -> PodStatus:
        return self._status

    async def changed(self) -> PodStatus:
        code = await self._process.wait()
        self._kill()
        code = 128 - code if code < 0 else code
        end = ContainerStateTerminated(
            exit_code=code,
            reason="Completed" if code == 0 else "Error",
            started_at=self._began,
            finished_at=datetime.now(UTC),
        )
        self._status = PodStatus(
            phase="Failed" if code else "Succeeded",
            container_statuses=[ContainerStatus(name=self._name, state=ContainerState(terminated=end))],
        )
        return self._status

    async def stop(self, grace_seconds: float) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                await self._process.wait()
        except TimeoutError:
            self._kill()
        await self._process.wait()
        self._kill()
        while any(is_process_alive(pid) for pid in list_group(self._process.pid)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def list_group(group: int) -> list[int]:
    """Return the processes of a process group."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(process.name)) == group:
                found.append(int(process.name))
    return found


class ShellExecutor:
    """Starts the first container of a pod in a session of its own."""

    run_class = ShellRun

    async def start(self, pod: dict[str, Any], context: PodContext) -> PodRun:
        container = pod["spec"]["containers"][0]
        context.folder.mkdir(parents=True, exist_ok=True)
        own = {entry["name"]: entry["value"] for entry in container.get("env") or () if "value" in entry}
        rank = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
        environment = {
            **context.environment,
            **context.extra_environment,
            **own,
            "JOB_COMPLETION_INDEX": rank,
            "MASTER_PORT": str(context.ports[29500]),
        }
        with (context.folder / "node.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *container["command"],
                stdout=log,
                stderr=log,
                stdin=asyncio.subprocess.DEVNULL,
                cwd=context.working_directory,
                env=environment,
                start_new_session=True,
            )
        return self.run_class(container["name"], process)
