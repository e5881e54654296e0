"""Keeps a store equal to a collection of the API server, through every kind of interruption.

One loop: fill the store (from the beginning of a stream where the server has that, else from pages), then
watch from there. A closed watch is resumed from the last version seen. A version that expired means that
events are lost: the list is made again and compared with the store, so that handlers hear of what was deleted
meanwhile.

Source: Kubernetes API concepts, "Efficient detection of changes", "Streaming lists".
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Generic, TypeVar

import msgspec
import structlog

from trainwright.api.meta import ObjectMeta
from trainwright.cluster.kube.errors import ApiError, ExpiredError, InvalidError
from trainwright.cluster.kube.requests import build_list, build_watch, build_watch_list
from trainwright.cluster.kube.store import Difference, IndexFunction, Store, StoreKey, Watched, store_key
from trainwright.cluster.kube.transport import Transport
from trainwright.cluster.kube.watch import WatchEvent, stream_events
from trainwright.errors import TargetUnreachable

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Watched)
Handler = Callable[[Difference[T]], None]
Decode = Callable[[bytes | msgspec.Raw], T]

FIRST_BACKOFF_SECONDS = 0.1
LAST_BACKOFF_SECONDS = 30.0
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[msgspec.Raw] = msgspec.field(default_factory=list)


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


_PAGE_DECODER = msgspec.json.Decoder(_Page)
_BOOKMARK_DECODER = msgspec.json.Decoder(_Bookmark)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which objects of a kind: those of a namespace (None is all), with these labels and fields.

    The server selects, so that objects outside of it cost nothing here.
    """

    namespace: str | None = None
    labels: Mapping[str, str] | None = None
    fields: Mapping[str, str] | None = None


