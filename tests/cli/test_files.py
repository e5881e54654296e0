"""Files that the command line names."""

import io
import sys

import pytest

from trainwright.cli.files import read_bytes, read_text
from trainwright.errors import UsageError


def test_a_file_is_read_without_its_byte_order_mark(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"\xef\xbb\xbfA=\xc3\xbc\n")
    assert read_text(str(path)) == "A=ü\n"


def test_a_dash_is_stdin(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x: 1\n")))
    assert read_bytes("-") == b"x: 1\n"


def test_no_such_file_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"job.yaml: no such file in {tmp_path}"):
        read_bytes("job.yaml")


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(UsageError, match="is a directory; name the files in it"):
        read_bytes(str(tmp_path))


def test_a_name_that_no_file_can_have(tmp_path):
    with pytest.raises(UsageError, match="null"):
        read_bytes(f"{tmp_path}/a\0b")


def test_a_way_through_a_file_cannot_be_read(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(UsageError, match="cannot be read: Not a directory"):
        read_bytes(str(tmp_path / "f" / "g"))


def test_bytes_that_are_no_text_have_their_line(tmp_path):
    path = tmp_path / "train.env"
    path.write_bytes(b"A=1\nB=\xff\n")
    with pytest.raises(UsageError, match=r"train\.env:2: not UTF-8 text"):
        read_text(str(path))
