"""How a job ended, or what it is doing, in the words of the command line. Pure."""

from __future__ import annotations

from datetime import datetime

from trainwright.api.trainjob import Cause, TrainJob
from trainwright.cli.job_rows import format_metrics, format_run_time, get_phase
from trainwright.cli.tables import escape_controls
from trainwright.errors import UserError

_METRICS_AT_THE_END = 12


class JobFailed(UserError):
    """A job that was waited for failed; the message has the cause."""


def format_end(train_job: TrainJob, now: datetime) -> str:
    """Return the last line about a job: its name, state, how long it ran, last metrics."""
    reported = train_job.status.trainer_status if train_job.status else None
    metrics = format_metrics(reported, _METRICS_AT_THE_END)
    words = f"{train_job.metadata.name}: {format_outcome(train_job, now)}"
    return f"{words}; {metrics}" if metrics else words


def format_outcome(train_job: TrainJob, now: datetime) -> str:
    """Return the state and how long the job ran, such as "Complete after 20s"."""
    ran = format_run_time(train_job, now)
    return get_phase(train_job) + ("" if ran == "-" else f" after {ran}")


def format_failure(train_job: TrainJob) -> str:
    """Return why the job failed and what to do, over several lines."""
    status = train_job.status
    if status is not None and status.cause is not None:
        return format_cause(status.cause)
    failed = next((c for c in (status.conditions if status else None) or () if c.type == "Failed"), None)
    if failed is None:
        return f"no cause is known; see `trainwright explain {train_job.metadata.name}`"
    return f"{failed.reason}: {indent_message(failed.message)}"


def format_cause(cause: Cause) -> str:
    """Return the cause in the form: where, reason, message, what to do."""
    lines = [f"{cause.kind} {cause.name}: {cause.reason}"]
    if cause.message:
        lines.append(f"  {indent_message(cause.message)}")
    if cause.hint:
        lines.append(f"to do: {escape_controls(cause.hint)}")
    return "\n".join(lines)


def format_waiting(name: str, cause: Cause) -> str:
    """Return the cause in one line, for whoever waits for the output of the job."""
    words = escape_controls(" ".join(cause.message.split()))
    return f"waiting for {name}: {cause.kind} {cause.name}: {cause.reason}: {words}"


def indent_message(message: str) -> str:
    """Return a message of several lines, continued under its first line and safe for a terminal."""
    return "\n  ".join(escape_controls(line) for line in message.strip().splitlines())
