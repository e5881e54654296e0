"""Where mounts go, as a list of operations, on a host that the test makes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.runner.executors.mount_plan import (
    Mount,
    MountError,
    MountLayout,
    MountPoint,
    _rebuild,
    build_mount_operations,
)

ROOT = Path("/state/root")


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "volume"
    folder.mkdir()
    (folder / "file").touch()
    return folder


def test_a_path_that_exists_is_bound_over_and_the_root_stays(tmp_path, source):
    target = tmp_path / "there"
    target.mkdir()
    layout = build_mount_operations([Mount(source=source, target=str(target), read_only=True)], ROOT)
    assert layout == MountLayout(
        operations=(("bind", str(target), str(source)), ("read-only", str(target))),
    )


def test_links_are_followed(tmp_path, source):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    layout = build_mount_operations([Mount(source=source, target=str(tmp_path / "link"))], ROOT)
    assert layout.operations == (("bind", str(tmp_path / "there"), str(source)),)


def test_a_path_at_the_top_that_does_not_exist_makes_a_new_root(source):
    layout = build_mount_operations([Mount(source=source, target="/trainwright-none/data")], ROOT)
    assert layout.new_root == str(ROOT)
    assert layout.mount_points == ()
    assert layout.operations[-2:] == (
        ("directory", "/state/root/trainwright-none/data"),
        ("bind", "/state/root/trainwright-none/data", str(source)),
    )
    assert ("bind-if-possible", "/state/root/etc", "/etc") in layout.operations


def test_only_the_folders_on_the_way_are_made_anew(source):
    layout = build_mount_operations([Mount(source=source, target="/etc/trainwright-none")], ROOT)
    assert ("bind-if-possible", "/state/root/usr", "/usr") in layout.operations
    assert ("bind-if-possible", "/state/root/etc", "/etc") not in layout.operations
    assert ("bind-if-possible", "/state/root/etc/passwd", "/etc/passwd") in layout.operations


def test_in_a_folder_with_data_the_mount_point_is_made_on_the_host(tmp_path, source):
    target = f"{tmp_path}/work/cache"
    layout = build_mount_operations([Mount(source=source, target=target)], ROOT)
    assert layout == MountLayout(
        operations=(("bind", target, str(source)),),
        mount_points=(MountPoint(f"{tmp_path}/work"), MountPoint(target)),
    )


def test_the_mount_point_of_another_pod_is_used_too(tmp_path, source):
    """With the folders that were made for it, also where this pod would have no reason to keep them."""
    (tmp_path / "work" / "cache").mkdir(parents=True)
    target = f"{tmp_path}/work/cache"
    theirs = {f"{tmp_path}/work", target}
    layout = build_mount_operations(
        [Mount(source=source, target=target)], ROOT, is_mount_point=theirs.__contains__
    )
    assert layout == MountLayout(
        operations=(("bind", target, str(source)),),
        mount_points=(MountPoint(f"{tmp_path}/work"), MountPoint(target)),
    )


class OtherPod:
    """Removes, or makes, a mount point at the moment at which it is asked for the first time."""

    def __init__(self, target: Path, change: Callable[[Path], None], *, knows: tuple[bool, bool]) -> None:
        self._target = target
        self._change = change
        self._first, self._later = knows
        self._is_asked = False

    def is_mount_point(self, path: str) -> bool:
        if path != str(self._target):
            return False
        if self._is_asked:
            return self._later
        self._is_asked = True
        self._change(self._target)
        return self._first


def test_the_mount_point_of_a_pod_that_ends_meanwhile_is_made_anew(tmp_path, source):
    target = tmp_path / "data"
    target.mkdir()
    other = OtherPod(target, Path.rmdir, knows=(False, False))
    mount = Mount(source=source, target=str(target))
    layout = build_mount_operations([mount], ROOT, is_mount_point=other.is_mount_point)
    assert layout.mount_points == (MountPoint(str(target)),)


def test_the_mount_point_of_a_pod_that_begins_meanwhile_is_shared(tmp_path, source):
    target = tmp_path / "data"
    other = OtherPod(target, Path.mkdir, knows=(False, True))
    mount = Mount(source=source, target=str(target))
    layout = build_mount_operations([mount], ROOT, is_mount_point=other.is_mount_point)
    assert layout.mount_points == (MountPoint(str(target)),)


def test_a_file_gets_a_file_as_its_mount_point(tmp_path, source):
    target = f"{tmp_path}/file"
    layout = build_mount_operations([Mount(source=source / "file", target=target)], ROOT)
    assert layout.mount_points == (MountPoint(target, is_file=True),)


def test_inner_mounts_come_after_outer_ones_and_read_only_last(tmp_path, source):
    outer = tmp_path / "outer"
    outer.mkdir()
    mounts = [
        Mount(source=source, target=f"{outer}/in/side"),
        Mount(source=None, target=str(outer), read_only=True),
    ]
    assert build_mount_operations(mounts, ROOT).operations == (
        ("tmpfs", str(outer), "mode=0777"),
        ("directory", f"{outer}/in/side"),
        ("bind", f"{outer}/in/side", str(source)),
        ("read-only", str(outer)),
    )


def test_a_folder_cannot_be_mounted_over_a_file_nor_below_one(tmp_path, source):
    (tmp_path / "plain").touch()
    with pytest.raises(MountError, match="cannot mount a directory at"):
        build_mount_operations([Mount(source=source, target=f"{tmp_path}/plain")], ROOT)
    with pytest.raises(MountError, match="is not a directory"):
        build_mount_operations([Mount(source=source, target=f"{tmp_path}/plain/below")], ROOT)


def test_links_that_come_and_go_in_a_directory_that_is_rebuilt_are_taken_as_they_are(tmp_path):
    (tmp_path / "stays").symlink_to("somewhere")
    others = [tmp_path / f"link-{number}" for number in range(5)]
    ended = threading.Event()

    def churn() -> None:
        while not ended.is_set():
            for link in others:
                link.symlink_to("elsewhere")
            for link in others:
                link.unlink()

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        for _ in range(300):
            operations = list(_rebuild(str(tmp_path), set(), "/new"))
            assert ("link", f"/new{tmp_path}/stays", "somewhere") in operations
    finally:
        ended.set()
        churning.join()
