from __future__ import annotations

import os
import shutil
import socket
import threading

import pytest

from trainwright.cli.shipping import tree
from trainwright.cli.shipping.tree import Entry, TooMuchCode, read_tree
from trainwright.errors import UsageError


def test_files_folders_links_and_modes_are_read_as_they_are(tmp_path):
    (tmp_path / "empty").mkdir(mode=0o750)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "run.sh").write_bytes(b"#!/bin/sh\n\x00\xff")
    (tmp_path / "pkg" / "run.sh").chmod(0o755)
    (tmp_path / "secret").write_bytes(b"")
    (tmp_path / "secret").chmod(0o4600)
    (tmp_path / "pkg" / "up").symlink_to("../secret")
    (tmp_path / "dangling").symlink_to("not//./there")
    mode = (tmp_path / "pkg").stat().st_mode & 0o777
    assert read_tree(tmp_path) == [
        Entry(path="dangling", mode=0o777, target="not//./there"),
        Entry(path="empty", mode=(tmp_path / "empty").stat().st_mode & 0o777),
        Entry(path="pkg", mode=mode),
        Entry(path="pkg/run.sh", mode=0o755, content=b"#!/bin/sh\n\x00\xff"),
        Entry(path="pkg/up", mode=0o777, target="../secret"),
        Entry(path="secret", mode=0o600, content=b""),
    ]


@pytest.mark.parametrize("target", ["/etc/hosts", "..", "../sibling", "pkg/../../x"])
def test_a_link_out_of_the_directory_is_refused(tmp_path, target):
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(UsageError, match=r"link is a link to .* not in this directory.*\.trainwrightignore"):
        read_tree(tmp_path)
    (tmp_path / ".trainwrightignore").write_text("link\n")
    assert [entry.path for entry in read_tree(tmp_path)] == [".trainwrightignore"]


def test_sockets_pipes_and_virtual_environments_are_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        (tmp_path / "env").mkdir()
        (tmp_path / "env" / "pyvenv.cfg").write_text("")
        assert read_tree(tmp_path) == []


def test_a_directory_that_is_far_too_large_is_refused_before_it_is_read(tmp_path):
    with (tmp_path / "data.bin").open("wb") as data:
        data.truncate(tree.MOST_UNPACKED_BYTES + 1)  # a hole: nothing is written
    for number in range(6):
        (tmp_path / f"{number}.txt").write_bytes(b"x" * number)
    with pytest.raises(TooMuchCode) as refused:
        read_tree(tmp_path)
    lines = str(refused.value).splitlines()
    assert "holds 100 MB" in lines[0]
    assert [line.split()[-1] for line in lines[1:6]] == ["data.bin", "5.txt", "4.txt", "3.txt", "2.txt"]
    assert "--code-volume" in lines[6]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_named(tmp_path):
    (tmp_path / "closed").write_text("x")
    (tmp_path / "closed").chmod(0)
    with pytest.raises(UsageError, match=r"closed cannot be read: .*\.trainwrightignore"):
        read_tree(tmp_path)


def test_what_comes_and_goes_meanwhile_is_no_mistake(tmp_path):
    """As the temporary files of editors, and of other programs that are at work in the directory."""
    (tmp_path / "train.py").write_text("x")
    done = threading.Event()

    def come_and_go() -> None:
        while not done.is_set():
            (tmp_path / "cache" / "inner").mkdir(parents=True)
            for number in range(20):
                (tmp_path / "cache" / f"{number}.tmp").write_text("x")
                (tmp_path / "cache" / "inner" / f"{number}.tmp").write_text("x")
            shutil.rmtree(tmp_path / "cache")

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        for _ in range(200):
            assert "train.py" in {entry.path for entry in read_tree(tmp_path)}
    finally:
        done.set()
        other.join()
