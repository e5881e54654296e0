"""What the embedded store does beyond the port: several processes, crashes, bounded history."""

import asyncio
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from cluster.samples import config_map, event_about, key_of, owned_by, pod, train_job
from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.records import TOMBSTONES_KEPT
from trainwright.cluster.local.store import LocalCluster
from trainwright.cluster.port import Change, ChangeType, Expired
from trainwright.errors import Conflict, InvalidObject, NotFound, StateDirectoryError


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


def start_child(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def let_go(*children):
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()


async def take(changes, count):
    async with asyncio.timeout(60):
        return [await anext(changes) for _ in range(count)]


async def test_the_clock_stamps_objects(path):
    with LocalCluster(path, Clock()) as cluster:
        created = await cluster.create(train_job("demo"))
    assert created["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"


async def test_objects_survive_closing(path):
    with LocalCluster(path) as cluster:
        created = await cluster.create(train_job("demo"))
    with LocalCluster(path) as cluster:
        assert await cluster.get(key_of(created)) == created


async def test_one_is_not_true(path):
    with LocalCluster(path) as cluster:
        created = await cluster.create({**train_job("demo"), "spec": {"x": 1}})
        changed = await cluster.patch(key_of(created), {"spec": {"x": True}})
        assert changed["spec"]["x"] is True
        assert changed["metadata"]["generation"] == 2


async def test_a_child_of_an_owner_that_is_gone_is_refused(path):
    with LocalCluster(path) as cluster:
        job = await cluster.create(train_job("demo"))
        await cluster.delete(key_of(job))
        with pytest.raises(Conflict, match=r"its owner .* does not exist any more"):
            await cluster.create(pod("child", ownerReferences=owned_by(job)))
        other = await cluster.create(pod("other"))
        with pytest.raises(Conflict, match="its owner"):
            await cluster.patch(key_of(other), {"metadata": {"ownerReferences": owned_by(job)}})


async def test_a_shared_child_forgets_the_owner_that_is_gone(path):
    with LocalCluster(path) as cluster:
        first, second = await cluster.create(train_job("a")), await cluster.create(train_job("b"))
        shared = await cluster.create(config_map("shared", ownerReferences=owned_by(first, second)))
        await cluster.delete(key_of(first))
        left = await cluster.get(key_of(shared))
        assert left["metadata"]["ownerReferences"] == owned_by(second)


async def test_a_status_for_an_earlier_object_is_a_conflict(path):
    with LocalCluster(path) as cluster:
        earlier = await cluster.create(train_job("demo"))
        await cluster.delete(key_of(earlier))
        later = await cluster.create(train_job("demo"))
        meant = {"metadata": {"uid": earlier["metadata"]["uid"]}, "status": {"phase": "Complete"}}
        with pytest.raises(Conflict, match="another object than the one that was meant"):
            await cluster.patch_status(key_of(later), meant)
        assert await cluster.get(key_of(later)) == later


async def test_an_apply_needs_a_name(path):
    nameless = {**train_job("x"), "metadata": {"generateName": "x-", "namespace": "default"}}
    with LocalCluster(path) as cluster, pytest.raises(InvalidObject, match=r"metadata\.name"):
        await cluster.apply(nameless, "cli")


async def test_a_patch_that_makes_no_object_is_refused(path):
    with LocalCluster(path) as cluster:
        created = await cluster.create(train_job("demo"))
        for merge in ({"metadata": "x"}, {"apiVersion": None}, {"metadata": {"labels": {"a": 1}}}):
            with pytest.raises(InvalidObject):
                await cluster.patch(key_of(created), merge)
        with pytest.raises(InvalidObject, match="status: must be a map"):
            await cluster.patch_status(key_of(created), {"status": "Running"})
        assert await cluster.get(key_of(created)) == created


async def test_a_bit_that_flipped_within_an_object_is_said(path):
    """SQLite has no checksums; the object itself does not read any more."""
    with LocalCluster(path) as cluster:
        created = await cluster.create(train_job("demo"))
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"kind":"TrainJob"', b'"kind":"TrainJo\xff"'))
    with LocalCluster(path) as cluster:
        for read in (cluster.get(key_of(created)), cluster.list("TrainJob")):
            with pytest.raises(StateDirectoryError, match=r"damaged .* move it away"):
                await read


# Watches


async def test_an_object_that_came_and_went_unseen_is_not_told(path):
    with LocalCluster(path) as cluster:
        start = (await cluster.list("Pod")).resource_version
        await cluster.create(pod("short"))
        await cluster.delete(ObjectKey("Pod", "default", "short"))
        last = await cluster.create(pod("last"))
        changes = cluster.watch(["Pod"], None, start)
        assert await take(changes, 1) == [Change(ChangeType.ADDED, last)]
        await changes.aclose()


async def test_states_that_were_overwritten_unseen_are_not_told(path):
    with LocalCluster(path) as cluster:
        start = (await cluster.list("Pod")).resource_version
        await cluster.create(pod("p"))
        for number in range(5):
            last = await cluster.patch(ObjectKey("Pod", "default", "p"), {"spec": {"number": number}})
        changes = cluster.watch(["Pod"], None, start)
        assert await take(changes, 1) == [Change(ChangeType.ADDED, last)]
        await changes.aclose()


async def test_an_object_made_anew_is_told_as_deleted_and_added(path):
    with LocalCluster(path) as cluster:
        first = await cluster.create(pod("p"))
        changes = cluster.watch(["Pod"], None, first["metadata"]["resourceVersion"])
        await cluster.delete(key_of(first))
        second = await cluster.create(pod("p"))
        deleted, added = await take(changes, 2)
        assert (deleted.type, deleted.object["metadata"]["uid"]) == (
            ChangeType.DELETED,
            first["metadata"]["uid"],
        )
        assert added == Change(ChangeType.ADDED, second)
        await changes.aclose()


@pytest.mark.parametrize("first", [[], ["shifts-every-version-by-one"]], ids=["even", "odd"])
async def test_a_watch_from_before_the_remembered_deletions_is_expired(path, first):
    with LocalCluster(path) as cluster:
        for name in first:
            await cluster.create(pod(name))
        start = (await cluster.list("Pod")).resource_version
        for _ in range(TOMBSTONES_KEPT + 64):
            await cluster.create(pod("p"))
            await cluster.delete(ObjectKey("Pod", "default", "p"))
        with pytest.raises(Expired):
            await take(cluster.watch(["Pod"], None, start), 1)
        listed = await cluster.list("Pod")
        changes = cluster.watch(["Pod"], None, listed.resource_version)
        created = await cluster.create(pod("p"))
        assert await take(changes, 1) == [Change(ChangeType.ADDED, created)]
        await changes.aclose()
        remembered = cluster._connection.execute("SELECT count(*) FROM tombstones").fetchone()[0]
        assert remembered <= TOMBSTONES_KEPT + 64


async def test_a_watch_from_a_version_of_another_store_is_expired(path):
    """The state directory was deleted and made anew while somebody remembered where he was."""
    with LocalCluster(path) as cluster, pytest.raises(Expired):
        await take(cluster.watch(["Pod"], None, "99"), 1)


async def test_a_watch_that_sees_other_kinds_go_by_does_not_expire(path):
    with LocalCluster(path) as cluster:
        start = (await cluster.list("TrainJob")).resource_version
        changes = cluster.watch(["TrainJob"], None, start)
        waiting = asyncio.create_task(take(changes, 1))
        for _ in range(TOMBSTONES_KEPT + 64):
            await cluster.create(pod("p"))
            await cluster.delete(ObjectKey("Pod", "default", "p"))
            await asyncio.sleep(0)
        created = await cluster.create(train_job("demo"))
        assert await waiting == [Change(ChangeType.ADDED, created)]
        await changes.aclose()


async def test_a_long_history_is_told_completely_and_in_order(path):
    with LocalCluster(path) as cluster:
        start = (await cluster.list("Pod")).resource_version
        made = [await cluster.create(pod(f"p{number:04}")) for number in range(600)]
        changes = cluster.watch(["Pod"], None, start)
        assert [change.object for change in await take(changes, 600)] == made
        await changes.aclose()


async def test_closing_the_store_ends_its_watches(path):
    cluster = LocalCluster(path)
    changes = cluster.watch(["Pod"], None, "0")

    async def consume():
        return [change async for change in changes]

    waiting = asyncio.create_task(consume())
    await asyncio.sleep(0)
    cluster.close()
    async with asyncio.timeout(5):
        assert await waiting == []


async def test_two_stores_on_one_file_see_each_other(path):
    with LocalCluster(path) as one, LocalCluster(path) as two:
        changes = two.watch(["Pod"], None, (await two.list("Pod")).resource_version)
        waiting = asyncio.create_task(take(changes, 1))
        await asyncio.sleep(0)
        created = await one.create(pod("p"))
        assert await waiting == [Change(ChangeType.ADDED, created)]
        await changes.aclose()


# Events


async def test_events_stay_as_long_as_their_object_and_an_hour_longer(path):
    clock = Clock()
    with LocalCluster(path, clock) as cluster:
        job, other = await cluster.create(train_job("demo")), await cluster.create(train_job("other"))
        uid = job["metadata"]["uid"]
        await cluster.record_event(event_about(job))
        clock.now += timedelta(days=2)
        await cluster.record_event(event_about(other, message="1"))
        assert len(await cluster.list_events("default", [uid])) == 1
        await cluster.delete(key_of(job))
        clock.now += timedelta(minutes=59)
        await cluster.record_event(event_about(other, message="2"))
        assert len(await cluster.list_events("default", [uid])) == 1
        clock.now += timedelta(minutes=2)
        await cluster.record_event(event_about(other, message="3"))
        assert list(await cluster.list_events("default", [uid])) == []


async def test_a_repeated_event_has_its_first_and_last_time(path):
    clock = Clock()
    with LocalCluster(path, clock) as cluster:
        job = await cluster.create(train_job("demo"))
        await cluster.record_event(event_about(job))
        clock.now += timedelta(minutes=5)
        await cluster.record_event(event_about(job))
        (event,) = await cluster.list_events("default", [job["metadata"]["uid"]])
        assert (event["firstTimestamp"], event["lastTimestamp"], event["count"]) == (
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:05:00Z",
            2,
        )


# Secrets


async def test_a_deleted_secret_leaves_no_content_to_watches(path):
    with LocalCluster(path) as cluster:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s"},
            "stringData": {"k": "hidden"},
        }
        created = await cluster.create(secret)
        changes = cluster.watch(["Secret"], None, created["metadata"]["resourceVersion"])
        await cluster.delete(key_of(created))
        (deleted,) = await take(changes, 1)
        assert "data" not in deleted.object
        await changes.aclose()


# Processes


INCREMENT = """
import asyncio, sys
from pathlib import Path
from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.store import LocalCluster
from trainwright.errors import Conflict

KEY = ObjectKey("TrainJob", "default", "shared")

async def main(path, label, count):
    with LocalCluster(path) as cluster:
        sys.stdin.readline()
        for number in range(count):
            await cluster.patch(KEY, {"metadata": {"labels": {f"{label}-{number}": "1"}}})
            while True:
                job = await cluster.get(KEY)
                version = job["metadata"]["resourceVersion"]
                count = job["spec"]["count"] + 1
                raised = {"metadata": {"resourceVersion": version}, "spec": {"count": count}}
                try:
                    await cluster.patch(KEY, raised)
                    break
                except Conflict:
                    pass

asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
"""


async def test_two_processes_that_write_one_object_lose_no_update(path):
    """Each adds labels of its own by plain patches, and counts in a field by read, compare and write."""
    with LocalCluster(path) as cluster:
        shared = await cluster.create({**train_job("shared"), "spec": {"count": 0}})
        children = [start_child(INCREMENT, path, label, 100) for label in ("a", "b")]
        let_go(*children)
        for child in children:
            child.communicate(timeout=60)
        assert [child.returncode for child in children] == [0, 0]
        job = await cluster.get(key_of(shared))
        assert job["spec"] == {"count": 200}
        assert len(job["metadata"]["labels"]) == 200
        assert int(job["metadata"]["resourceVersion"]) == 401


WRITE_FOREVER = """
import asyncio, sys
from pathlib import Path
from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.store import LocalCluster

async def main(path):
    with LocalCluster(path) as cluster:
        number = 0
        while True:
            job = await cluster.create({
                "apiVersion": "v1", "kind": "TrainJob", "metadata": {"generateName": "j-"},
                "spec": {"x": "y" * 3000},
            })
            metadata = job["metadata"]
            owner = {"apiVersion": "v1", "kind": "TrainJob", "name": metadata["name"], "uid": metadata["uid"]}
            for name in ("a", "b"):
                await cluster.create({
                    "apiVersion": "v1", "kind": "Pod", "metadata": {
                        "name": metadata["name"] + "-" + name, "labels": {"job": metadata["name"]},
                        "ownerReferences": [owner],
                    },
                })
            key = ObjectKey("TrainJob", "default", metadata["name"])
            await cluster.patch_status(key, {"status": {"phase": "Running"}})
            print(metadata["name"], flush=True)
            if number % 2:
                await cluster.delete(key)
            number += 1

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_a_process_killed_in_the_middle_of_writing_leaves_a_whole_store(path):
    """1. A process creates jobs with children and deletes every second one, as fast as it can.
    2. It is killed with SIGKILL at some moment; what it reported as written is there.
    3. The file is sound, indexes fit the objects, and no child is without its owner; again, ten times.
    """
    LocalCluster(path).close()
    for attempt in range(10):
        child = start_child(WRITE_FOREVER, path)
        reported = [child.stdout.readline().strip() for _ in range(3 + 5 * attempt)]
        child.send_signal(signal.SIGKILL)
        reported += child.communicate(timeout=30)[0].split()
        with LocalCluster(path) as cluster:
            connection = cluster._connection
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
            jobs = {job["metadata"]["name"]: job for job in (await cluster.list("TrainJob")).items}
            pods = (await cluster.list("Pod")).items
            owners = {job["metadata"]["uid"] for job in jobs.values()}
            assert {p["metadata"]["ownerReferences"][0]["uid"] for p in pods} <= owners
            for p in pods:
                labelled = await cluster.list("Pod", "default", p["metadata"]["labels"])
                assert p in labelled.items
            for name in reported[:-1:2]:
                assert jobs[name]["status"] == {"phase": "Running"}
                assert len([p for p in pods if p["metadata"]["labels"]["job"] == name]) == 2
            for name in reported[1:-1:2]:
                assert name not in jobs
            await cluster.create(train_job(f"after-{attempt}"))
            for job in (await cluster.list("TrainJob")).items:
                await cluster.delete(key_of(job))
            assert (await cluster.list("Pod")).items == []


CREATE_ONE = """
import asyncio, sys
from pathlib import Path
from trainwright.cluster.local.store import LocalCluster

async def main(path):
    with LocalCluster(path) as cluster:
        print("ready", flush=True)
        sys.stdin.readline()
        await cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})

