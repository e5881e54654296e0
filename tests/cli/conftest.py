"""What tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program, with nothing in its state directory."""
    folder = tmp_path / "work"
    folder.mkdir()
    return Program(folder=folder, state=tmp_path / "state")
