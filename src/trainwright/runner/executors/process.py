"""Runs pods as processes of this machine: the kubelet's part of a pod's life.

Init containers one after the other, sidecars from their turn on, then the containers together; restarts in
place; what a PodStatus says meanwhile. How a container is made is in `channel` and `pod_init`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from trainwright.api.core import ContainerStatus, PodCondition, PodStatus
from trainwright.api.meta import Json
from trainwright.runner.executor import PodContext
from trainwright.runner.executors.channel import ContainerSetup
from trainwright.runner.executors.container_run import Backoff, ContainerRun
from trainwright.runner.executors.isolation import Isolation, separates_pids
from trainwright.runner.executors.mpi_pod import RemoteStart
from trainwright.runner.executors.output import ContainerOutput, Rotation
from trainwright.runner.executors.pod_env import Machine, find_rendezvous_hosts
from trainwright.runner.executors.pod_folder import CannotStart, PodFolder
from trainwright.runner.executors.pod_plan import CONFIG_ERROR, ContainerPlan, PodPlan, plan_pod
from trainwright.runner.executors.readiness import ReadinessProbe, parse_probe
from trainwright.runner.executors.trial import choose_isolation

_FINAL: Final = frozenset({"Succeeded", "Failed"})
_RESOLVE_SECONDS: Final = 5.0


class ProcessExecutor:
    """Makes processes of pods. What kind of isolation this machine gives is found out at the first pod.

    `environment` holds the settings of this program itself (TRAINWRIGHT_ISOLATION and the like).
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        rotation: Rotation = Rotation(),  # noqa: B008 (immutable)
        backoff: Backoff = Backoff(),  # noqa: B008 (immutable)
        retry_seconds: float = 5.0,
    ) -> None:
        self._environment = os.environ if environment is None else environment
        self._rotation = rotation
        self._backoff = backoff
        self._retry_seconds = retry_seconds
        self._isolation: asyncio.Task[Isolation] | None = None

    async def start(self, pod: Json, context: PodContext) -> ProcessPodRun:
        """Start the pod. What cannot start shows in its status.

        Raises UsageError for a setting that cannot be met.
        """
        isolation = await self._choose_isolation()
        shares_gpus = bool(context.devices) and len(context.host_names) > 1
        pid = separates_pids(isolation, self._environment, shares_gpus=shares_gpus)
        isolation = msgspec.structs.replace(isolation, pid=pid)
        plan = plan_pod(pod, context, _describe_machine(isolation))
        run = ProcessPodRun(plan, context, isolation, self._rotation)
        await run.begin(self._backoff, self._retry_seconds)
        return run

    async def _choose_isolation(self) -> Isolation:
        if self._isolation is None:
            self._isolation = asyncio.create_task(
                choose_isolation(self._environment, os.geteuid()), name="choose isolation"
            )
        return await asyncio.shield(self._isolation)