class Informer(Generic[T]):
    """The objects of one kind, kept current.

    `decode` turns the JSON of an object into what is stored of it, for example the `decode` of a msgspec
    decoder of a struct with few fields: what it does not name costs nothing. What `keeps` does not want is
    treated as if it were not there. Handlers are called with every difference, in the loop's own task, and
    must not block. `ends_on` are refusals that end `run`; after all others it tries again.
    """

    def __init__(
        self,
        transport: Transport,
        kind: str,
        decode: Decode[T],
        *,
        selection: Selection | None = None,
        indexes: dict[str, IndexFunction[T]] | None = None,
        keeps: Callable[[T], bool] | None = None,
    ) -> None:
        self.kind = kind
        self.store: Store[T] = Store(indexes)
        self.synced = asyncio.Event()
        self.ends_on: tuple[type[ApiError], ...] = ()
        self._transport = transport
        self._selection = selection or Selection()
        self._decode_object = decode
        self._keeps = keeps
        self._handlers: list[Handler[T]] = []
        self._list_handlers: list[Callable[[], None]] = []
        self._streams_lists = True
        self._resource_version = ""
        self._backoff = Backoff()

    def add_handler(self, handler: Handler[T]) -> None:
        """Call `handler` with every later difference."""
        self._handlers.append(handler)

    def add_list_handler(self, handler: Callable[[], None]) -> None:
        """Call `handler` after every complete list: the store is then at least as new as the call's start."""
        self._list_handlers.append(handler)

    async def run(self) -> None:
        """Keep the store current until cancelled. Raises what `ends_on` names."""
        while True:
            try:
                if not self._resource_version:
                    await self._fill()
                else:
                    await self._follow()
            except ExpiredError:
                log.info("watch expired, listing again", kind=self.kind)
                self._resource_version = ""
            except (ApiError, TargetUnreachable) as error:
                if isinstance(error, self.ends_on):
                    raise
                pause = self._backoff.next_pause(getattr(error, "retry_after", None))
                log.warning(
                    "watch interrupted", kind=self.kind, error=str(error), retry_seconds=round(pause, 2)
                )
                await asyncio.sleep(pause)

    def forget(self) -> None:
        """Empty the store, and begin with a complete list the next time that it runs."""
        for difference in self.store.replace([]):
            self._tell(difference)
        self._resource_version = ""
        self.synced.clear()

    async def _fill(self) -> None:
        """Make the store equal to the collection, and remember the version of that moment."""
        if self._streams_lists:
            try:
                await self._fill_and_follow()
            except InvalidError:
                # Before Kubernetes 1.32 the server refuses sendInitialEvents: pages from then on.
                self._streams_lists = False
        if not self._streams_lists:
            await self._fill_from_pages()

    async def _fill_and_follow(self) -> None:
        """Take in the objects that a stream begins with, then what happens to them, until it is closed."""
        objects: dict[StoreKey, T] | None = {}
        chosen = self._selection
        request = build_watch_list(self.kind, chosen.namespace, labels=chosen.labels, fields=chosen.fields)
        async with aclosing(stream_events(self._transport, request)) as events:
            async for event in events:
                if objects is None:
                    self._resource_version = self._take_in(event)
                elif event.type == "BOOKMARK":
                    meta = _BOOKMARK_DECODER.decode(event.object).metadata
                    if (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true":
                        self._replace(list(objects.values()), meta.resource_version or "")
                        objects = None
                elif (obj := self._decode(event.object)) is None:
                    continue
                elif event.type == "DELETED":
                    objects.pop(store_key(obj), None)
                else:
                    objects[store_key(obj)] = obj
        if objects is not None:
            raise TargetUnreachable(f"the server closed the list of {self.kind} objects before its end")

    async def _fill_from_pages(self) -> None:
        objects: list[T] = []
        chosen = self._selection
        token = ""
        while True:
            request = build_list(
                self.kind,
                chosen.namespace,
                labels=chosen.labels,
                fields=chosen.fields,
                continue_token=token,
            )
            page = _PAGE_DECODER.decode(await self._transport.request(request))
            objects += [obj for item in page.items if (obj := self._decode(item)) is not None]
            token = page.metadata.continue_
            if not token:
                break
        self._replace(objects, page.metadata.resource_version)

    async def _follow(self) -> None:
        """Apply the events of one watch until the server closes it."""
        chosen = self._selection
        request = build_watch(
            self.kind, chosen.namespace, self._resource_version, labels=chosen.labels, fields=chosen.fields
        )
        async with aclosing(stream_events(self._transport, request)) as events:
            async for event in events:
                self._resource_version = self._take_in(event)

    def _take_in(self, event: WatchEvent) -> str:
        """Apply one event and return the resource version up to which the store is now current."""
        self._backoff.reset()
        if event.type == "BOOKMARK":
            meta = _BOOKMARK_DECODER.decode(event.object).metadata
            return meta.resource_version or self._resource_version
        obj = self._decode(event.object)
        if obj is None:
            return _BOOKMARK_DECODER.decode(event.object).metadata.resource_version or self._resource_version
        if event.type == "DELETED" or not self._is_kept(obj):
            self._tell(self.store.remove(store_key(obj)))
        else:
            self._tell(self.store.put(obj))
        return obj.metadata.resource_version or self._resource_version

    def _replace(self, objects: list[T], resource_version: str) -> None:
        for difference in self.store.replace([obj for obj in objects if self._is_kept(obj)]):
            self._tell(difference)
        self._resource_version = resource_version
        self._backoff.reset()
        self.synced.set()
        for handler in self._list_handlers:
            handler()

    def _is_kept(self, obj: T) -> bool:
        return self._keeps is None or self._keeps(obj)

    def _decode(self, body: bytes | msgspec.Raw) -> T | None:
        """Decode an object; None for one that does not fit, which must not keep the others from us."""
        try:
            return self._decode_object(body)
        except msgspec.ValidationError as error:
            log.error("object cannot be read and is left out", kind=self.kind, error=str(error))
            return None

    def _tell(self, difference: Difference[T] | None) -> None:
        if difference is not None:
            for handler in self._handlers:
                handler(difference)


class Backoff:
    """Pauses that double from 0.1 s to 30 s, each shortened at random by up to half."""

    def __init__(self, draw: Callable[[], float] = random.random) -> None:
        self._draw = draw
        self._failures = 0

    def reset(self) -> None:
        """Start again from the shortest pause."""
        self._failures = 0

    def next_pause(self, at_least: float | None = None) -> float:
        """Return the next pause in seconds; what the server asked for is kept."""
        longest = min(FIRST_BACKOFF_SECONDS * 2.0**self._failures, LAST_BACKOFF_SECONDS)
        self._failures = min(self._failures + 1, 32)
        return max(longest * (1 - self._draw() / 2), at_least or 0.0)


def list_owner_uids(obj: Watched) -> list[str]:
    """Index by the uid of the controlling owner."""
    return [ref.uid for ref in obj.metadata.owner_references or () if ref.controller]
