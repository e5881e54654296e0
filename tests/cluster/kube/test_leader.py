"""The election against a server that answers late, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import msgspec

from cluster.kube.scripted_server import settle
from trainwright.api.meta import Json
from trainwright.cluster.kube.leader import LeaderElection, LeaseSettings
from trainwright.cluster.kube.requests import Request
from virtual_time import on_virtual_time

RETRY_SECONDS = 40.0


class Server:
    """One lease. An answer says what was so when the request came; it goes out when it may."""

    def __init__(self, holder: str) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.answer_seconds = 0.0
        self.stored = asyncio.Event()
        self.swallows_answers = False
        self._version = 1
        self._spec: Json = {"holderIdentity": holder, "leaseDurationSeconds": 60}
        self._changes: asyncio.Queue[bytes] = asyncio.Queue()

    @property
    def holder(self) -> str:
        return str(self._spec["holderIdentity"])

    def write(self, spec: Json) -> None:
        self._version += 1
        self._spec = spec
        self._changes.put_nowait(msgspec.json.encode({"type": "MODIFIED", "object": self._build()}) + b"\n")

    async def request(self, request: Request) -> bytes:
        if request.method == "PUT":
            await asyncio.sleep(self.answer_seconds)
            self.write(msgspec.json.decode(request.body or b"")["spec"])
            self.stored.set()
            if self.swallows_answers:
                await asyncio.Event().wait()
        answer = msgspec.json.encode(self._build())
        await self.may_answer.wait()
        return answer

    async def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        yield msgspec.json.encode({"type": "ADDED", "object": self._build()}) + b"\n"
        while True:
            yield await self._changes.get()

    def _build(self) -> Json:
        metadata = {"name": "leader", "namespace": "ns", "resourceVersion": str(self._version)}
        return {"metadata": metadata, "spec": self._spec}


def candidate(server: Server, retry_seconds: float = RETRY_SECONDS) -> LeaderElection:
    settings = LeaseSettings(name="leader", namespace="ns", retry_seconds=retry_seconds)
    return LeaderElection(server, settings, "ours")


async def work() -> None:
    return


@on_virtual_time
async def test_a_lease_that_is_given_back_while_it_is_asked_about_is_taken_at_once() -> None:
    """1. We ask for the lease: the other has it, and that answer is on its way. 2. The other gives it back,
    and the watch says so. 3. The answer arrives. 4. We ask again, long before the retry period is over."""
    server = Server("other")
    server.may_answer.clear()
    leading = asyncio.create_task(candidate(server).lead(work))
    await settle()
    server.write({"holderIdentity": ""})
    await settle()
    server.may_answer.set()
    async with asyncio.timeout(RETRY_SECONDS / 2):
        await leading


@on_virtual_time
async def test_a_lease_is_given_back_though_the_server_takes_longer_than_a_retry_period() -> None:
    server = Server("")
    server.answer_seconds = 2.0
    await candidate(server, retry_seconds=0.1).lead(work)
    assert server.holder == ""


@on_virtual_time
async def test_the_end_does_not_wait_for_a_server_that_does_not_answer() -> None:
    server = Server("")

    async def stall() -> None:
        server.may_answer.clear()

    started = asyncio.get_running_loop().time()
    await candidate(server).lead(stall)
    assert asyncio.get_running_loop().time() - started < RETRY_SECONDS / 4


@on_virtual_time
async def test_a_lease_that_was_taken_without_hearing_of_it_is_given_back_too() -> None:
    """1. We take the lease: it is stored, and the answer on its way. 2. We are stopped. 3. Nobody has it."""
    server = Server("")
    server.swallows_answers = True
    leading = asyncio.create_task(candidate(server).lead(work))
    await server.stored.wait()
    server.swallows_answers = False
    leading.cancel()
    await asyncio.wait([leading])
    assert leading.cancelled()
    assert server.holder == ""
