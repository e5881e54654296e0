"""The lines of a supervisor's log."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

from trainwright.runner.supervisor_log import SupervisorLog

NOW = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def test_a_line_is_a_message_with_pairs_and_stays_one_line() -> None:
    stream = io.BytesIO()
    SupervisorLog(stream, lambda: NOW).info(
        "pod changed", pod="p-0", message='said "no"\nand = left', empty=""
    )

    assert stream.getvalue().decode() == (
        'timestamp=2026-01-01T12:00:00.123+00:00 level=info event="pod changed" pod=p-0 '
        'message="said \\"no\\"\\nand = left" empty=""\n'
    )


def test_an_exception_is_followed_by_its_traceback() -> None:
    stream = io.BytesIO()
    try:
        raise ValueError("broken")
    except ValueError as error:
        SupervisorLog(stream, lambda: NOW).exception("pod could not be run", error)

    first, *rest = stream.getvalue().decode().splitlines()
    assert first.endswith('level=error event="pod could not be run" error="ValueError: broken"')
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: broken"


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    """Nothing is kept either that would be tried again, and fail, when the stream is closed."""
    with Path("/dev/full").open("wb", buffering=0) as stream:
        SupervisorLog(stream, lambda: NOW).warning("pass failed")
