"""The tests of this folder once more as a plain user, where this run is root's.

A user namespace takes the place of root's rights there, and every path has other permissions.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.plain_user import run_tests_as_plain_user

HERE = Path(__file__).parent
FILES = ("test_channel.py", "test_process.py", "test_containment.py", "test_torchrun.py")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_everything_holds_for_a_plain_user() -> None:
    run_tests_as_plain_user([HERE / file for file in FILES], seconds=580)


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mpi_holds_for_a_plain_user() -> None:
    """Root's home, where keys go unless a runtime says otherwise, is closed to it."""
    files = ("test_remote_start.py", "test_mpi_pod.py", "test_mpi.py")
    chosen = "not test_mpi.py or without_options or stopping or lost or killed"
    run_tests_as_plain_user([HERE / file for file in files], expression=chosen, seconds=580)
