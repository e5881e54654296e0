"""Where mounts go, as a list of operations, on a host that the test makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.runner.executors.mount_plan import (
    Mount,
    MountError,
    MountLayout,
    MountPoint,
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
