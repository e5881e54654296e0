"""One watch stream as events. Lines of any length; nothing is remembered between calls.

The stream ends when the server closes it (every few minutes, by design): the caller resumes from the last
resource version. An ERROR event becomes the exception it stands for, ExpiredError for a too old version.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal

import msgspec

from trainwright.cluster.kube.errors import Status, build_error
from trainwright.cluster.kube.requests import WATCH_TIMEOUT_SECONDS, Request
from trainwright.cluster.kube.transport import Transport

# The server ends a watch itself after `timeoutSeconds` and sends bookmarks about once a minute: silence for
# longer than both means a dead connection that TCP has not noticed.
INACTIVITY_SECONDS = WATCH_TIMEOUT_SECONDS + 30.0

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


class WatchEvent(msgspec.Struct, frozen=True):
    """One event; the object is still undecoded, so that only what is needed is decoded."""

    type: EventType
    object: msgspec.Raw


_DECODER = msgspec.json.Decoder(WatchEvent)
_STATUS_DECODER = msgspec.json.Decoder(Status)


async def stream_events(transport: Transport, request: Request) -> AsyncGenerator[WatchEvent, None]:
    """Yield the events of one watch until the server closes it. Raises ApiError, TargetUnreachable.

    Whoever stops before that closes it (`contextlib.aclosing`), and with it the connection.
    """
    async with aclosing(split_lines(transport.stream(request, INACTIVITY_SECONDS))) as lines:
        async for line in lines:
            event = _DECODER.decode(line)
            if event.type == "ERROR":
                raise build_error(_STATUS_DECODER.decode(event.object))
            yield event


async def split_lines(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield non-empty lines without their ends; the last one may lack its end.

    A line that spans many pieces is joined once, when it is complete, so that an object of several MB costs
    linear time.
    """
    parts: list[bytes] = []
    async with aclosing(pieces):
        async for piece in pieces:
            *complete, rest = piece.split(b"\n")
            for line in complete:
                parts.append(line)
                joined = b"".join(parts)
                parts = []
                if joined.strip():
                    yield joined
            if rest:
                parts.append(rest)
    if last := b"".join(parts).strip():
        yield last
