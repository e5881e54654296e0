"""An informer against a real API server: what is stored equals what is there, through every interruption."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest

from kube.control_plane import ControlPlane
from trainwright.api.core import ConfigMap
from trainwright.api.meta import ObjectKey
from trainwright.cluster.kube.informer import Informer, Selection
from trainwright.cluster.kube.requests import Request, build_create, build_delete, build_merge_patch
from trainwright.cluster.kube.store import Difference
from trainwright.cluster.kube.transport import AiohttpTransport, Transport

DECODER = msgspec.json.Decoder(ConfigMap)


def build_config_map(namespace: str, name: str, **data: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, "labels": {"set": name[0]}},
        "data": data,
    }


class Gate:
    """The network between informer and server. Shut, it lets nothing new pass; what is open stays so."""

    def __init__(self, transport: AiohttpTransport) -> None:
        self._transport = transport
        self._is_open = asyncio.Event()
        self._is_open.set()

    def shut(self) -> None:
        self._is_open.clear()

    def open(self) -> None:
        self._is_open.set()

    async def request(self, request: Request) -> bytes:
        await self._is_open.wait()
        return await self._transport.request(request)

    async def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        await self._is_open.wait()
        async with aclosing(self._transport.stream(request, inactivity_seconds)) as pieces:
            async for piece in pieces:
                yield piece


class Seen:
    """Waits until a store satisfies a condition, woken by every difference."""

    def __init__(self, informer: Informer[ConfigMap]) -> None:
        self.informer = informer
        self.differences: list[Difference[ConfigMap]] = []
        self.lists = 0
        self._changed = asyncio.Event()
        informer.add_handler(self._hear)
        informer.add_list_handler(self._hear_list)

    def _hear(self, difference: Difference[ConfigMap]) -> None:
        self.differences.append(difference)
        self._changed.set()

    def _hear_list(self) -> None:
        self.lists += 1

    @property
    def names(self) -> set[str]:
        return {obj.metadata.name for obj in self.informer.store}

    async def until(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def informing(transport: Transport, namespace: str) -> AsyncIterator[Seen]:
    informer = Informer(
        transport,
        "ConfigMap",
        DECODER.decode,
        selection=Selection(namespace=namespace),
        indexes={"set": lambda obj: [(obj.metadata.labels or {}).get("set", "")]},
    )
    seen = Seen(informer)
    task = asyncio.create_task(informer.run(), name="informer")
    try:
        async with asyncio.timeout(30):
            await informer.synced.wait()
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def create(transport: AiohttpTransport, namespace: str, *names: str) -> None:
    for name in names:
        await transport.request(build_create(build_config_map(namespace, name, text="1")))


async def delete(transport: AiohttpTransport, namespace: str, *names: str) -> None:
    for name in names:
        await transport.request(build_delete(ObjectKey("ConfigMap", namespace, name)))


async def test_a_store_follows_creation_change_and_deletion(transport, namespace):
    await create(transport, namespace, "a1", "a2")
    async with informing(transport, namespace) as seen:
        assert seen.names == {"a1", "a2"}
        await create(transport, namespace, "b1")
        key = ObjectKey("ConfigMap", namespace, "a1")
        await transport.request(build_merge_patch(key, {"data": {"text": "2"}}))
        await delete(transport, namespace, "a2")
        await seen.until(lambda: seen.names == {"a1", "b1"})
        assert seen.informer.store.get(namespace, "a1").data == {"text": "2"}
        assert [obj.metadata.name for obj in seen.informer.store.list_by("set", "a")] == ["a1"]


async def test_a_list_in_pages_ends_in_the_same_store(transport, namespace):
    names = [f"a{number}" for number in range(7)]
    await create(transport, namespace, *names)
    informer = Informer(transport, "ConfigMap", DECODER.decode, selection=Selection(namespace=namespace))
    await informer._fill_from_pages()
    assert {obj.metadata.name for obj in informer.store} == set(names)


async def test_an_object_above_a_megabyte_arrives_whole(transport, namespace):
    async with informing(transport, namespace) as seen:
        text = "x" * 1_000_000
        await transport.request(build_create(build_config_map(namespace, "big", text=text)))
        await seen.until(lambda: seen.names == {"big"})
        assert seen.informer.store.get(namespace, "big").data == {"text": text}


async def restart_apiserver(control_plane: ControlPlane) -> None:
    """Meanwhile the loop goes on: it has to notice which connections have ended."""
    await asyncio.to_thread(control_plane.stop_apiserver)
    await asyncio.to_thread(control_plane.start_apiserver)


async def test_objects_deleted_while_disconnected_are_told_as_deleted(
    control_plane: ControlPlane, transport, namespace
):
    """1. The store knows a and b; something is written elsewhere, which it does not see. 2. The API server
    goes away. 3. It comes back, b is deleted before the informer is back, and etcd forgets its history.
    4. The version expired: a new list lacks b."""
    await create(transport, namespace, "a", "b")
    gate = Gate(transport)
    async with informing(gate, namespace) as seen:
        gate.shut()
        await create(transport, "default", namespace)
        await delete(transport, "default", namespace)
        await restart_apiserver(control_plane)
        await delete(transport, namespace, "b")
        control_plane.compact()
        await create(transport, namespace, "c")
        gate.open()
        await seen.until(lambda: seen.names == {"a", "c"}, seconds=60)
        assert seen.lists == 2
        gone = [d for d in seen.differences if d.new is None]
        assert [difference.key for difference in gone] == [(namespace, "b")]


@pytest.mark.slow
async def test_a_store_is_current_after_the_api_server_restarted(
    control_plane: ControlPlane, transport, namespace
):
    await create(transport, namespace, "a")
    async with informing(transport, namespace) as seen:
        await restart_apiserver(control_plane)
        await create(transport, namespace, "b")
        await seen.until(lambda: seen.names == {"a", "b"}, seconds=60)
