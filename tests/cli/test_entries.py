"""From words to what is run."""

import pytest

from trainwright.cli.build_train_job import Module, Program, Script
from trainwright.cli.entries import find_entry
from trainwright.errors import UsageError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "prog").write_text("#!/bin/sh\n")
    (tmp_path / "prog").chmod(0o755)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text("")
    (tmp_path / "data").mkdir()
    return tmp_path


def find(module=None, words=(), after_dashes=None, path="/usr/bin:/bin"):
    return find_entry(module, words, after_dashes, path)


CASES = {
    "script": ({"words": ["train.py"]}, Script(path="train.py")),
    "script with arguments": (
        {"words": ["train.py", "a"], "after_dashes": ["--lr", "1", "--", "x"]},
        Script(path="train.py", args=("a", "--lr", "1", "--", "x")),
    ),
    "script with nothing after the dashes": (
        {"words": ["train.py"], "after_dashes": []},
        Script(path="train.py"),
    ),
    "directory with a main module": ({"words": ["package"]}, Script(path="package")),
    "executable": ({"words": ["prog"]}, Program(path="./prog")),
    "executable by its path": ({"words": ["./prog"]}, Program(path="./prog")),
    "module": ({"module": "pkg.mod", "after_dashes": ["-x"]}, Module(name="pkg.mod", args=("-x",))),
    "module with words": (
        {"module": "pkg.mod", "words": ["a", "b"], "after_dashes": ["c"]},
        Module(name="pkg.mod", args=("a", "b", "c")),
    ),
    "program": ({"after_dashes": ["./prog", "--x", "1"]}, Program(path="./prog", args=("--x", "1"))),
    "program on PATH": ({"after_dashes": ["ls"]}, Program(path="ls")),
}


@pytest.mark.parametrize(("given", "entry"), CASES.values(), ids=CASES)
def test_words_are_told_apart(given, entry):
    assert find(**given) == entry


MISTAKES = {
    "nothing": ({}, "nothing to run: name a script, a module with `-m`, or a program after `--`"),
    "nothing after the dashes": ({"after_dashes": []}, "nothing to run"),
    "no such script": ({"words": ["trian.py"]}, "script 'trian.py' does not exist in "),
    "a program where a script should be": (
        {"words": ["ls"]},
        "to run a program write `trainwright run -- ls ...`",
    ),
    "neither script nor executable": (
        {"words": ["notes.txt"]},
        "'notes.txt' is neither a Python script (.py) nor",
    ),
    "directory": ({"words": ["data"]}, "'data' is a directory without a __main__.py"),
    "no such program": (
        {"after_dashes": ["no-such-program"]},
        "program 'no-such-program' is not found on PATH",
    ),
    "program of this directory": ({"after_dashes": ["prog"]}, "write ./prog for the one in this directory"),
    "no such path": ({"after_dashes": ["./nope"]}, "program './nope' does not exist in "),
    "not executable": ({"after_dashes": ["./notes.txt"]}, "program './notes.txt' is not executable"),
    "a directory as program": ({"after_dashes": ["./data"]}, "program './data' is not executable"),
}


@pytest.mark.parametrize(("given", "message"), MISTAKES.values(), ids=MISTAKES)
def test_what_cannot_be_run_is_refused_with_a_remedy(given, message):
    with pytest.raises(UsageError) as caught:
        find(**given)
    assert message in str(caught.value)
