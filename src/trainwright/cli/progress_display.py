"""What `run` shows while a job runs: output of the ranks and, on a terminal, a bar below it.

On a terminal the bar is drawn on stderr and lines are printed above it. Without one, progress is said in
plain lines, seldom enough for a log file. Output of ranks is data and goes to stdout, unless stdout and
stderr are one screen, where both have to pass through whoever draws the bar.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from trainwright.api.trainjob import TrainJob
from trainwright.cli.console import can_redraw_talk, say, write_data
from trainwright.cli.job_rows import format_metrics, format_percent, format_remaining, get_phase, is_finished
from trainwright.cli.log_lines import format_log_line
from trainwright.cli.targets import LogLine

_SECONDS_BETWEEN_LINES = 10.0


class Display(Protocol):
    """Shows one job."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show_output(self, line: LogLine) -> None:
        """Show a line that a rank printed."""
        ...

    def show_job(self, train_job: TrainJob) -> None:
        """Show how the job does."""
        ...

    def say(self, text: str) -> None:
        """Show talk."""
        ...

    def tick(self) -> None:
        """Draw again what moves by itself; to be called a few times a second."""
        ...


def build_display(*, output_is_talk: bool) -> Display:
    """Return the display for this process. `output_is_talk`: stdout is wanted for something else."""
    write = _write_as_talk if output_is_talk else write_data
    if can_redraw_talk(os.environ):
        return TerminalDisplay(None if output_is_talk or sys.stdout.isatty() else write)
    return PlainDisplay(write, time.monotonic)


class PlainDisplay:
    """Lines only: each new state, and progress every ten seconds and at the end."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._write = write
        self._clock = clock
        self._phase = ""
        self._said = ""
        self._said_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show_output(self, line: LogLine) -> None:
        """Print the line."""
        self._write(format_log_line(line))

    def show_job(self, train_job: TrainJob) -> None:
        """Say a new state at once, progress from time to time."""
        name, phase = train_job.metadata.name, get_phase(train_job)
        if phase != self._phase:
            self._phase = phase
            self.say(f"{name}: {phase}")
        if is_finished(train_job):
            return
        progress = describe_progress(train_job)
        now = self._clock()
        if progress and progress != self._said and now - self._said_at >= _SECONDS_BETWEEN_LINES:
            self._said, self._said_at = progress, now
            self.say(f"{name}: {progress}")

    def say(self, text: str) -> None:
        """Print to stderr."""
        say(text)

    def tick(self) -> None:
        """Lines do not move."""


class TerminalDisplay:
    """A bar on stderr; `write` prints output of ranks, None where it shares the screen with the bar."""

    def __init__(self, write: Callable[[str], None] | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._write = write
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[percent]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=self._console,
            transient=True,
            # Drawn by `tick`: a thread for it would be in the way of starting a supervisor, which is a fork.
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("starting", total=None, percent="", note="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show_output(self, line: LogLine) -> None:
        """Print the line above the bar; colours that the script printed stay."""
        if self._write is not None:
            self._write(format_log_line(line))
            return
        from rich.text import Text

        self._console.print(Text.from_ansi(format_log_line(line).rstrip("\n")))

    def show_job(self, train_job: TrainJob) -> None:
        """Draw state, percent, time left and metrics."""
        reported = train_job.status.trainer_status if train_job.status else None
        percent = reported.progress_percentage if reported else None
        self._progress.update(
            self._task,
            description=f"{train_job.metadata.name} {get_phase(train_job)}",
            total=None if percent is None else 100,
            completed=percent or 0,
            percent=format_percent(reported) if percent is not None else "",
            note="  ".join(part for part in (format_remaining(reported), format_metrics(reported)) if part),
        )

    def say(self, text: str) -> None:
        """Print above the bar."""
        from rich.text import Text

        self._console.print(Text(text))

    def tick(self) -> None:
        """Draw the bar."""
        self._progress.refresh()


def describe_progress(train_job: TrainJob) -> str:
    """Return `40%, 12s left, epoch=3 loss=0.25`; nothing where nothing was reported."""
    reported = train_job.status.trainer_status if train_job.status else None
    if reported is None:
        return ""
    percent = format_percent(reported) if reported.progress_percentage is not None else ""
    return ", ".join(part for part in (percent, format_remaining(reported), format_metrics(reported)) if part)


def _write_as_talk(text: str) -> None:
    say(text.rstrip("\n"))
