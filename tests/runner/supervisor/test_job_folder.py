"""What a deleted job left is removed by whoever comes first: its supervisor, or one of several commands."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import StatePaths
from trainwright.runner.executors.process_identity import read_identity
from trainwright.runner.supervisor.job_folder import forget_job, remove_job
from trainwright.runner.supervisor.supervisor_lock import (
    Supervisor,
    SupervisorLock,
    find_live_supervisor,
    holding,
    list_marked,
)

ROUNDS = 300


def test_many_forget_the_same_job_at_the_same_time(tmp_path: Path) -> None:
    """The folder vanishes between any two steps of the rest, also between making it and opening its lock."""
    paths = StatePaths(tmp_path)

    def supervise_and_forget() -> None:
        for _ in range(ROUNDS):
            with holding(paths, "uid") as lock:
                if lock is not None:
                    remove_job(paths, "uid")
            forget_job(paths, "uid")

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(supervise_and_forget) for _ in range(4)]:
            done.result()
    assert forget_job(paths, "uid")
    assert not paths.job("uid").root.exists()


def test_a_job_with_a_supervisor_is_left_to_it(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path)
    with holding(paths, "uid"):
        assert not forget_job(paths, "uid")
        assert paths.job("uid").root.exists()
    assert forget_job(paths, "uid")
    assert not paths.job("uid").root.exists()


@pytest.mark.parametrize("uid", ["0d5a", "7c11", "e93f"])
def test_a_lock_is_free_again_only_when_its_folder_is_gone(tmp_path: Path, uid: str) -> None:
    """Else what the next holder writes would be removed with the rest."""
    paths = StatePaths(tmp_path)

    def find_beside_the_lock() -> list[str]:
        lock = SupervisorLock(paths, uid)
        while not lock.try_acquire():
            pass
        found = [file.name for file in paths.job(uid).root.iterdir()]
        lock.abandon()
        return found

    with holding(paths, uid), ThreadPoolExecutor(1) as threads:
        for pod in range(8):
            paths.job(uid).pod(f"pod-{pod}").mkdir(parents=True)
            for log in range(50):
                (paths.job(uid).pod(f"pod-{pod}") / f"{log}.log").touch()
        found = threads.submit(find_beside_the_lock)
        remove_job(paths, uid)
        assert found.result() == ["lock"]


def test_whoever_removed_a_job_takes_nothing_from_the_next_holder_of_its_lock(tmp_path: Path) -> None:
    """1. A supervisor finds its job deleted, and removes its folder. 2. Another one, which began just before
    the job was deleted, gets the lock and says so. 3. The first one ends.
    """
    paths, key = StatePaths(tmp_path), ObjectKey("TrainJob", "default", "demo")
    first, second = SupervisorLock(paths, "uid"), SupervisorLock(paths, "uid")
    assert first.try_acquire()
    first.sign(key)
    remove_job(paths, "uid")
    assert second.try_acquire()
    second.sign(key)
    first.release()

    assert find_live_supervisor(paths.job("uid")) == Supervisor(read_identity(os.getpid()), "default", "demo")
    assert list_marked(paths) == ["uid"]
    second.release()


def test_locking_a_job_that_is_gone_leaves_no_folder(tmp_path: Path) -> None:
    """Whoever heard of the job before it was removed makes its folder anew in order to lock it."""
    paths = StatePaths(tmp_path)
    with holding(paths, "uid") as lock:
        assert lock is not None
    assert list(paths.jobs.iterdir()) == []
