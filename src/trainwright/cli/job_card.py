"""One job in full, for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from trainwright.api.meta import ObjectKey
from trainwright.api.trainjob import TrainJob
from trainwright.cli.durations import format_age
from trainwright.cli.job_rows import (
    format_nodes,
    format_percent,
    format_remaining,
    format_run_time,
    get_phase,
    shorten_number,
)
from trainwright.cli.sparkline import sparkline
from trainwright.cli.tables import escape_controls, format_table
from trainwright.cli.verdict import indent_message
from trainwright.runner.progress.history import HistoryEntry, build_curves

_SPARKLINE_COLUMNS = 40


def format_card(
    train_job: TrainJob,
    runtime_nodes: Mapping[ObjectKey, int],
    reports: Sequence[HistoryEntry],
    now: datetime,
    *,
    wide: bool,
) -> str:
    """Return the job as a few blocks of text; `wide` adds conditions and the runtime's snapshot."""
    blocks = [
        _format_facts(train_job, runtime_nodes, now),
        _format_metrics(train_job, reports),
        _format_cause(train_job),
    ]
    if wide:
        blocks += [_format_counts(train_job), _format_conditions(train_job, now)]
    return "\n".join(block for block in blocks if block)


def _format_facts(train_job: TrainJob, runtime_nodes: Mapping[ObjectKey, int], now: datetime) -> str:
    meta, spec, status = train_job.metadata, train_job.spec, train_job.status
    trainer = spec.trainer if spec else None
    reported = status.trainer_status if status else None
    snapshot = status.runtime_snapshot if status else None
    remaining = format_remaining(reported)
    facts = {
        "Name": meta.name,
        "Namespace": meta.namespace or "-",
        "State": get_phase(train_job),
        "Runtime": (spec.runtime_ref.name if spec else "-")
        + (f" (snapshot {snapshot.hash})" if snapshot else ""),
        "Nodes": format_nodes(train_job, runtime_nodes),
        "Processes": str(trainer.num_proc_per_node) + " per node"
        if trainer and trainer.num_proc_per_node
        else "",
        "Progress": format_percent(reported) + (f", {remaining}" if remaining else "") if reported else "",
        "Age": format_age(meta.creation_timestamp, now),
        "Ran": format_run_time(train_job, now),
        "Restarts": str(status.restarts) if status and status.restarts else "",
    }
    width = max(map(len, facts)) + 2
    return "".join(
        f"{f'{name}:':<{width}}{escape_controls(value)}\n" for name, value in facts.items() if value
    )


def _format_metrics(train_job: TrainJob, reports: Sequence[HistoryEntry]) -> str:
    """Return a line for each metric: name, last value, and its course as a sparkline."""
    reported = train_job.status.trainer_status if train_job.status else None
    last = {metric.name: metric.value for metric in (reported.metrics if reported else None) or ()}
    curves = build_curves(reports).metrics
    rows = [
        (name, shorten_number(value), sparkline([y for _, y in curves.get(name, ())], _SPARKLINE_COLUMNS))
        for name, value in last.items()
    ]
    return format_table(("METRIC", "LAST", "COURSE"), rows) if rows else ""


def _format_cause(train_job: TrainJob) -> str:
    cause = train_job.status.cause if train_job.status else None
    if cause is None:
        return ""
    lines = [f"Cause: {cause.kind} {cause.name}: {cause.reason}"]
    lines += [f"  {indent_message(cause.message)}"] if cause.message else []
    lines += [f"To do: {escape_controls(cause.hint)}"] if cause.hint else []
    return "\n".join(lines) + "\n"


def _format_counts(train_job: TrainJob) -> str:
    counts = (train_job.status.jobs_status if train_job.status else None) or ()
    rows = [
        (
            job.name,
            *(str(number) for number in (job.active, job.ready, job.succeeded, job.failed, job.suspended)),
        )
        for job in counts
    ]
    return format_table(("STEP", "ACTIVE", "READY", "SUCCEEDED", "FAILED", "SUSPENDED"), rows) if rows else ""


def _format_conditions(train_job: TrainJob, now: datetime) -> str:
    conditions = (train_job.status.conditions if train_job.status else None) or ()
    rows = [
        (item.type, item.status, item.reason, format_age(item.last_transition_time, now), item.message)
        for item in conditions
    ]
    return format_table(("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"), rows) if rows else ""
