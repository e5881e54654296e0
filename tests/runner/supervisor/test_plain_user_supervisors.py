"""Supervisors of a plain user: other permissions, user namespaces, no rights over other processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.plain_user import run_tests_as_plain_user

HERE = Path(__file__).parent
SELECTED = (
    "killed_supervisor",
    "suspending",
    "deleted_job",
    "two_jobs",
    "failed_rank",
    "sigterm_to_a",
)


@pytest.mark.timeout(300)
def test_supervisors_work_for_a_plain_user() -> None:
    run_tests_as_plain_user(
        [HERE / "test_daemon.py", HERE / "test_supervisor.py"],
        expression=" or ".join(SELECTED),
    )
