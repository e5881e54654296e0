"""The port over an API server: each verb is one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import msgspec

from trainwright.api.core import Event
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.errors import ExpiredError, KindNotServedError, NotFoundError
from trainwright.cluster.kube.events import EventRecorder
from trainwright.cluster.kube.requests import (
    build_apply,
    build_create,
    build_delete,
    build_get,
    build_list,
    build_merge_patch,
    build_watch,
)
from trainwright.cluster.kube.transport import Transport
from trainwright.cluster.kube.watch import WatchEvent, stream_events
from trainwright.cluster.port import Change, ChangeType, Expired, ObjectList

_DECODER = msgspec.json.Decoder(dict[str, object])


class KubeCluster:
    """`cluster.port.Cluster` over one API server."""

    def __init__(self, transport: Transport, field_manager: str) -> None:
        self._transport = transport
        self._field_manager = field_manager
        self._recorder = EventRecorder(transport)

    async def get(self, key: ObjectKey) -> Json:
        """Return the object. Raises NotFound."""
        return _decode(await self._transport.request(build_get(key)))

    async def list(
        self,
        kind: str,
        namespace: str | None = None,
        labels: dict[str, str] | None = None,
        *,
        fields: dict[str, str] | None = None,
    ) -> ObjectList:
        """Return the objects of a kind that have all the labels, and the fields, page by page."""
        items: list[Json] = []
        token = ""
        while True:
            page = _decode(
                await self._transport.request(
                    build_list(kind, namespace, labels=labels, fields=fields, continue_token=token)
                )
            )
            # Items of built-in kinds come without kind and apiVersion.
            api_version = page["apiVersion"]
            items += [{"apiVersion": api_version, "kind": kind, **item} for item in page.get("items") or []]
            token = page["metadata"].get("continue", "")
            if not token:
                return ObjectList(items, page["metadata"].get("resourceVersion", ""))

    async def watch(
        self, kinds: Sequence[str], namespace: str | None, resource_version: str
    ) -> AsyncIterator[Change]:
        """Yield changes of several kinds, each kind's in order, until the caller stops. Raises Expired.

        A server that just started, or that just learned of one of the kinds, may not know that kind's history
        back to a version that came with another kind: it is Expired, and the next list brings a newer one.
        """
        changes: asyncio.Queue[Change | Exception] = asyncio.Queue(maxsize=100)
        # No task group: a generator may be driven by one task and closed by another, and what it raises
        # must reach the caller as it is.
        tasks = [
            asyncio.create_task(
                self._follow(kind, namespace, resource_version, changes), name=f"watch-{kind}"
            )
            for kind in kinds
        ]
        try:
            while True:
                change = await changes.get()
                if isinstance(change, Exception):
                    raise change
                yield change
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def create(self, obj: Json) -> Json:
        """Store a new object. Raises AlreadyExists."""
        return _decode(await self._transport.request(build_create(obj)))

    async def apply(self, obj: Json, field_manager: str, *, force: bool = True) -> Json:
        """Server-side apply. Raises KindNotServed where the server does not know the kind."""
        try:
            return _decode(await self._transport.request(build_apply(obj, field_manager, force=force)))
        except NotFoundError as error:
            # An apply makes what is not there: what is missing is the kind, or the namespace.
            details = error.status.details
            if details is not None and details.kind == "namespaces":
                raise
            raise KindNotServedError(error.status, obj["kind"], obj["apiVersion"]) from error

    async def patch(self, key: ObjectKey, merge: Json) -> Json:
        """JSON merge patch of everything but the status."""
        request = build_merge_patch(key, merge, field_manager=self._field_manager)
        return _decode(await self._transport.request(request))

    async def patch_status(self, key: ObjectKey, merge: Json) -> Json:
        """JSON merge patch of the status subresource."""
        request = build_merge_patch(key, merge, subresource="status", field_manager=self._field_manager)
        return _decode(await self._transport.request(request))

    async def delete(self, key: ObjectKey, uid: str | None = None) -> None:
        """Delete the object; the garbage collector deletes what it owns."""
        await self._transport.request(build_delete(key, uid))

    async def list_events(self, namespace: str, about: Sequence[str]) -> Sequence[Json]:
        """Return the events of a namespace about the objects with these uids."""
        wanted = set(about)
        events = (await self.list("Event", namespace)).items
        return [event for event in events if (event.get("involvedObject") or {}).get("uid") in wanted]

    async def record_event(self, event: Event) -> None:
        """Record an event; equal ones are counted in one object."""
        await self._recorder.record(event)

    async def _follow(
        self,
        kind: str,
        namespace: str | None,
        resource_version: str,
        changes: asyncio.Queue[Change | Exception],
    ) -> None:
        try:
            while True:
                request = build_watch(kind, namespace, resource_version)
                async with aclosing(stream_events(self._transport, request)) as events:
                    async for event in events:
                        obj = _decode(event.object)
                        resource_version = obj["metadata"]["resourceVersion"]
                        if event.type != "BOOKMARK":
                            await changes.put(_build_change(event, obj))
        except ExpiredError as error:
            await changes.put(Expired(str(error)))
        except Exception as error:  # noqa: BLE001 (handed to the task that reads the queue)
            await changes.put(error)


def _build_change(event: WatchEvent, obj: Json) -> Change:
    return Change(ChangeType(event.type), obj)


def _decode(body: bytes | msgspec.Raw) -> Json:
    return dict(_DECODER.decode(body))
