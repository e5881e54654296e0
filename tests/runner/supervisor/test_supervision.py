"""That no change of a job falls between two supervisors, and how the lock tells who is at work."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runner.lab import Lab, replicated_job
from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import StatePaths
from trainwright.runner.executors.process_identity import (
    ProcessIdentity,
    is_alive,
    read_identity,
    send_signal,
)
from trainwright.runner.pods.pod_context import Surroundings
from trainwright.runner.supervisor import supervision
from trainwright.runner.supervisor.handshake import BUSY, STARTED, Handshake
from trainwright.runner.supervisor.job_folder import forget_job
from trainwright.runner.supervisor.lost import report_lost
from trainwright.runner.supervisor.supervision import acquire_patiently, keep_supervised, needs_supervisor
from trainwright.runner.supervisor.supervisor_lock import (
    Supervisor,
    SupervisorLock,
    find_live_supervisor,
    get_mark,
    holding,
    list_marked,
    read_supervisor,
)
from trainwright.runner.supervisor.supervisor_process import supervise

KEY = ObjectKey("TrainJob", "default", "demo")
UID = "0d5a"


@pytest.fixture
def paths(tmp_path: Path) -> StatePaths:
    return StatePaths(tmp_path / "state")


def test_a_held_lock_names_its_holder_and_leaves_a_mark(paths: StatePaths) -> None:
    lock = SupervisorLock(paths, UID)
    assert lock.try_acquire()
    lock.sign(KEY)

    supervisor = find_live_supervisor(paths.job(UID))
    assert supervisor == Supervisor(read_identity(os.getpid()), "default", "demo")
    assert supervisor.key == KEY
    assert list_marked(paths) == [UID]
    assert not SupervisorLock(paths, UID).try_acquire()

    lock.release()
    assert list_marked(paths) == []
    assert read_supervisor(paths.job(UID)) is None
    assert paths.job(UID).lock.exists()


def test_an_abandoned_lock_is_free_and_keeps_its_mark(paths: StatePaths) -> None:
    lock = SupervisorLock(paths, UID)
    lock.try_acquire()
    lock.sign(KEY)
    lock.abandon()

    assert not lock.is_held
    assert list_marked(paths) == [UID]
    with holding(paths, UID) as held:
        assert held is not None


def test_a_lock_file_that_was_removed_is_not_the_lock(paths: StatePaths) -> None:
    """Whoever deletes a job removes its folder while it holds the lock; the next one must not join it."""
    first = SupervisorLock(paths, UID)
    assert first.try_acquire()
    paths.job(UID).lock.unlink()
    second = SupervisorLock(paths, UID)
    assert second.try_acquire()
    assert paths.job(UID).lock.exists()
    first.abandon()
    assert not SupervisorLock(paths, UID).try_acquire()
    second.abandon()


def test_a_file_that_is_cut_off_names_nobody(paths: StatePaths) -> None:
    paths.job(UID).root.mkdir(parents=True)
    paths.job(UID).supervisor.write_text('{"process": {"pid"')

    assert find_live_supervisor(paths.job(UID)) is None


async def test_the_lock_is_not_handed_to_programs_that_are_started(paths: StatePaths) -> None:
    lock = SupervisorLock(paths, UID)
    lock.try_acquire()
    program = await asyncio.create_subprocess_exec("/bin/cat", stdin=asyncio.subprocess.PIPE, close_fds=False)
    lock.abandon()
    with holding(paths, UID) as held:
        assert held is not None, "the program holds it still"
    await program.communicate(b"")


class TestIdentity:
    def test_a_process_is_itself(self) -> None:
        identity = read_identity(os.getpid())
        assert identity is not None
        assert is_alive(identity)

    def test_another_process_of_the_same_pid_is_not(self) -> None:
        identity = read_identity(os.getpid())
        assert identity is not None
        earlier = ProcessIdentity(identity.pid, identity.start_time - 1, identity.boot)
        assert not is_alive(earlier)
        assert not send_signal(earlier, 0)

    def test_a_process_of_another_boot_is_not(self) -> None:
        identity = read_identity(os.getpid())
        assert identity is not None
        assert not is_alive(ProcessIdentity(identity.pid, identity.start_time, "another"))

    async def test_a_process_that_ended_is_not_alive_even_before_it_is_collected(self) -> None:
        """The child is a zombie from its end until `wait`."""
        process = await asyncio.create_subprocess_exec("/bin/cat", stdin=asyncio.subprocess.PIPE)
        identity = read_identity(process.pid)
        assert identity is not None
        assert is_alive(identity)
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
        assert not is_alive(identity)
        assert read_identity(process.pid) is None


class TestPatience:
    def test_a_supervisor_at_work_is_not_waited_for(self, paths: StatePaths) -> None:
        lock = SupervisorLock(paths, UID)
        lock.try_acquire()
        lock.sign(KEY)

        assert not acquire_patiently(SupervisorLock(paths, UID), paths, UID)
        lock.release()

    async def test_a_command_that_holds_the_lock_for_a_moment_is_waited_for(self, paths: StatePaths) -> None:
        with holding(paths, UID):
            waiting = asyncio.create_task(
                asyncio.to_thread(acquire_patiently, SupervisorLock(paths, UID), paths, UID)
            )
            await asyncio.wait({waiting}, timeout=0.05)
            assert not waiting.done()
        assert await waiting

    def test_somebody_who_never_lets_go_is_named_by_the_file(self, paths: StatePaths) -> None:
        with holding(paths, UID), pytest.raises(supervision.LockHeld, match=str(paths.job(UID).lock)):
            acquire_patiently(SupervisorLock(paths, UID), paths, UID, patience_seconds=0.05)


async def test_a_change_that_comes_while_a_supervisor_ends_is_not_lost(lab: Lab) -> None:
    """1. The supervisor finds the job suspended and decides to end; it still holds the lock.
    2. A command resumes the job: it writes the store ...
    3. ... and wants to start a supervisor: one is at work, so it leaves it at that.
    4. The supervisor gives the lock back and looks at the store once more.
    5. It sees what was written, takes the lock again, and the job runs.
    """
    await lab.submit(replicated_job("node", "exit 0", step="trainer"), suspend=True)
    uid = (await lab.get())["metadata"]["uid"]
    told: list[Handshake] = []
    lock = SupervisorLock(lab.paths, uid)
    lock.try_acquire()
    rounds = 0

    async def work() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:  # steps 1 to 3
            await lab.resume()
            await supervise(lab.paths, lab.key(), Surroundings(lab.environment, lab.work), told.append)
        else:
            await lab.patch({"spec": {"suspend": True}})  # what was asked for is done

    await keep_supervised(
        lock, lab.key(), work, lambda: needs_supervisor(lab.cluster, lab.paths, lab.key(), uid)
    )
    assert [answer.result for answer in told] == [BUSY]
    assert rounds == 2
    assert not lock.is_held


async def test_a_change_that_comes_after_a_supervisor_ended_finds_the_lock_free(lab: Lab) -> None:
    """1. The supervisor gives the lock back.
    2. A command writes the store ...
    3. ... and takes the lock.
    4. The supervisor looks at the store and sees work, but the lock is taken: it ends.
    """
    await lab.submit(replicated_job("node", "exit 0", step="trainer"), suspend=True)
    uid = (await lab.get())["metadata"]["uid"]
    lock, other = SupervisorLock(lab.paths, uid), SupervisorLock(lab.paths, uid)
    lock.try_acquire()
    rounds = 0

    async def work() -> None:
        nonlocal rounds
        rounds += 1

    async def has_work() -> bool:
        await lab.resume()
        assert other.try_acquire()
        return await needs_supervisor(lab.cluster, lab.paths, lab.key(), uid)

    await keep_supervised(lock, lab.key(), work, has_work)
    assert rounds == 1
    assert not lock.is_held
    other.release()


async def test_a_supervisor_that_crashes_leaves_its_mark(lab: Lab) -> None:
    await lab.submit(replicated_job("node", "exit 0", step="trainer"))
    uid = (await lab.get())["metadata"]["uid"]
    lock = SupervisorLock(lab.paths, uid)
    lock.try_acquire()

    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await keep_supervised(
            lock, lab.key(), work, lambda: needs_supervisor(lab.cluster, lab.paths, lab.key(), uid)
        )
    assert not lock.is_held
    assert get_mark(lab.paths, uid).exists()


NEEDS = {
    "a job that should run": ({}, {}, True),
    "a suspended job that never ran": ({"suspend": True}, {}, False),
    "a job of another controller": ({"managedBy": "kueue.x-k8s.io/multikueue"}, {}, False),
    "a finished job": ({}, {"conditions": [{"type": "Failed", "status": "True"}]}, False),
}


@pytest.mark.parametrize("case", NEEDS.values(), ids=NEEDS)
async def test_which_jobs_need_a_supervisor(lab: Lab, case: tuple[dict, dict, bool]) -> None:
    spec, status, expected = case
    uid = (await lab.submit(replicated_job("node", "exit 0"), **spec))["metadata"]["uid"]
    await lab.cluster.patch_status(lab.key(), {"status": status})

    assert await needs_supervisor(lab.cluster, lab.paths, lab.key(), uid) is expected


async def test_a_job_whose_suspension_is_not_carried_out_needs_a_supervisor(lab: Lab) -> None:
    uid = (await lab.submit(replicated_job("node", "exit 0"), suspend=True))["metadata"]["uid"]
    await lab.cluster.create(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "demo", "namespace": "default"},
            "spec": {"replicatedJobs": []},
        }
    )

    assert await needs_supervisor(lab.cluster, lab.paths, lab.key(), uid)


async def test_a_deleted_job_needs_one_as_long_as_its_folder_is_there(lab: Lab) -> None:
    uid = (await lab.submit(replicated_job("node", "exit 0")))["metadata"]["uid"]
    lab.paths.job(uid).root.mkdir(parents=True)
    await lab.cluster.delete(lab.key())
    assert await needs_supervisor(lab.cluster, lab.paths, lab.key(), uid)

    lab.paths.job(uid).root.rmdir()
    assert not await needs_supervisor(lab.cluster, lab.paths, lab.key(), uid)


async def test_the_first_word_of_a_supervisor_is_that_it_has_begun(lab: Lab) -> None:
    await lab.submit(replicated_job("node", "exit 0"), suspend=True)
    uid = (await lab.get())["metadata"]["uid"]
    told: list[Handshake] = []
    await supervise(lab.paths, lab.key(), Surroundings(lab.environment, lab.work), told.append)

    assert told == [Handshake(STARTED, str(lab.paths.job(uid).supervisor_log))]


async def test_a_supervisor_that_died_before_it_could_say_who_it_was_is_found_by_its_mark(lab: Lab) -> None:
    """1. A supervisor takes the lock and leaves its mark ...
    2. ... and is killed before it has written supervisor.json.
    3. The next command finds the mark and a free lock: the job, of which nothing ran, can be resumed.
    """
    uid = (await lab.submit(replicated_job("node", "exit 0")))["metadata"]["uid"]
    lock = SupervisorLock(lab.paths, uid)
    lock.try_acquire()
    lock.sign(lab.key())
    lab.paths.job(uid).supervisor.unlink()
    lock.abandon()

    assert await report_lost(lab.cluster, lab.paths) == [lab.key()]
    assert (await lab.get())["spec"]["suspend"] is True
    assert list_marked(lab.paths) == []


async def test_a_mark_that_cannot_be_read_is_removed(lab: Lab) -> None:
    get_mark(lab.paths, UID).parent.mkdir(parents=True)
    get_mark(lab.paths, UID).write_text("{")

    assert await report_lost(lab.cluster, lab.paths) == []
    assert list_marked(lab.paths) == []


async def test_a_lost_job_that_another_command_removes_meanwhile_leaves_no_folder(lab: Lab) -> None:
    """1. A command finds the marks of two lost jobs. 2. While it reports the first, another command removes
    the second, which was deleted. 3. The first command comes to the second, and leaves nothing.
    """
    locks = {}
    for name in ("one", "two"):
        uid = (await lab.submit(replicated_job("node", "exit 0"), name=name))["metadata"]["uid"]
        locks[uid] = SupervisorLock(lab.paths, uid)
        locks[uid].try_acquire()
        locks[uid].sign(lab.key(name))
        locks[uid].abandon()
    first, second = sorted(locks)
    names = {job["metadata"]["uid"]: job["metadata"]["name"] for job in await lab.list("TrainJob")}
    await lab.cluster.delete(lab.key(names[second]))

    def clock() -> datetime:
        assert forget_job(lab.paths, second)
        return datetime.now(UTC)

    assert await report_lost(lab.cluster, lab.paths, clock=clock) == [lab.key(names[first])]
    assert not lab.paths.job(second).root.exists()
    assert list_marked(lab.paths) == []
