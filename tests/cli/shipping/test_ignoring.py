"""Ignore files, compared with git itself."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainwright.cli.shipping.ignoring import build_rules
from trainwright.cli.shipping.tree import read_tree

NAMES = ("a", "b.py", "data", "x.log", "é", "build")
PATTERNS = (
    "a", "/a", "data/", "*.log", "!x.log", "!data/", "data/*", "!data/a", "**/b.py", "build/**", "/data/b.py",
    "# comment", "", "\\!a", "a ", "[ab]*", "b.?y", "!b.py", "é", "*/a", "!*/a",
)  # fmt: skip

TREES = st.sets(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple), min_size=1, max_size=8
).map(lambda paths: [path for path in paths if not any(path != q and path == q[: len(path)] for q in paths)])
IGNORE_FILES = st.dictionaries(
    st.sampled_from(("", "data", "a")),
    st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=4),
    max_size=2,
)


def ask_git(root: Path) -> set[str]:
    subprocess.run(["git", "init", "-q", root], check=True, capture_output=True)
    listed = subprocess.run(
        ["git", "-C", root, "-c", "core.excludesFile=", "ls-files", "-z", "-o", "--exclude-standard"],
        check=True,
        capture_output=True,
    )
    return {name.decode() for name in listed.stdout.split(b"\0") if name}


@settings(max_examples=60, deadline=None)
@given(paths=TREES, ignore_files=IGNORE_FILES)
def test_what_git_would_add_is_what_is_sent(paths, ignore_files):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for path in paths:
            (root / Path(*path)).parent.mkdir(parents=True, exist_ok=True)
            (root / Path(*path)).write_text("x")
        for place, patterns in ignore_files.items():
            if (root / place).is_dir():
                (root / place / ".gitignore").write_text("".join(f"{line}\n" for line in patterns))
        kept = {entry.path for entry in read_tree(root) if not entry.is_folder}
        assert kept == ask_git(root)


CASES = {
    "our file has the last word over git's": (
        [("", ".gitignore", "*.bin\n"), ("", ".trainwrightignore", "!small.bin\n")],
        {"small.bin": False, "large.bin": True},
    ),
    "our file leaves out what git keeps": (
        [("", ".trainwrightignore", "notebooks/\n")],
        {"notebooks/": True, "train.py": False},
    ),
    "our file above wins over git's below": (
        [("data", ".gitignore", "*\n"), ("", ".trainwrightignore", "!data/tokens.json\n")],
        {"data/tokens.json": False, "data/raw.csv": True},
    ),
    "the repository is left out, wherever it is": ([], {".git/": True, "sub/.git": True, "git": False}),
    "compiled code is left out unless somebody wants it": (
        [("sub", ".trainwrightignore", "!__pycache__/\n")],
        {"__pycache__/": True, "sub/__pycache__/": False},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rules(case):
    files, expected = case
    rules = build_rules(files)
    found = {path: rules.is_ignored(path.rstrip("/"), is_directory=path.endswith("/")) for path in expected}
    assert found == expected


def test_the_rules_of_the_whole_repository_hold_in_a_folder_of_it(tmp_path):
    (tmp_path / ".git" / "info").mkdir(parents=True)
    (tmp_path / ".git" / "info" / "exclude").write_text("private.txt\n")
    (tmp_path / ".gitignore").write_text("/pkg/secret\n*.tmp\n!pkg/keep.tmp\n")
    (tmp_path / "pkg").mkdir()
    for name in ("secret", "a.tmp", "keep.tmp", "private.txt", "train.py"):
        (tmp_path / "pkg" / name).write_text("x")
    assert [entry.path for entry in read_tree(tmp_path / "pkg")] == ["keep.tmp", "train.py"]