class ProcessPodRun:
    """One pod that was started."""

    def __init__(self, plan: PodPlan, context: PodContext, isolation: Isolation, rotation: Rotation) -> None:
        self._plan = plan
        self._context = context
        self._folder = PodFolder(plan, context, isolation)
        self._own_names = isolation.mount
        self._wake = asyncio.Event()
        self._containers = {
            container.name: ContainerRun(
                container,
                ContainerOutput(
                    context.folder, container.name, rotation, container.rank_base, container.processes
                ),
                self._update,
            )
            for container in (*plan.init_containers, *plan.containers)
        }
        self._inits = [self._containers[container.name] for container in plan.init_containers]
        self._mains = [self._containers[container.name] for container in plan.containers]
        self._phase = "Pending"
        self._is_initialized = not plan.init_containers
        self._reason = ""
        self._message = ""
        self._start_time = _now()
        self._stopping = asyncio.Event()
        self._settled = asyncio.Event()
        self._status = PodStatus()
        self._reported: PodStatus | None = None
        self._task: asyncio.Task[None] | None = None
        self._update()

    @property
    def status(self) -> PodStatus:
        """How the pod does at this moment."""
        return self._status

    async def changed(self) -> PodStatus:
        """Wait until the status differs from what the last call returned, and return it.

        The first call returns at once, and so does every call after the end.
        """
        while self._status == self._reported and self._status.phase not in _FINAL:
            if self._task is not None and self._task.done():
                self._task.result()  # a bug of ours: it must not look like a pod that takes its time
            self._wake.clear()
            await self._wake.wait()
        self._reported = self._status
        return self._status

    async def begin(self, backoff: Backoff, retry_seconds: float) -> None:
        """Start; return when the first container runs, waits for something, or could not be started."""
        self._task = asyncio.create_task(self._live(backoff, retry_seconds), name=f"pod {self._plan.name}")
        self._task.add_done_callback(lambda _: self._wake.set())
        settled = asyncio.create_task(self._settled.wait(), name="pod settled")
        try:
            await asyncio.wait({self._task, settled}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait({self._task})
            raise
        finally:
            settled.cancel()

    async def stop(self, grace_seconds: float) -> None:
        """SIGTERM, the grace period, then SIGKILL to all that is left; returns when nothing is left.

        A second call may shorten the grace period of the first.
        """
        assert self._task is not None  # noqa: S101 (`begin` was called by the executor)
        if not self._stopping.is_set():
            self._stopping.set()
            for container in self._containers.values():
                if not container.plan.is_sidecar:
                    container.stop(signal.SIGTERM)
        done, _ = await asyncio.wait({self._task}, timeout=max(0.0, grace_seconds))
        if not done:
            for container in self._containers.values():
                container.kill()
        await asyncio.wait({self._task})

    async def _live(self, backoff: Backoff, retry_seconds: float) -> None:
        """The whole life of the pod."""
        sidecars: list[asyncio.Task[None]] = []
        deadline: asyncio.Task[None] | None = None

        def run(container: ContainerRun, restarts: Callable[[int], bool]) -> asyncio.Task[None]:
            plan = container.plan
            if plan.remote_start is RemoteStart.SERVER:
                probe: ReadinessProbe | None = self._folder.remote_hosts.build_probe()
            else:
                ports = {**self._context.ports, **self._context.host_ports.get(self._plan.host_name, {})}
                probe = parse_probe(plan.readiness_probe, self._plan.address, plan.ports, ports)

            async def build_setup() -> ContainerSetup | None:
                return await self._build_setup(container, retry_seconds)

            return asyncio.create_task(
                container.run(
                    build_setup,
                    restarts,
                    backoff,
                    probe,
                    lambda exit_code: self._review(plan, exit_code),
                ),
                name=f"container {plan.name}",
            )

        try:
            if self._plan.unschedulable is not None:
                self._settled.set()
                await self._stopping.wait()
                self._finish("Failed")
                return
            if not await self._prepare():
                return
            if self._plan.active_deadline_seconds is not None:
                deadline = asyncio.create_task(
                    self._expire(self._plan.active_deadline_seconds), name=f"deadline {self._plan.name}"
                )
            if await self._run_inits(run, sidecars):
                self._phase = "Running"
                self._is_initialized = True
                for container in self._mains:
                    container.wait_for("ContainerCreating")
                await _gather([run(container, self._restarts_main) for container in self._mains])
        finally:
            if deadline is not None:
                deadline.cancel()
            await self._end(sidecars)

    async def _expire(self, seconds: float) -> None:
        """Stop the pod when it has been active for so long."""
        await asyncio.sleep(seconds)
        self._reason = "DeadlineExceeded"
        self._message = "Pod was active on the node longer than the specified deadline"
        await self.stop(self._plan.grace_seconds)

    async def _run_inits(
        self,
        run: Callable[[ContainerRun, Callable[[int], bool]], asyncio.Task[None]],
        sidecars: list[asyncio.Task[None]],
    ) -> bool:
        """Run the init containers in order and start the sidecars; return whether the others may follow."""
        for container in self._inits:
            if self._stopping.is_set():
                return False
            container.wait_for("ContainerCreating")
            if container.plan.is_sidecar:
                sidecars.append(run(container, lambda _: True))
                await container.is_started.wait()
                continue
            await _gather([run(container, self._restarts_init)])
            if container.exit_code != 0:
                return False
        return not self._stopping.is_set()

    def _restarts_init(self, exit_code: int) -> bool:
        return exit_code != 0 and self._plan.restart_policy != "Never"

    def _restarts_main(self, exit_code: int) -> bool:
        policy = self._plan.restart_policy
        return policy == "Always" or (policy == "OnFailure" and exit_code != 0)

    async def _review(self, plan: ContainerPlan, exit_code: int) -> tuple[int, str]:
        """Return the exit code that counts, and what the container said at its end."""
        if plan.remote_start is RemoteStart.CLIENT:
            find_fault = self._folder.remote_hosts.find_fault
            fault = await asyncio.to_thread(find_fault, plan.environment, exit_code)
            if fault is not None:
                return exit_code or 1, fault
        return exit_code, self._folder.read_termination_file(plan)

    async def _build_setup(self, container: ContainerRun, retry_seconds: float) -> ContainerSetup | None:
        """Return how to start the container; as long as something is in the way, show it and look again.

        None when the pod is stopped meanwhile.
        """
        while True:
            try:
                await self._check_rendezvous(container)
                return await asyncio.to_thread(self._folder.build_setup, container.plan)
            except CannotStart as obstacle:
                container.wait_for(obstacle.obstacle.reason, obstacle.obstacle.message)
            self._settled.set()
            try:
                async with asyncio.timeout(retry_seconds):
                    await self._stopping.wait()
                return None
            except TimeoutError:
                continue

    async def _check_rendezvous(self, container: ContainerRun) -> None:
        """See that the rendezvous address leads somewhere: torchrun would only warn, and wait for minutes."""
        for variable, host in find_rendezvous_hosts(container.plan.environment).items():
            if (self._own_names and host in self._plan.names) or _is_address(host):
                continue
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(_RESOLVE_SECONDS):
                    await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError, TimeoutError) as error:
                raise CannotStart(
                    CONFIG_ERROR,
                    f"the rendezvous address {host!r} ({variable}) does not resolve on this machine "
                    f"({error or 'no answer in time'}); use the address of a pod of this job, such as "
                    f"{min(self._plan.names, default=self._plan.host_name)}",
                ) from error

    async def _prepare(self) -> bool:
        try:
            await asyncio.to_thread(self._folder.prepare)
        except CannotStart as obstacle:
            message = obstacle.obstacle.message
        except OSError as error:
            message = f"{error.filename or self._folder.path}: {error.strerror}"
        else:
            return True
        self._reason, self._message = "CreatePodSandboxError", message
        return False

    async def _end(self, sidecars: list[asyncio.Task[None]]) -> None:
        """End what still runs, remove what was made, and say how the pod ended."""
        for container in self._containers.values():
            if container.plan.is_sidecar:
                container.stop(signal.SIGTERM)
        if sidecars:
            # A stop has its own idea of how long to wait.
            await asyncio.wait(
                sidecars, timeout=None if self._stopping.is_set() else self._plan.grace_seconds
            )
            for container in self._inits:
                container.kill()
            await asyncio.wait(sidecars)
        for container in self._containers.values():
            container.close()
        await asyncio.to_thread(self._folder.remove)
        codes = [container.exit_code for container in self._mains]
        has_succeeded = all(code == 0 for code in codes) and not self._reason
        self._finish("Succeeded" if has_succeeded else "Failed")

    def _finish(self, phase: str) -> None:
        self._phase = phase
        self._update()
        self._settled.set()

    def _update(self) -> None:
        """Work out the status anew, and wake who waits for it."""
        inits = [container.status for container in self._inits]
        mains = [container.status for container in self._mains]
        is_scheduled = self._plan.unschedulable is None
        self._status = PodStatus(
            phase=self._find_phase(mains),
            reason=self._reason,
            message=self._message,
            conditions=self._build_conditions(mains),
            init_container_statuses=inits or None if is_scheduled else None,
            container_statuses=mains if is_scheduled else None,
            start_time=self._start_time if is_scheduled else None,
        )
        if any(map(_is_settled, (*inits, *mains))):
            self._settled.set()
        self._wake.set()

    def _find_phase(self, mains: list[ContainerStatus]) -> str:
        """Return the phase as a kubelet has it: a container that never ran yet keeps the pod Pending."""
        if self._phase == "Running" and any(
            status.state.waiting and not status.last_state.terminated for status in mains
        ):
            return "Pending"
        return self._phase

    def _build_conditions(self, mains: list[ContainerStatus]) -> list[PodCondition]:
        if self._plan.unschedulable is not None:
            facts = [("PodScheduled", False, "Unschedulable", self._plan.unschedulable)]
        else:
            counted = [*(run.status for run in self._inits if run.plan.is_sidecar), *mains]
            unready = [status.name for status in counted if not status.ready]
            done = self._phase == "Succeeded"
            why = "PodCompleted" if done else "ContainersNotReady"
            text = "" if done or not unready else f"containers with unready status: [{' '.join(unready)}]"
            facts = [
                ("PodScheduled", True, "", ""),
                (
                    "Initialized",
                    self._is_initialized,
                    "" if self._is_initialized else "ContainersNotInitialized",
                    "",
                ),
                ("ContainersReady", not unready, why if unready else "", text),
                ("Ready", not unready, why if unready else "", text),
            ]
        known = {condition.type: condition for condition in self._status.conditions or ()}
        return [_build_condition(known.get(fact[0]), *fact) for fact in facts]


def _is_settled(status: ContainerStatus) -> bool:
    """Say whether it is known how the start of the container went."""
    waiting = status.state.waiting
    return waiting is None or bool(waiting.message)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _gather(tasks: list[asyncio.Task[None]]) -> None:
    """Wait for all; when cancelled, or when one fails, see the others to their end."""
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _build_condition(
    known: PodCondition | None,
    kind: str,
    holds: bool,
    reason: str,
    message: str,
) -> PodCondition:
    status = "True" if holds else "False"
    since = known.last_transition_time if known is not None and known.status == status else _now()
    return PodCondition(type=kind, status=status, reason=reason, message=message, last_transition_time=since)


def _describe_machine(isolation: Isolation) -> Machine:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    known = "SC_PHYS_PAGES" in os.sysconf_names  # not on macOS
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else 0
    return Machine(
        cpus=cpus,
        memory_bytes=max(0, memory_bytes),
        own_names=isolation.mount,
        is_linux=sys.platform == "linux",
        is_root=os.geteuid() == 0,
    )


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
