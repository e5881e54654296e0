"""Records core/v1 events: equal ones are counted in one object, and no object may flood the server.

The name of an event is made from what it says, so equal events meet in one object after a restart too, and
from every replica. What is counted here is remembered for a while, which saves the read. core/v1 rather
than events.k8s.io/v1, because the public SDK shows no other (clients, section 1.2).

Source: the limits are those of client-go's recorder: 25 events at once and one every five minutes, per
object that they are about.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec
import structlog

from trainwright.api.core import Event
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json, ObjectKey, truncate_to_seconds
from trainwright.cluster.event_names import build_event_name
from trainwright.cluster.kube.flow import TokenBucket
from trainwright.cluster.kube.requests import build_create, build_get, build_merge_patch
from trainwright.cluster.kube.transport import Transport
from trainwright.errors import AlreadyExists, NotFound

log = structlog.get_logger(__name__)

BURST: Final = 25
REFILL_PER_SECOND: Final = 1 / 300
REMEMBERED: Final = 4096

_DECODER = msgspec.json.Decoder(Event)


class EventRecorder:
    """Writes events, one request each in the plain case."""

    def __init__(self, transport: Transport, clock: Callable[[], float] = time.monotonic) -> None:
        self._transport = transport
        self._clock = clock
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, str, str], TokenBucket] = OrderedDict()

    async def record(self, event: Event) -> None:
        """Write the event, or count it in the one that says the same. Raises ApiError, TargetUnreachable."""
        event = _complete(event)
        about = event.involved_object
        if not self._is_allowed((about.kind, about.namespace, about.name)):
            log.info("event dropped: too many about this object", object=about.name, reason=event.reason)
            return
        namespace = event.metadata.namespace or about.namespace or "default"
        key = ObjectKey("Event", namespace, build_event_name(event))
        count = self._counts.get((namespace, key.name))
        if count is None and await self._create(key, event):
            self._remember(key, event.count or 1)
            return
        if count is None:
            count = await self._read_count(key)
        if count is not None and await self._count(key, event, count):
            return
        if await self._create(key, event):  # the one that was counted in expired
            self._remember(key, event.count or 1)

    async def _create(self, key: ObjectKey, event: Event) -> bool:
        body = build_object(event)
        body["metadata"] = {"name": key.name, "namespace": key.namespace}
        try:
            await self._transport.request(build_create(body))
        except AlreadyExists:
            return False
        return True

    async def _read_count(self, key: ObjectKey) -> int | None:
        try:
            return _DECODER.decode(await self._transport.request(build_get(key))).count or 1
        except NotFound:
            return None

    async def _count(self, key: ObjectKey, event: Event, count: int) -> bool:
        total = count + (event.count or 1)
        merge: Json = {"count": total, "lastTimestamp": msgspec.to_builtins(event.last_timestamp)}
        try:
            await self._transport.request(build_merge_patch(key, merge))
        except NotFound:
            self._counts.pop((key.namespace, key.name), None)
            return False
        self._remember(key, total)
        return True

    def _remember(self, key: ObjectKey, count: int) -> None:
        self._counts[key.namespace, key.name] = count
        self._counts.move_to_end((key.namespace, key.name))
        while len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)

    def _is_allowed(self, about: tuple[str, str, str]) -> bool:
        bucket = self._buckets.get(about)
        if bucket is None:
            bucket = self._buckets[about] = TokenBucket(REFILL_PER_SECOND, BURST, self._clock)
            while len(self._buckets) > REMEMBERED:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(about)
        return bucket.try_take()


def _complete(event: Event) -> Event:
    """Return the event with count and times, which clients show and sort by."""
    moment = event.last_timestamp or event.first_timestamp or truncate_to_seconds(datetime.now(UTC))
    return msgspec.structs.replace(
        event,
        count=event.count or 1,
        first_timestamp=event.first_timestamp or moment,
        last_timestamp=moment,
    )
