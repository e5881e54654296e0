"""What holds of all examples without running them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.program import Program
from examples.example_run import EXAMPLES

PAGE = EXAMPLES.parent / "docs" / "examples.md"
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir())
FILES = sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.glob("*/*.yaml"))


def test_the_page_of_examples_lists_them_all() -> None:
    listed = re.findall(r"^\| `([\w-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == FOLDERS


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_admitted_as_it_is(file: str, tmp_path: Path) -> None:
    """Also what names a runtime that is shipped, or that another file of the folder has."""
    program = Program(folder=EXAMPLES / Path(file).parent, state=tmp_path / "state")
    others = sorted(
        str(path) for path in program.folder.glob("runtimes.yaml") if path.name != Path(file).name
    )
    words = [word for name in (*others, Path(file).name) for word in ("-f", name)]
    done = program.run("validate", *words)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()
