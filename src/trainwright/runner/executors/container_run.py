"""One container of a pod from its first start to its last end, restarts included."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from trainwright.api.core import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from trainwright.runner.executors.channel import ContainerChannel, ContainerSetup, Outcome
from trainwright.runner.executors.output import ContainerOutput, OutputPump
from trainwright.runner.executors.pod_plan import ContainerPlan
from trainwright.runner.executors.readiness import ReadinessProbe, watch_readiness

START_ERROR: Final = 128
_RESET_AFTER_SECONDS: Final = 600.0


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long a container waits before it starts again: not at all the first time, then twice as long each
    time.

    The defaults are a kubelet's.
    """

    first_seconds: float = 10.0
    most_seconds: float = 300.0

    def pause(self, failures: int) -> float:
        """Return the pause before the restart that follows that many ends in a row."""
        if failures <= 1:
            return 0.0
        return float(min(self.most_seconds, self.first_seconds * 2 ** min(failures - 2, 32)))


class ContainerRun:
    """One container. Changes show in `status`; `changed` is called after each."""

    def __init__(self, plan: ContainerPlan, output: ContainerOutput, changed: Callable[[], None]) -> None:
        self.plan = plan
        self.status = ContainerStatus(
            name=plan.name,
            state=ContainerState(waiting=ContainerStateWaiting(reason="PodInitializing")),
        )
        self._output = output
        self._changed = changed
        self._channel: ContainerChannel | None = None
        self._is_stopping = asyncio.Event()
        self.is_started = asyncio.Event()

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last end; None while it runs or waits."""
        terminated = self.status.state.terminated
        return terminated.exit_code if terminated else None

    def wait_for(self, reason: str, message: str = "") -> None:
        """Show why the container waits."""
        self._show(state=ContainerState(waiting=ContainerStateWaiting(reason=reason, message=message)))

    async def run(
        self,
        build_setup: Callable[[], Awaitable[ContainerSetup | None]],
        restarts: Callable[[int], bool],
        backoff: Backoff,
        probe: ReadinessProbe | None,
        review: Callable[[int], Awaitable[tuple[int, str]]],
    ) -> None:
        """Start the container until `restarts` says, of its exit code, that it is not to start again.

        `build_setup` may wait for what is missing, and returns None when the pod is stopped meanwhile.
        `review` returns, of the exit code of a program, the one that counts and the termination message.
        """
        failures = 0
        try:
            while not self._is_stopping.is_set():
                began = asyncio.get_running_loop().time()
                terminated = await self._run_once(build_setup, probe, review)
                if terminated is None or self._is_stopping.is_set() or not restarts(terminated.exit_code):
                    return
                if asyncio.get_running_loop().time() - began > _RESET_AFTER_SECONDS:
                    failures = 0
                failures += 1
                await self._wait_before_restart(terminated, backoff.pause(failures))
        finally:
            self.is_started.set()

    def stop(self, number: int) -> None:
        """Ask the container to end, and do not start it again."""
        self._is_stopping.set()
        if self._channel is not None:
            self._channel.signal(number)

    def kill(self) -> None:
        """End it at once, and do not start it again."""
        self._is_stopping.set()
        if self._channel is not None:
            self._channel.hang_up()

    def close(self) -> None:
        """Close the log files."""
        self._output.close()

    async def _run_once(
        self,
        build_setup: Callable[[], Awaitable[ContainerSetup | None]],
        probe: ReadinessProbe | None,
        review: Callable[[int], Awaitable[tuple[int, str]]],
    ) -> ContainerStateTerminated | None:
        pump = OutputPump(self._output)
        started_at = _now()
        try:
            setup = await build_setup()
            if setup is None or self._is_stopping.is_set():
                pump.abandon()
                return None
            if not setup.argv:
                raise ProgramMissing(self.plan.name)
            channel = ContainerChannel.open(setup, pump.write_end)
        except (OSError, ValueError, ProgramMissing) as error:
            pump.abandon()
            return self._end(Outcome(exit_code=START_ERROR, start_error=str(error)), started_at, "")
        except BaseException:
            pump.abandon()
            raise
        pump.start()
        self._channel = channel
        watch: asyncio.Task[None] | None = None
        try:
            if await channel.started():
                self._show(
                    state=ContainerState(running=ContainerStateRunning(started_at=started_at)),
                    ready=probe is None,
                )
                self.is_started.set()
                if probe is not None:
                    watch = asyncio.create_task(
                        watch_readiness(probe, channel, lambda ready: self._show(ready=ready)),
                        name=f"readiness {self.plan.name}",
                    )
            outcome = await channel.wait()
        except BaseException:
            await channel.kill()
            raise
        finally:
            self._channel = None
            if watch is not None:
                watch.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watch
            await pump.finish()
        message = ""
        if outcome.start_error is None:
            exit_code, message = await review(outcome.exit_code)
            outcome = Outcome(exit_code=exit_code)
        if not message and outcome.exit_code != 0 and self.plan.falls_back_to_logs:
            message = self._output.build_termination_message()
        return self._end(outcome, started_at, message)

    async def _wait_before_restart(self, terminated: ContainerStateTerminated, pause: float) -> None:
        waiting = ContainerStateWaiting(
            reason="CrashLoopBackOff",
            message=f"back-off {pause:g}s restarting failed container={self.plan.name}",
        )
        self._show(
            state=ContainerState(waiting=waiting) if pause else self.status.state,
            last_state=ContainerState(terminated=terminated),
            restart_count=self.status.restart_count + 1,
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._is_stopping.wait()
        if self._is_stopping.is_set():
            # What it ended with counts, not that it would have started again.
            self._show(state=ContainerState(terminated=terminated))

    def _end(self, outcome: Outcome, started_at: datetime, message: str) -> ContainerStateTerminated:
        if outcome.start_error is not None:
            reason, message = "StartError", outcome.start_error
        else:
            reason = "Error" if outcome.exit_code else "Completed"
        terminated = ContainerStateTerminated(
            exit_code=outcome.exit_code,
            reason=reason,
            message=message,
            started_at=started_at,
            finished_at=_now(),
        )
        self._show(state=ContainerState(terminated=terminated), ready=False)
        return terminated

    def _show(
        self,
        *,
        state: ContainerState | None = None,
        last_state: ContainerState | None = None,
        ready: bool | None = None,
        restart_count: int | None = None,
    ) -> None:
        before = self.status
        self.status = ContainerStatus(
            name=before.name,
            state=state or before.state,
            last_state=last_state or before.last_state,
            ready=before.ready if ready is None else ready,
            restart_count=before.restart_count if restart_count is None else restart_count,
        )
        if self.status != before:
            self._changed()


class ProgramMissing(Exception):
    """The pod leaves the program to its image, and images mean nothing to processes."""

    def __init__(self, container: str) -> None:
        super().__init__(
            f"no command specified for container {container}: what its image would run is not known on this "
            "machine; set command"
        )


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