asyncio.run(main(Path(sys.argv[1])))
"""


async def test_a_watch_sees_what_another_process_does(path):
    with LocalCluster(path) as cluster:
        changes = cluster.watch(["Pod"], None, (await cluster.list("Pod")).resource_version)
        child = start_child(CREATE_ONE, path)
        assert child.stdout.readline() == "ready\n"
        waiting = asyncio.create_task(take(changes, 1))
        await asyncio.sleep(0)
        let_go(child)
        (change,) = await waiting
        assert change.object["metadata"]["name"] == "p"
        child.communicate(timeout=60)
        await changes.aclose()


async def test_waiting_costs_next_to_nothing(path):
    """A supervisor waits for hours. The bound is ten times what was measured on a busy machine."""
    with LocalCluster(path) as cluster:
        waiting = asyncio.create_task(anext(cluster.watch(["Pod"], None, "0")))
        await asyncio.sleep(0)
        before = time.process_time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.shield(waiting)
        used = time.process_time() - before
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert used < 0.05


async def test_a_namespace_of_none_given_is_the_default_one(path):
    with LocalCluster(path) as cluster:
        nowhere = train_job("demo")
        del nowhere["metadata"]["namespace"]
        created = await cluster.create(nowhere)
        assert created["metadata"]["namespace"] == "default"
        assert await cluster.get(ObjectKey("TrainJob", "", "demo")) == created


async def test_a_missing_object_is_named_with_its_namespace(path):
    with (
        LocalCluster(path) as cluster,
        pytest.raises(NotFound, match=r"TrainJob 'demo' does not exist; .* namespace 'team-a'"),
    ):
        await cluster.get(ObjectKey("TrainJob", "team-a", "demo"))
