"""Mount points that pods share, by what is on the host after each step."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trainwright.runner.executors.mount_plan import MountPoint
from trainwright.runner.executors.mount_points import MountPoints, remove_unused


@pytest.fixture
def known(tmp_path: Path) -> Path:
    return tmp_path / "state" / "mount-points"


def end(pod: MountPoints, *points: MountPoint) -> None:
    pod.release()
    remove_unused(pod.folder, points)


def test_the_first_pod_makes_a_mount_point_and_the_last_removes_it(tmp_path: Path, known: Path) -> None:
    outer, inner = MountPoint(f"{tmp_path}/a"), MountPoint(f"{tmp_path}/a/file", is_file=True)
    first, second = MountPoints(known), MountPoints(known)
    for pod in (first, second):
        pod.use(outer)
        pod.use(inner)
    assert second.is_ours(inner.path)

    end(first, outer, inner)
    assert Path(inner.path).is_file()
    end(second, outer, inner)
    assert not Path(outer.path).exists()
    assert not second.is_ours(inner.path)
    assert list(known.iterdir()) == []


def test_what_has_something_in_it_stays(tmp_path: Path, known: Path) -> None:
    folder, file = MountPoint(f"{tmp_path}/folder"), MountPoint(f"{tmp_path}/file", is_file=True)
    pod = MountPoints(known)
    pod.use(folder)
    pod.use(file)
    (tmp_path / "folder" / "kept").touch()
    (tmp_path / "file").write_text("kept")
    end(pod, folder, file)
    assert (tmp_path / "folder" / "kept").exists()
    assert (tmp_path / "file").read_text() == "kept"
    assert not pod.is_ours(folder.path)


def test_a_folder_that_several_containers_needed_goes_after_all_that_is_in_it(
    tmp_path: Path, known: Path
) -> None:
    outer = MountPoint(f"{tmp_path}/a")
    needed = [outer, MountPoint(f"{tmp_path}/a/first"), outer, MountPoint(f"{tmp_path}/a/second")]
    pod = MountPoints(known)
    for point in needed:
        pod.use(point)
    end(pod, *needed)
    assert not Path(outer.path).exists()
    assert list(known.iterdir()) == []


def test_that_of_a_pod_whose_supervisor_was_killed_is_removed(tmp_path: Path, known: Path) -> None:
    """The lock went with the process; the record of what it made is read by whoever reports the job."""
    point = MountPoint(f"{tmp_path}/a")
    program = (
        "import os, sys; from pathlib import Path;"
        "from trainwright.runner.executors.mount_points import MountPoint, MountPoints;"
        "MountPoints(Path(sys.argv[1])).use(MountPoint(sys.argv[2])); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", program, known, point.path], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert Path(point.path).is_dir()
    remove_unused(known, [point])
    assert not Path(point.path).exists()
    assert list(known.iterdir()) == []


def test_a_path_that_no_pod_ever_used_is_left_alone(tmp_path: Path, known: Path) -> None:
    (tmp_path / "mine").mkdir()
    remove_unused(known, [MountPoint(f"{tmp_path}/mine")])
    assert (tmp_path / "mine").is_dir()


def test_a_process_that_is_being_started_holds_no_mount_point(tmp_path: Path, known: Path) -> None:
    """Between fork and exec it has every descriptor of the supervisor, and one more is how it looks here."""
    point = MountPoint(f"{tmp_path}/a")
    pod = MountPoints(known)
    pod.use(point)
    (lock,) = pod._locks.values()
    copy = os.dup(lock)
    try:
        end(pod, point)
        assert not Path(point.path).exists()
    finally:
        os.close(copy)


def test_pods_that_come_and_go_at_once_never_lose_a_mount_point_in_use(tmp_path: Path, known: Path) -> None:
    point = MountPoint(f"{tmp_path}/a")
    losses = []

    def live() -> None:
        for _ in range(200):
            pod = MountPoints(known)
            pod.use(point)
            if not Path(point.path).is_dir():
                losses.append(1)
            end(pod, point)

    pods = [threading.Thread(target=live) for _ in range(4)]
    for pod in pods:
        pod.start()
    for pod in pods:
        pod.join()
    assert losses == []
    assert not Path(point.path).exists()
    assert list(known.iterdir()) == []
