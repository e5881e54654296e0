"""Mount points that pods share, by what is on the host after each step."""

from __future__ import annotations

import os
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


def test_that_of_a_pod_whose_supervisor_was_killed_is_removed(tmp_path: Path, known: Path) -> None:
    """The lock went with the process; the record of what it made is read by whoever reports the job."""
    point = MountPoint(f"{tmp_path}/a")
    if (child := os.fork()) == 0:
        MountPoints(known).use(point)
        os._exit(0)
    os.waitpid(child, 0)
    assert Path(point.path).is_dir()
    remove_unused(known, [point])
    assert not Path(point.path).exists()
    assert list(known.iterdir()) == []


def test_a_path_that_no_pod_ever_used_is_left_alone(tmp_path: Path, known: Path) -> None:
    (tmp_path / "mine").mkdir()
    remove_unused(known, [MountPoint(f"{tmp_path}/mine")])
    assert (tmp_path / "mine").is_dir()


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
