"""Leader election by a coordination.k8s.io/v1 Lease: one replica acts, the others wait.

Other replicas' clocks are never compared with ours: a lease counts as expired when its record has not
changed for its duration *as observed by us*, on a monotonic clock. The lease is released on a clean stop, and
those who wait watch for that, so the next leader starts at once. A leader that cannot renew in time must stop
acting: `lead` then raises LeaseLost, and the process is expected to end.
Source: coordination.k8s.io/v1; the timing rules of client-go's leader election.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from trainwright.api.meta import ObjectKey, ObjectMeta
from trainwright.cluster.kube.errors import ApiError
from trainwright.cluster.kube.requests import Request, build_create, build_get, build_watch
from trainwright.cluster.kube.resources import RESOURCES, build_path
from trainwright.cluster.kube.transport import Transport
from trainwright.cluster.kube.watch import stream_events
from trainwright.errors import AlreadyExists, Conflict, Forbidden, NotFound, TargetUnreachable

log = structlog.get_logger(__name__)

# How long the end may wait for a server that has to hear of it; without, the next leader waits for 15 s.
RELEASE_SECONDS: Final = 5.0


class LeaseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the lease lies, and its timing in seconds: duration > renew deadline > retry period."""

    name: str
    namespace: str
    duration_seconds: float = 15.0
    renew_deadline_seconds: float = 10.0
    retry_seconds: float = 2.0


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who holds the lease since when."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A lease."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class LeaseLost(Exception):
    """Somebody else may lead now: stop acting at once."""


_DECODER = msgspec.json.Decoder(Lease)


