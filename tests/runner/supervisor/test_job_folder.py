"""What a deleted job left is removed by whoever comes first: its supervisor, or one of several commands."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainwright.cluster.local.paths import StatePaths
from trainwright.runner.supervisor.job_folder import forget_job, remove_job
from trainwright.runner.supervisor.supervisor_lock import holding

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
