"""What a deleted job left is removed by whoever comes first: its supervisor, or one of several commands."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainwright.cluster.local.paths import StatePaths
from trainwright.runner.supervisor.job_folder import forget_job, remove_job
from trainwright.runner.supervisor.supervisor_lock import holding

ROUNDS = 300


def test_many_forget_the_same_job_at_the_same_time(tmp_path: Path) -> None:
    """A folder vanishes between every two calls of the others, also between making it and opening its lock."""
    paths = StatePaths(tmp_path)

    def forget() -> None:
        for _ in range(ROUNDS):
            (paths.job("uid").root / "pods").mkdir(parents=True, exist_ok=True)
            forget_job(paths, "uid")

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(forget) for _ in range(4)]:
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
