"""The informer against a scripted server, on virtual time: pauses, selections, unreadable objects."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable

import msgspec
import pytest
from structlog.testing import capture_logs

from trainwright.api.core import ConfigMap
from trainwright.api.meta import Json
from trainwright.cluster.kube.errors import InvalidError, Status
from trainwright.cluster.kube.informer import Informer, Selection
from trainwright.cluster.kube.requests import Request
from trainwright.errors import TargetUnreachable
from virtual_time import on_virtual_time

DECODE = msgspec.json.Decoder(ConfigMap).decode


def config_map(name: str, version: str = "1", **fields: object) -> Json:
    return {"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": version}, **fields}


def event(type_: str, obj: Json) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


def end_of_list(version: str) -> bytes:
    metadata = {"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}}
    return event("BOOKMARK", {"metadata": metadata})


class Server:
    """Answers each stream with the next script: lines to send, then an error, or the end."""

    def __init__(self, *scripts: list[bytes | Exception]) -> None:
        self.scripts = list(scripts)
        self.streams: list[tuple[dict[str, str], float]] = []
        self.requests: list[str] = []
        self.pages: list[Json] = []

    async def request(self, request: Request) -> bytes:
        self.requests.append(request.target)
        return msgspec.json.encode(self.pages.pop(0))

    async def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        self.streams.append((dict(request.query), asyncio.get_running_loop().time()))
        if not self.scripts:
            await asyncio.Event().wait()
        for line in self.scripts.pop(0):
            if isinstance(line, Exception):
                raise line
            yield line


def build(server: Server, **options: object) -> Informer[ConfigMap]:
    return Informer(server, "ConfigMap", DECODE, **options)  # type: ignore[arg-type]


async def run(informer: Informer[ConfigMap], server: Server, until: Callable[[], bool]) -> None:
    task = asyncio.create_task(informer.run())
    async with asyncio.timeout(3600):
        while not until():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])


def names(informer: Informer[ConfigMap]) -> set[str]:
    return {obj.metadata.name for obj in informer.store}


@on_virtual_time
async def test_a_list_and_what_follows_are_one_stream() -> None:
    server = Server(
        [
            event("ADDED", config_map("a")),
            end_of_list("5"),
            event("ADDED", config_map("b", "6")),
            event("DELETED", config_map("a", "7")),
        ]
    )
    informer = build(server)
    await run(informer, server, lambda: len(server.streams) == 2)
    assert names(informer) == {"b"}
    first, second = (query for query, _ in server.streams)
    assert first["sendInitialEvents"] == "true"
    assert second["resourceVersion"] == "7"
    assert server.requests == []


@on_virtual_time
async def test_a_server_that_streams_no_lists_is_read_in_pages() -> None:
    server = Server([InvalidError(Status(code=422, message="sendInitialEvents is forbidden"))])
    server.pages = [
        {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [config_map("a")]},
        {"metadata": {"resourceVersion": "9"}, "items": [config_map("b")]},
    ]
    informer = build(server)
    await run(informer, server, lambda: len(server.streams) == 2)
    assert names(informer) == {"a", "b"}
    assert len(server.requests) == 2
    assert server.streams[1][0]["resourceVersion"] == "9"


@on_virtual_time
async def test_pauses_grow_while_nothing_works_and_begin_anew_once_something_did() -> None:
    broken: list[bytes | Exception] = [TargetUnreachable("no answer")]
    works: list[bytes | Exception] = [end_of_list("5"), TargetUnreachable("connection reset")]
    server = Server(*[broken] * 8, works)
    await run(build(server), server, lambda: len(server.streams) == 10)
    times = [at for _, at in server.streams]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses[7] > 5
    assert pauses[8] <= 0.2


@on_virtual_time
async def test_the_server_is_asked_for_the_selection_alone() -> None:
    server = Server([end_of_list("5")])
    chosen = Selection(namespace="ns", labels={"a": "b"}, fields={"type": "Warning"})
    await run(build(server, selection=chosen), server, lambda: len(server.streams) == 2)
    for query, _ in server.streams:
        assert (query["labelSelector"], query["fieldSelector"]) == ("a=b", "type=Warning")


@on_virtual_time
async def test_an_object_that_cannot_be_read_is_left_out_and_the_others_are_not() -> None:
    server = Server(
        [
            event("ADDED", config_map("bad", data=["no map"])),
            event("ADDED", config_map("good")),
            end_of_list("5"),
            event("MODIFIED", config_map("bad", "6", data=7)),
            event("ADDED", config_map("later", "7")),
        ]
    )
    informer = build(server)
    with capture_logs() as logs:
        await run(informer, server, lambda: len(server.streams) == 2)
    assert names(informer) == {"good", "later"}
    assert [line["log_level"] for line in logs if "cannot be read" in line["event"]] == ["error", "error"]


@on_virtual_time
async def test_what_is_not_kept_is_as_if_it_were_not_there() -> None:
    server = Server(
        [
            event("ADDED", config_map("a", data={"keep": "yes"})),
            event("ADDED", config_map("b")),
            end_of_list("5"),
            event("MODIFIED", config_map("a", "6")),
            event("MODIFIED", config_map("b", "7", data={"keep": "yes"})),
        ]
    )
    informer = build(server, keeps=lambda obj: "keep" in (obj.data or {}))
    changes = []
    informer.add_handler(
        lambda change: changes.append((change.key[1], change.old is None, change.new is None))
    )
    await run(informer, server, lambda: len(server.streams) == 2)
    assert names(informer) == {"b"}
    assert changes == [("a", True, False), ("a", False, True), ("b", True, False)]


@pytest.mark.parametrize("lists", [1, 2])
@on_virtual_time
async def test_every_complete_list_is_told(lists: int) -> None:
    expired = event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})
    server = Server(*[[end_of_list("5"), expired]] * lists)
    informer = build(server)
    told: list[None] = []
    informer.add_list_handler(lambda: told.append(None))
    await run(informer, server, lambda: len(server.streams) == lists + 1)
    assert len(told) == lists
