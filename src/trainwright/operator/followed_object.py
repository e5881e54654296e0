"""One named object, followed through every change: what an informer is for a whole kind, without a store.

For kinds that the operator has exactly one object of (its certificate, its webhook configurations) and for
waiting until something becomes ready. The server selects by name, which rights to a single name allow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import msgspec
import structlog

from trainwright.api.meta import Json
from trainwright.cluster.kube.errors import ApiError, ExpiredError
from trainwright.cluster.kube.informer import Backoff
from trainwright.cluster.kube.requests import JSON, WATCH_TIMEOUT_SECONDS, Request
from trainwright.cluster.kube.resources import Resource, build_path
from trainwright.cluster.kube.transport import Transport
from trainwright.cluster.kube.watch import stream_events
from trainwright.errors import TargetUnreachable

log = structlog.get_logger(__name__)

_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODER: Final = msgspec.json.Encoder()


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where an object stands: its kind as the API server names it, namespace ("" for none) and name."""

    resource: Resource
    name: str
    namespace: str = ""

    @property
    def path(self) -> str:
        """Return the URL path of the object."""
        return build_path(self.resource, self.namespace, self.name)

    @property
    def collection(self) -> str:
        """Return the URL path of the collection that it is in."""
        return build_path(self.resource, self.namespace)

    def __str__(self) -> str:
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.resource.kind} {where}{self.name}"


def build_replace(place: Place, obj: Json) -> Request:
    """Replace an object as a whole; its resourceVersion makes the server refuse it after any other write."""
    return Request(method="PUT", path=place.path, body=_ENCODER.encode(obj), content_type=JSON)


async def follow_object(transport: Transport, place: Place) -> AsyncGenerator[Json | None, None]:
    """Yield the object as it is now and after every change; None while there is none.

    Never ends by itself: whoever has seen enough closes it (`contextlib.aclosing`). Interruptions are
    overcome with pauses that grow; what changed meanwhile is seen after them.
    """
    backoff = Backoff()
    version = ""
    while True:
        try:
            if not version:
                listed = _DECODER.decode(await transport.request(_build_list(place)))
                version = listed["metadata"]["resourceVersion"]
                items = listed.get("items") or []
                yield items[0] if items else None
            async with aclosing(stream_events(transport, _build_watch(place, version))) as events:
                async for event in events:
                    obj = _DECODER.decode(event.object)
                    version = obj["metadata"]["resourceVersion"]
                    backoff.reset()
                    if event.type != "BOOKMARK":
                        yield None if event.type == "DELETED" else obj
        except ExpiredError:
            version = ""
        except (ApiError, TargetUnreachable) as error:
            pause = backoff.next_pause(getattr(error, "retry_after", None))
            log.warning(
                "watch interrupted", object=str(place), error=str(error), retry_seconds=round(pause, 2)
            )
            await asyncio.sleep(pause)


def _build_list(place: Place) -> Request:
    return Request(
        method="GET", path=place.collection, query=(("fieldSelector", f"metadata.name={place.name}"),)
    )


def _build_watch(place: Place, version: str) -> Request:
    query = (
        ("fieldSelector", f"metadata.name={place.name}"),
        ("watch", "1"),
        ("resourceVersion", version),
        ("allowWatchBookmarks", "true"),
        ("timeoutSeconds", str(WATCH_TIMEOUT_SECONDS)),
    )
    return Request(method="GET", path=place.collection, query=query)
