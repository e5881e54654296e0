"""Makes the pods in the store and the processes of this machine agree: starts, stops, reports.

One `sync` compares the two and does what is missing; it is the only one that writes about pods. What
happens to a pod in between (it starts, a container ends) is noted in memory, and `wake` asks for another
`sync`.

    in the store                  here              done
    waits                         nothing           its start is written down, then it starts
    waits, host name in use       nothing           nothing yet: the old one of that rank still ends
    waits, no accelerator free    nothing           its status says so; tried again later
    any                           other status      the status is written
    waits for a ConfigMap         one came          started anew, with it
    marked as deleted             runs              SIGTERM, grace period, SIGKILL
    marked as deleted             nothing           removed from the store
    gone                          runs              stopped as if it were marked
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from trainwright.api.core import PodCondition, PodStatus
from trainwright.api.encoding import build_json, parse_object
from trainwright.api.meta import Json, ObjectKey, truncate_to_seconds
from trainwright.cluster.local.paths import JobPaths
from trainwright.cluster.port import Cluster
from trainwright.errors import Conflict, NotFound
from trainwright.runner.controllers.shell import Clock, build_status_merge
from trainwright.runner.executor import Executor, PodContext, PodRun
from trainwright.runner.executors.leftovers import ProcessRecord
from trainwright.runner.pods.devices import NotEnoughDevices
from trainwright.runner.pods.pod_context import PodContexts
from trainwright.runner.pods.pod_devices import PodDevices
from trainwright.runner.supervisor_log import SupervisorLog

DEFAULT_GRACE_SECONDS: Final = 30.0
DEVICE_RETRY_SECONDS: Final = 2.0

_FINAL: Final = frozenset({"Succeeded", "Failed"})
# What a container waits with while a ConfigMap or Secret is missing, in its environment or in a volume.
_CONFIGURATION: Final = frozenset({"CreateContainerConfigError", "ContainerCreating"})


class PodTools(msgspec.Struct, frozen=True):
    """What pods are run with."""

    executor: Executor
    contexts: PodContexts
    devices: PodDevices
    log: SupervisorLog
    clock: Clock


class Kubelet:
    """Runs the pods of one TrainJob by an executor."""

    def __init__(self, cluster: Cluster, job: JobPaths, tools: PodTools, wake: Callable[[], None]) -> None:
        self._cluster = cluster
        self._job = job
        self._tools = tools
        self._wake = wake
        self._slots: dict[str, _Slot] = {}
        self._record = ProcessRecord(job)
        self._is_hurried = False

    @property
    def is_idle(self) -> bool:
        """Whether no pod has a process."""
        return not self._slots

    async def sync(self, pods: Sequence[Json], tasks: asyncio.TaskGroup) -> Sync:
        """Do what is missing between the pods, as just read, and their processes."""
        result = Sync()
        present = {pod["metadata"]["uid"] for pod in pods}
        for uid, slot in list(self._slots.items()):
            if uid not in present:
                if slot.has_ended:
                    del self._slots[uid]
                else:
                    self._stop(slot, tasks)
        for pod in pods:
            slot_or_none = self._slots.get(pod["metadata"]["uid"])
            if slot_or_none is not None:
                wrote = await self._sync_known(pod, slot_or_none, tasks)
                result = result.also(wrote=wrote)
            elif pod["metadata"].get("deletionTimestamp"):
                result = result.also(wrote=await self._remove(pod))
            elif _get_status(pod).phase not in _FINAL:
                result = result.merge(await self._start(pod, tasks))
        return result

    async def report(self, pods: Sequence[Json]) -> None:
        """Write how the pods do, and start nothing."""
        for pod in pods:
            slot = self._slots.get(pod["metadata"]["uid"])
            if slot is not None:
                await self._write_status(pod, slot.status)
        self._slots = {uid: slot for uid, slot in self._slots.items() if not slot.has_ended}

    def stop_all(self, tasks: asyncio.TaskGroup) -> None:
        """Begin to stop every pod."""
        for slot in self._slots.values():
            self._stop(slot, tasks)

    def hurry(self, tasks: asyncio.TaskGroup) -> None:
        """Give up grace periods: what is being stopped, or will be, is killed at once."""
        self._is_hurried = True
        for slot in self._slots.values():
            if slot.is_stopping and not slot.has_ended:
                tasks.create_task(slot.end(0.0), name=f"kill {slot.key}")

    async def _start(self, pod: Json, tasks: asyncio.TaskGroup) -> Sync:
        host = pod["spec"].get("hostname") or pod["metadata"]["name"]
        if any(slot.host == host and not slot.has_ended for slot in self._slots.values()):
            return Sync()
        known, now = _get_status(pod), self._tools.clock()
        try:
            lease = await self._tools.devices.claim(pod["spec"])
        except NotEnoughDevices as error:
            condition = _build_condition("False", f"0/1 machines are available: {error}", now, known)
            status = msgspec.structs.replace(known, conditions=[condition])
            wrote = await self._write_status(pod, status)
            return Sync(wrote=wrote, requeue_after=DEVICE_RETRY_SECONDS)
        status = PodStatus(
            start_time=truncate_to_seconds(now), conditions=[_build_condition("True", "", now, known)]
        )
        # Written before anything runs: after a crash in between, nothing is unaccounted for.
        wrote = await self._write_status(pod, status)
        slot = _Slot(pod, host, status, self._tools.log, self._wake)
        self._slots[pod["metadata"]["uid"]] = slot

        async def follow() -> None:
            try:
                await slot.follow(self._tools, self._job, lease.uuids, self._record)
            finally:
                lease.release()

        slot.task = tasks.create_task(follow(), name=f"pod {slot.key}")
        self._tools.log.info("starting pod", pod=slot.key.name, devices=list(lease.uuids))
        return Sync(wrote=wrote)

    async def _sync_known(self, pod: Json, slot: _Slot, tasks: asyncio.TaskGroup) -> bool:
        if pod["metadata"].get("deletionTimestamp"):
            if not slot.has_ended:
                self._stop(slot, tasks)
                return False
            del self._slots[pod["metadata"]["uid"]]
            return await self._remove(pod)
        if not slot.is_stopping and await slot.has_stale_context(self._tools.contexts, self._job):
            # What it waited for is there: it is started anew, with that.
            slot.is_replaced = True
            self._stop(slot, tasks)
        if slot.is_replaced:
            if slot.has_ended:
                del self._slots[pod["metadata"]["uid"]]
                self._wake()
            return False
        wrote = await self._write_status(pod, slot.status)
        if slot.has_ended:
            del self._slots[pod["metadata"]["uid"]]
        return wrote

    def _stop(self, slot: _Slot, tasks: asyncio.TaskGroup) -> None:
        if slot.is_stopping or slot.has_ended:
            return
        slot.is_stopping = True
        grace = slot.pod["spec"].get("terminationGracePeriodSeconds")
        seconds = DEFAULT_GRACE_SECONDS if grace is None else float(grace)
        self._tools.log.info("stopping pod", pod=slot.key.name)
        tasks.create_task(slot.end(0.0 if self._is_hurried else seconds), name=f"stop {slot.key}")

    async def _remove(self, pod: Json) -> bool:
        try:
            await self._cluster.delete(_get_key(pod), pod["metadata"]["uid"])
        except (NotFound, Conflict):
            return False
        return True

    async def _write_status(self, pod: Json, status: PodStatus) -> bool:
        before: Json = pod.get("status") or {}
        merge = build_status_merge(before, build_json(status))
        if not merge:
            return False
        try:
            await self._cluster.patch_status(
                _get_key(pod), {"metadata": {"uid": pod["metadata"]["uid"]}, "status": merge}
            )
        except (NotFound, Conflict):
            return False
        return True


class Sync(msgspec.Struct, frozen=True):
    """What one `sync` came to."""

    wrote: bool = False
    requeue_after: float | None = None

    def also(self, *, wrote: bool) -> Sync:
        """Return the same, with one more write if there was one."""
        return Sync(self.wrote or wrote, self.requeue_after)

    def merge(self, other: Sync) -> Sync:
        """Return what both came to."""
        pauses = [pause for pause in (self.requeue_after, other.requeue_after) if pause is not None]
        return Sync(self.wrote or other.wrote, min(pauses, default=None))


class _Slot:
    """One pod that was started here, until its end has been written down."""

    def __init__(
        self, pod: Json, host: str, status: PodStatus, log: SupervisorLog, wake: Callable[[], None]
    ) -> None:
        self.pod = pod
        self.key = _get_key(pod)
        self.host = host
        self.status = status
        self.is_stopping = False
        self.is_replaced = False
        self.has_ended = False
        self._context: PodContext | None = None
        self.task: asyncio.Task[None] | None = None
        self._began = status
        self._run: PodRun | None = None
        self._started = asyncio.Event()
        self._log = log
        self._wake = wake

    async def follow(
        self, tools: PodTools, job: JobPaths, devices: tuple[str, ...], record: ProcessRecord
    ) -> None:
        """Start the pod and note what becomes of it, until it has ended."""
        try:
            self._context = await tools.contexts.build(self.pod, job, devices)
            self._run = await tools.executor.start(self.pod, self._context)
            self._update(record)
            self._started.set()
            self._note(self._run.status)
            while self.status.phase not in _FINAL:
                status = await self._run.changed()
                self._update(record)  # containers come and go while a pod lives
                self._note(status)
        except Exception as error:  # noqa: BLE001 (the task ends here; the pod's status says why)
            self._log.exception("pod could not be run", error, pod=self.key.name)
            failed = msgspec.structs.replace(
                self.status, phase="Failed", reason=type(error).__name__, message=str(error)
            )
            if self._run is not None:
                await self._run.stop(0.0)
            self._note(failed)
        finally:
            self._started.set()
            self.has_ended = True
            self._wake()

    async def has_stale_context(self, contexts: PodContexts, job: JobPaths) -> bool:
        """Say whether a ConfigMap or Secret for which a container waits has come into being."""
        if self._context is None or not _waits_for_configuration(self.status):
            return False
        fresh = await contexts.build(self.pod, job, self._context.devices)
        return (fresh.config_maps, fresh.secrets) != (self._context.config_maps, self._context.secrets)

    async def end(self, grace_seconds: float) -> None:
        """Stop the pod; when this returns nothing of it is left."""
        await self._started.wait()
        if self._run is not None:
            await self._run.stop(grace_seconds)
            self._note(self._run.status)
        if self.task is not None:
            # The run is over; whether it says so once more is not worth waiting for.
            self.task.cancel()
        self._wake()

    def _update(self, record: ProcessRecord) -> None:
        try:
            record.update()
        except OSError as error:
            # Only a crash would need it, and a full disk is no reason to end a pod that runs.
            self._log.warning("processes could not be recorded", pod=self.key.name, error=error)

    def _note(self, status: PodStatus) -> None:
        """Take over the executor's view, with what it does not know: when the pod was scheduled and began."""
        reported = status.conditions or []
        scheduled = [c for c in self._began.conditions or () if c.type not in {r.type for r in reported}]
        status = msgspec.structs.replace(
            status,
            conditions=[*scheduled, *reported] or None,
            start_time=status.start_time or self._began.start_time,
        )
        if status.phase != self.status.phase:
            self._log.info("pod changed", pod=self.key.name, phase=status.phase, reason=status.reason)
        self.status = status
        self._wake()


def _build_condition(status: str, message: str, now: datetime, known: PodStatus) -> PodCondition:
    new = PodCondition(
        type="PodScheduled",
        status=status,
        reason="Unschedulable" if status == "False" else "",
        message=message,
        last_transition_time=truncate_to_seconds(now),
    )
    for old in known.conditions or ():
        if old.type == new.type and old.status == new.status:
            return msgspec.structs.replace(new, last_transition_time=old.last_transition_time)
    return new


def _waits_for_configuration(status: PodStatus) -> bool:
    """Say whether a container waits for its configuration, and none has run that would have to run again."""
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    waiting = [container.state.waiting for container in containers]
    reasons = {state.reason for state in waiting if state is not None}
    return None not in waiting and not reasons.isdisjoint(_CONFIGURATION)


def _get_status(pod: Json) -> PodStatus:
    return parse_object(pod.get("status") or {}, PodStatus)


def _get_key(pod: Json) -> ObjectKey:
    return ObjectKey("Pod", pod["metadata"].get("namespace") or "", pod["metadata"]["name"])
