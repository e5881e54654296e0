"""The recorder: equal events are counted in one object, whoever writes them, and nobody floods the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import msgspec

from cluster.samples import event_about, train_job
from trainwright.api.core import Event
from trainwright.api.meta import Json
from trainwright.cluster.kube.errors import AlreadyExistsError, NotFoundError, Status
from trainwright.cluster.kube.events import BURST, EventRecorder
from trainwright.cluster.kube.requests import Request

JOB: Json = {**train_job("demo"), "metadata": {"name": "demo", "namespace": "default", "uid": "u"}}


class Server:
    """Stores events."""

    def __init__(self) -> None:
        self.events: dict[str, Json] = {}
        self.sent: list[str] = []

    async def request(self, request: Request) -> bytes:
        self.sent.append(request.method)
        name = request.path.rpartition("/")[2]
        if request.method == "POST":
            body = msgspec.json.decode(request.body or b"")
            if body["metadata"]["name"] in self.events:
                raise AlreadyExistsError(Status(code=409))
            self.events[body["metadata"]["name"]] = body
            return b"{}"
        if name not in self.events:
            raise NotFoundError(Status(code=404))
        if request.method == "PATCH":
            self.events[name] |= msgspec.json.decode(request.body or b"")
        return msgspec.json.encode(self.events[name])

    async def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        raise NotImplementedError
        yield b""

    @property
    def counts(self) -> list[int]:
        return sorted(event["count"] for event in self.events.values())


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def event(message: str = "no", second: int = 0) -> Event:
    moment = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    return msgspec.structs.replace(
        event_about(JOB, message=message), first_timestamp=moment, last_timestamp=moment, count=1
    )


async def test_a_new_event_is_one_request() -> None:
    server = Server()
    await EventRecorder(server).record(event())
    assert server.sent == ["POST"]
    assert server.counts == [1]


async def test_an_equal_event_is_counted_with_one_request_and_moves_the_last_time() -> None:
    server = Server()
    recorder = EventRecorder(server)
    for second in range(3):
        await recorder.record(event(second=second))
    assert server.sent == ["POST", "PATCH", "PATCH"]
    (stored,) = server.events.values()
    assert (stored["count"], stored["firstTimestamp"], stored["lastTimestamp"]) == (
        3,
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:02Z",
    )


async def test_another_message_is_another_event() -> None:
    server = Server()
    recorder = EventRecorder(server)
    await recorder.record(event("one"))
    await recorder.record(event("two"))
    assert server.counts == [1, 1]


async def test_a_process_that_starts_anew_goes_on_counting() -> None:
    server = Server()
    await EventRecorder(server).record(event())
    await EventRecorder(server).record(event())
    assert server.counts == [2]


async def test_an_event_that_expired_meanwhile_begins_again() -> None:
    server = Server()
    recorder = EventRecorder(server)
    await recorder.record(event())
    server.events.clear()
    await recorder.record(event())
    assert server.counts == [1]


async def test_an_object_with_too_many_events_is_silent_for_a_while_and_others_are_not() -> None:
    server, clock = Server(), Clock()
    recorder = EventRecorder(server, clock)
    for number in range(BURST + 10):
        await recorder.record(event(str(number)))
    assert len(server.events) == BURST
    other = {**JOB, "metadata": {**JOB["metadata"], "name": "other"}}
    await recorder.record(event_about(other))
    assert len(server.events) == BURST + 1
    clock.now = 300.0
    await recorder.record(event("later"))
    await recorder.record(event("too early"))
    assert len(server.events) == BURST + 2
