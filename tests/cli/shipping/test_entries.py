from __future__ import annotations

import pytest

from trainwright.cli.build_train_job import Module, Program, Script
from trainwright.cli.code_sources import (
    CodeUrl,
    CodeVolume,
    NoCode,
    RunWords,
    WorkingDirectory,
    parse_code_options,
)
from trainwright.cli.shipping.entries import check_is_shipped, find_shipped_entry
from trainwright.errors import UsageError


def words(*before: str, after: tuple[str, ...] | None = None, module: str | None = None) -> RunWords:
    return RunWords(module=module, words=before, after_dashes=after)


@pytest.fixture
def root(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    for name in ("train.py", "sub/train.py", "prog"):
        (tmp_path / name).write_text("")
    (tmp_path / "prog").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


FOUND = {
    "a script": (words("train.py", "a"), Script(path="train.py", args=("a",))),
    "a script by a roundabout way": (words("sub/../sub/train.py"), Script(path="sub/train.py")),
    "a program that is sent along": (words("prog", after=("-x",)), Program(path="./prog", args=("-x",))),
    "a program of the image": (words(after=("nvidia-smi", "-L")), Program(path="nvidia-smi", args=("-L",))),
    "a path of the image": (words(after=("/bin/sh", "-c", "id")), Program(path="/bin/sh", args=("-c", "id"))),
    "a module": (words("a", module="pkg.train", after=("b",)), Module(name="pkg.train", args=("a", "b"))),
}


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_what_is_started_in_the_pod(root, case):
    asked, entry = case
    assert find_shipped_entry(asked, WorkingDirectory(), root) == entry


def test_an_absolute_script_below_the_directory_is_where_it_is_in_the_pod(root):
    entry = find_shipped_entry(words(str(root / "sub" / "train.py")), WorkingDirectory(), root)
    assert entry == Script(path="sub/train.py")


@pytest.mark.parametrize("path", ["../train.py", "../sub/../train.py", "../prog"])
def test_a_script_that_lies_elsewhere_is_refused(root, monkeypatch, path):
    monkeypatch.chdir(root / "sub")
    with pytest.raises(UsageError, match=r"is not below .*--code-volume"):
        find_shipped_entry(words(path), WorkingDirectory(), root / "sub")


def test_a_script_may_be_named_by_a_way_that_leads_through_a_link(root, tmp_path_factory):
    link = tmp_path_factory.mktemp("elsewhere") / "link"
    link.symlink_to(root)
    entry = find_shipped_entry(words(str(link / "sub" / "train.py")), WorkingDirectory(), root)
    assert entry == Script(path="sub/train.py")


def test_a_script_that_is_not_there_is_refused(root):
    with pytest.raises(UsageError, match="does not exist"):
        find_shipped_entry(words("nope.py"), WorkingDirectory(), root)


@pytest.mark.parametrize("code", [NoCode(), CodeVolume(claim="c"), CodeUrl(url="http://x/y")])
def test_where_the_code_is_elsewhere_nothing_is_looked_up_here(root, code):
    assert find_shipped_entry(words("opt/nope.py", "1"), code, root) == Script(
        path="opt/nope.py", args=("1",)
    )
    assert find_shipped_entry(words("/opt/run"), code, root) == Program(path="/opt/run")
    assert find_shipped_entry(words(after=("x", "y")), code, root) == Program(path="x", args=("y",))
    assert find_shipped_entry(words(module="m"), code, root) == Module(name="m")
    with pytest.raises(UsageError, match="nothing to run"):
        find_shipped_entry(words(), code, root)


@pytest.mark.parametrize("entry", [Script(path="a/../train.py"), Program(path="./train.py")])
def test_a_script_that_ignore_files_name_is_not_sent_and_told(entry):
    check_is_shipped(entry, {"train.py"})
    with pytest.raises(UsageError, match=r"write `!train\.py` into"):
        check_is_shipped(entry, {"other.py"})


def test_what_is_the_images_need_not_be_sent():
    for entry in (Program(path="sh"), Program(path="/bin/sh"), Module(name="pkg")):
        check_is_shipped(entry, ())


PARSED = {
    "nothing": ((None, None, False), WorkingDirectory()),
    "a claim": (("src", None, False), CodeVolume(claim="src")),
    "a folder of a claim": (("src:/a/b/", None, False), CodeVolume(claim="src", path="a/b")),
    "a url": ((None, "https://x/y.tgz", False), CodeUrl(url="https://x/y.tgz")),
    "no code": ((None, None, True), NoCode()),
}


@pytest.mark.parametrize("case", PARSED.values(), ids=PARSED)
def test_options_choose_where_code_comes_from(case):
    (volume, url, none), source = case
    assert parse_code_options(volume, url, none=none) == source


@pytest.mark.parametrize(
    ("volume", "url", "none", "said"),
    [
        ("c", "http://x/y", False, "--code-volume and --code-url exclude each other"),
        ("c", None, True, "--code-volume and --no-code exclude each other"),
        (":a", None, False, "is not CLAIM"),
        ("c:../a", None, False, "is not CLAIM"),
        (None, "ftp://x/y", False, "is not an http"),
        (None, "file.tgz", False, "is not an http"),
    ],
)
def test_other_options_are_refused(volume, url, none, said):
    with pytest.raises(UsageError, match=said):
        parse_code_options(volume, url, none=none)
