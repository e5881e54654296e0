"""The tests of this folder once more as a plain user, where this run is root's.

A user namespace takes the place of root's rights there, and every path has other permissions.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.plain_user import run_tests_as_plain_user

HERE = Path(__file__).parent
FILES = ("test_process.py", "test_containment.py", "test_torchrun.py")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_everything_holds_for_a_plain_user() -> None:
    run_tests_as_plain_user([HERE / file for file in FILES], seconds=580)
