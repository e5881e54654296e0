"""How a line of a job's output is shown. Pure."""

from __future__ import annotations

from trainwright.cli.targets import LogLine


def format_log_line(line: LogLine, *, with_source: bool = True) -> str:
    """Return the line, with where it comes from in front.

    The text itself is left alone: colours and progress bars that a script prints are its own affair.
    """
    return f"[{line.source}] {line.text}\n" if with_source else f"{line.text}\n"
