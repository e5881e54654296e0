"""Writes are remembered until the caches show them; a shared snapshot is written once."""

from __future__ import annotations

import asyncio

import pytest

from trainwright.api.meta import Json, ObjectKey
from trainwright.errors import Forbidden, NotFound
from trainwright.operator.expectations import Expectations
from trainwright.operator.tracked import Ledger, SharedSnapshots, TrackedWriter

JOB = ObjectKey("TrainJob", "ns", "demo")
SNAPSHOT = ObjectKey("ConfigMap", "ns", "trainer-runtime-abc")


class Server:
    """Answers writes with the next resource version, or with an error."""

    def __init__(self) -> None:
        self.version = 0
        self.writes: list[str] = []
        self.error: Exception | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def get(self, key: ObjectKey) -> Json:
        raise NotFound(key.kind, key.name)

    async def create(self, obj: Json) -> Json:
        return await self._write(f"create {obj['kind']} {obj['metadata']['name']}")

    async def apply(self, obj: Json, field_manager: str, *, force: bool = True) -> Json:
        return await self._write(f"apply {obj['kind']} {obj['metadata']['name']}")

    async def patch(self, key: ObjectKey, merge: Json) -> Json:
        return await self._write(f"patch {key.kind} {key.name}")

    async def patch_status(self, key: ObjectKey, merge: Json) -> Json:
        return await self._write(f"status {key.kind} {key.name}")

    async def delete(self, key: ObjectKey, uid: str | None = None) -> None:
        await self._write(f"delete {key.kind} {key.name}")

    async def record_event(self, event: object) -> None:
        self.writes.append("event")

    async def _write(self, what: str) -> Json:
        self.writes.append(what)
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        self.version += 1
        return {"metadata": {"resourceVersion": str(self.version)}}


def build(server: Server) -> tuple[TrackedWriter, Ledger]:
    watched = {"TrainJob", "JobSet", "Job"}
    ledger = Ledger(Expectations(), SharedSnapshots(), lambda key: "" if key.kind in watched else None)
    return TrackedWriter(server, JOB, ledger), ledger


def job_set() -> Json:
    return {"kind": "JobSet", "metadata": {"namespace": "ns", "name": "demo"}}


def snapshot() -> Json:
    return {"kind": "ConfigMap", "metadata": {"namespace": SNAPSHOT.namespace, "name": SNAPSHOT.name}}


async def test_a_job_is_current_again_when_every_write_was_seen() -> None:
    writer, ledger = build(Server())
    await writer.patch_status(JOB, {"status": {}})
    await writer.apply(job_set(), "trainer")
    ledger.expectations.see(JOB, "1")
    assert not ledger.expectations.is_current(JOB)
    ledger.expectations.see(ObjectKey("JobSet", "ns", "demo"), "2")
    assert ledger.expectations.is_current(JOB)


async def test_what_is_not_watched_is_not_waited_for() -> None:
    writer, ledger = build(Server())
    await writer.apply({"kind": "Secret", "metadata": {"namespace": "ns", "name": "s"}}, "trainer")
    await writer.delete(ObjectKey("Secret", "ns", "s"))
    assert ledger.expectations.is_current(JOB)


async def test_a_refused_write_is_raised_and_not_waited_for() -> None:
    server = Server()
    writer, ledger = build(server)
    server.error = Forbidden("no")
    for write in (
        writer.apply(job_set(), "trainer"),
        writer.patch(JOB, {}),
        writer.delete(ObjectKey("Job", "ns", "demo-node-0")),
    ):
        with pytest.raises(Forbidden):
            await write
    assert ledger.expectations.is_current(JOB)


async def test_a_deletion_is_waited_for() -> None:
    writer, ledger = build(Server())
    key = ObjectKey("Job", "ns", "demo-node-0")
    await writer.delete(key)
    assert not ledger.expectations.is_current(JOB)
    ledger.expectations.see(key, "")
    assert ledger.expectations.is_current(JOB)


async def test_jobs_that_begin_at_once_write_their_snapshot_once() -> None:
    server = Server()
    writer, ledger = build(server)
    server.may_answer.clear()
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(writer.apply(snapshot(), "trainer")) for _ in range(5)]
        await asyncio.sleep(0)
        server.may_answer.set()
    assert len({str(call.result()) for call in calls}) == 1
    await writer.apply(snapshot(), "trainer")
    assert server.writes == ["apply ConfigMap trainer-runtime-abc"]
    # From now on the caches know it; who asks then, asks because it is gone.
    ledger.snapshots.see(SNAPSHOT)
    await writer.apply(snapshot(), "trainer")
    assert len(server.writes) == 2


async def test_a_snapshot_that_could_not_be_written_is_tried_by_the_next_job() -> None:
    server = Server()
    writer, _ = build(server)
    server.error = NotFound("Namespace", "ns")
    with pytest.raises(NotFound):
        await writer.apply(snapshot(), "trainer")
    server.error = None
    await writer.apply(snapshot(), "trainer")
    assert len(server.writes) == 2


async def test_what_is_created_is_waited_for_like_what_is_applied() -> None:
    writer, ledger = build(Server())
    await writer.create(job_set())
    assert not ledger.expectations.is_current(JOB)
    ledger.expectations.see(ObjectKey("JobSet", "ns", "demo"), "1")
    assert ledger.expectations.is_current(JOB)
