"""Supervisors of a plain user: other permissions, user namespaces, no rights over other processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.plain_user import run_tests_as_plain_user

HERE = Path(__file__).parent


@pytest.mark.timeout(300)
def test_supervisors_work_for_a_plain_user() -> None:
    printed = run_tests_as_plain_user(
        [HERE / "test_daemon.py", HERE / "test_supervisor.py"],
        "killed_supervisor or suspending or deleted_job or two_jobs or failed_rank or sigterm_to_a",
    )

    assert " passed" in printed
    assert "failed" not in printed
