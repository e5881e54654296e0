"""State directories for the tests of the runner, and a check that nothing of them is left running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A state directory of this test's own."""
    laboratory = Lab(tmp_path)
    yield laboratory
    laboratory.close()
    laboratory.kill_leftovers()