class LeaderElection:
    """One candidate for one lease."""

    def __init__(
        self,
        transport: Transport,
        settings: LeaseSettings,
        identity: str,
        wall_clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._transport = transport
        self._settings = settings
        self._identity = identity
        self._wall_clock = wall_clock or _get_now
        self._clock = asyncio.get_running_loop().time
        self._observed: LeaseSpec | None = None
        self._observed_at = 0.0
        self._version = ""
        self._may_be_stored = False  # a write of ours whose answer was not heard
        self._told = ""

    async def lead(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run `work` while holding it, release it when `work` ends.

        Raises LeaseLost when the lease cannot be renewed in time; `work` is cancelled first.
        """
        try:
            await self._wait_for_lease()
            log.info("became leader", lease=self._settings.name, identity=self._identity)
            async with asyncio.TaskGroup() as group:
                renewal = group.create_task(self._renew(), name="renew-lease")
                try:
                    await work()
                finally:
                    renewal.cancel()
        except ExceptionGroup as failed:
            lost, others = failed.split(LeaseLost)
            if others is not None:
                raise others from None
            raise LeaseLost(f"lease {self._settings.name!r} could not be renewed") from lost
        finally:
            await self._release()

    async def _wait_for_lease(self) -> None:
        """Take the lease as soon as it is free: looked at every retry period, and when it is released."""
        released = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self._watch_release(released), name="watch-lease")
            while True:
                # Before the question: a release that comes while the answer is on its way counts.
                released.clear()
                if await self._try_acquire():
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.retry_seconds):
                        await released.wait()
            watch.cancel()

    async def _watch_release(self, released: asyncio.Event) -> None:
        """Set `released` whenever the lease is given back. Without the right to watch, looking has to do."""
        request = build_watch(
            "Lease", self._settings.namespace, "0", fields={"metadata.name": self._settings.name}
        )
        while True:
            try:
                async with contextlib.aclosing(stream_events(self._transport, request)) as events:
                    async for event in events:
                        if event.type == "BOOKMARK":
                            continue
                        if event.type == "DELETED" or not _DECODER.decode(event.object).spec.holder_identity:
                            released.set()
            except Forbidden:
                return
            except (ApiError, TargetUnreachable) as error:
                log.debug("watch of the lease interrupted", lease=self._settings.name, error=str(error))
            await asyncio.sleep(self._settings.retry_seconds)

    async def _renew(self) -> None:
        last = self._clock()
        while True:
            await asyncio.sleep(self._settings.retry_seconds)
            if await self._try_acquire():
                last = self._clock()
            elif self._clock() - last > self._settings.renew_deadline_seconds or self._is_held_by_another():
                raise LeaseLost(self._settings.name)

    async def _try_acquire(self) -> bool:
        """Take or renew the lease; False if another holds it or the server does not answer."""
        try:
            async with asyncio.timeout(self._settings.renew_deadline_seconds):
                return await self._acquire()
        except (ApiError, TargetUnreachable, TimeoutError) as error:
            log.warning("lease not renewed", lease=self._settings.name, error=str(error))
            return False

    async def _acquire(self) -> bool:
        if self._is_held_by_us() and await self._renew_blindly():
            return True
        try:
            lease = _DECODER.decode(await self._transport.request(build_get(self._key)))
        except NotFound:
            try:
                await self._write(build_create(self._build(None)))
            except AlreadyExists:
                return False
            return True
        if lease.spec != self._observed:
            self._observe(lease)
        if self._is_held_by_another():
            self._tell_holder()
            return False
        try:
            await self._write(self._build_update(lease))
        except Conflict:
            return False
        return True

    async def _renew_blindly(self) -> bool:
        """Renew what we wrote last, without looking first; False if somebody else wrote since."""
        if self._observed is None:
            return False
        spec = msgspec.structs.replace(self._observed, renew_time=self._micro_time())
        try:
            await self._write(self._build_put(spec, self._version))
        except (Conflict, NotFound):
            return False
        return True

    async def _write(self, request: Request) -> None:
        """Send a write that makes us the holder; remember that it may be stored until its answer is heard."""
        self._may_be_stored = True
        try:
            stored = _DECODER.decode(await self._transport.request(request))
        except (AlreadyExists, Conflict, NotFound):
            self._may_be_stored = False
            raise
        self._may_be_stored = False
        self._observe(stored)

    def _tell_holder(self) -> None:
        """Say once who leads: it may be another controller, which one must stop before this one can begin."""
        holder = self._observed.holder_identity if self._observed else None
        if holder and holder != self._told:
            self._told = holder
            log.info("waiting for the lease", lease=self._settings.name, held_by=holder)

    def _is_held_by_us(self) -> bool:
        return self._observed is not None and self._observed.holder_identity == self._identity

    def _observe(self, lease: Lease) -> None:
        self._observed = lease.spec
        self._observed_at = self._clock()
        self._version = lease.metadata.resource_version or ""

    def _is_held_by_another(self) -> bool:
        seen = self._observed
        if seen is None or not seen.holder_identity or seen.holder_identity == self._identity:
            return False
        duration = seen.lease_duration_seconds or self._settings.duration_seconds
        return self._clock() < self._observed_at + duration

    async def _release(self) -> None:
        """Give the lease back, so that the next leader need not wait for it to expire."""
        if not self._is_held_by_us() and not self._may_be_stored:
            return
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                if await self._give_back():
                    log.info("released lease", lease=self._settings.name)
        except NotFound:
            return  # there is no lease
        except (ApiError, TargetUnreachable, TimeoutError) as error:
            log.warning("lease not released", lease=self._settings.name, error=str(error))

    async def _give_back(self) -> bool:
        """Clear the holder where that is us; say whether it was.

        A write that was cut off may have been stored: then the version is another, or we hold the lease and
        do not know it.
        """
        if self._observed is not None and self._is_held_by_us():
            with contextlib.suppress(Conflict):
                await self._transport.request(self._build_put(_build_released(self._observed), self._version))
                return True
        lease = _DECODER.decode(await self._transport.request(build_get(self._key)))
        if lease.spec.holder_identity != self._identity:
            return False
        version = lease.metadata.resource_version or ""
        await self._transport.request(self._build_put(_build_released(lease.spec), version))
        return True

    @property
    def _key(self) -> ObjectKey:
        return ObjectKey("Lease", self._settings.namespace, self._settings.name)

    def _build_update(self, lease: Lease) -> Request:
        now = self._micro_time()
        mine = lease.spec.holder_identity == self._identity
        spec = LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=round(self._settings.duration_seconds),
            acquire_time=lease.spec.acquire_time if mine else now,
            renew_time=now,
            lease_transitions=(lease.spec.lease_transitions or 0) + (0 if mine else 1),
        )
        return self._build_put(spec, lease.metadata.resource_version or "")

    def _micro_time(self) -> str:
        """Return now as metav1.MicroTime: for people, nobody compares it."""
        return self._wall_clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _build_put(self, spec: LeaseSpec, resource_version: str) -> Request:
        body = self._build(spec, resource_version)
        path = build_path(RESOURCES["Lease"], self._settings.namespace, self._settings.name)
        return Request(method="PUT", path=path, body=msgspec.json.encode(body))

    def _build(self, spec: LeaseSpec | None, resource_version: str = "") -> dict[str, object]:
        now = self._micro_time()
        first = LeaseSpec(
            holder_identity=self._identity,
            lease_duration_seconds=round(self._settings.duration_seconds),
            acquire_time=now,
            renew_time=now,
            lease_transitions=0,
        )
        metadata: dict[str, object] = {"name": self._settings.name, "namespace": self._settings.namespace}
        if resource_version:
            metadata["resourceVersion"] = resource_version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": msgspec.to_builtins(spec or first),
        }


def _get_now() -> datetime:
    return datetime.now(UTC)


def _build_released(held: LeaseSpec) -> LeaseSpec:
    return msgspec.structs.replace(held, holder_identity="", lease_duration_seconds=1)
