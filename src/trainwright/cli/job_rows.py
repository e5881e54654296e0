"""What a list shows of a TrainJob, and in which words. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME, CONTROLLER_NAME, TRAINING_RUNTIME
from trainwright.api.meta import ObjectKey
from trainwright.api.trainjob import Metric, TrainerStatus, TrainJob
from trainwright.cli.durations import format_age, format_duration
from trainwright.manifests.names import DEFAULT_NAMESPACE

HEADER = ("NAME", "STATE", "RUNTIME", "NODES", "PROGRESS", "AGE")
WIDE_HEADER = (*HEADER, "RAN", "RESTARTS", "METRICS", "CAUSE")

FINISHED_PHASES = frozenset({"Complete", "Failed"})
_METRICS_SHOWN = 4
_UNTOUCHED_SECONDS = 5.0
_CAUSE_CHARACTERS = 60


def build_row(train_job: TrainJob, runtime_nodes: Mapping[ObjectKey, int], now: datetime) -> tuple[str, ...]:
    """Return the cells of HEADER. `runtime_nodes` has the node count that each known runtime brings."""
    spec = train_job.spec
    runtime = spec.runtime_ref.name if spec else ""
    status = train_job.status
    return (
        train_job.metadata.name,
        get_phase(train_job),
        runtime or "-",
        format_nodes(train_job, runtime_nodes),
        format_percent(status.trainer_status if status else None),
        format_age(train_job.metadata.creation_timestamp, now),
    )


def build_wide_row(
    train_job: TrainJob, runtime_nodes: Mapping[ObjectKey, int], now: datetime
) -> tuple[str, ...]:
    """Return the cells of WIDE_HEADER."""
    status = train_job.status
    cause = status.cause if status else None
    words = " ".join(f"{cause.reason}: {cause.message}".split()) if cause else "-"
    return (
        *build_row(train_job, runtime_nodes, now),
        format_run_time(train_job, now),
        str(status.restarts or 0) if status else "0",
        format_metrics(status.trainer_status if status else None) or "-",
        words if len(words) <= _CAUSE_CHARACTERS else f"{words[: _CAUSE_CHARACTERS - 3]}...",
    )


def get_phase(train_job: TrainJob) -> str:
    """Return the state in one word. A job that nobody has looked at yet is Created.

    A job that runs on another cluster has no phase here: MultiKueue copies conditions and counters alone.
    """
    status = train_job.status
    if status is None:
        return "Created"
    if status.phase is not None:
        return status.phase
    held = [condition.type for condition in status.conditions or () if condition.status == "True"]
    counters = status.jobs_status or ()
    is_up = bool(counters) and all(entry.ready + entry.succeeded for entry in counters)
    otherwise = "Running" if is_up else "Created"
    return next((name for name in ("Complete", "Failed", "Suspended") if name in held), otherwise)


def is_finished(train_job: TrainJob) -> bool:
    """Say whether the job is Complete or Failed, which is final."""
    return get_phase(train_job) in FINISHED_PHASES


def explain_untouched(train_job: TrainJob, now: datetime) -> str | None:
    """Return what to say about a job that nobody has looked at for longer than that takes; None otherwise."""
    created = train_job.metadata.creation_timestamp
    if train_job.status is not None or created is None:
        return None
    if (now - created).total_seconds() < _UNTOUCHED_SECONDS:
        return None
    managed_by = train_job.spec.managed_by if train_job.spec else None
    if managed_by not in (None, CONTROLLER_NAME):
        return f"spec.managedBy leaves the job to {managed_by}, which has not looked at it yet"
    return (
        f"nobody has looked at the job yet: is the operator running? (its pods are in {DEFAULT_NAMESPACE}; "
        "one that watches another namespace leaves the job alone)"
    )


def format_nodes(train_job: TrainJob, runtime_nodes: Mapping[ObjectKey, int]) -> str:
    """Return the number of training nodes; `-` where neither the job nor a known runtime says."""
    trainer = train_job.spec.trainer if train_job.spec else None
    if trainer is not None and trainer.num_nodes is not None:
        return str(trainer.num_nodes)
    nodes = runtime_nodes.get(build_runtime_key(train_job))
    return "-" if nodes is None else str(nodes)


def build_runtime_key(train_job: TrainJob) -> ObjectKey:
    """Return which runtime the job names."""
    ref = train_job.spec.runtime_ref if train_job.spec else None
    kind = (ref.kind if ref else None) or CLUSTER_TRAINING_RUNTIME
    namespace = train_job.metadata.namespace or "" if kind == TRAINING_RUNTIME else ""
    return ObjectKey(kind, namespace, ref.name if ref else "")


def format_percent(reported: TrainerStatus | None) -> str:
    """Return `40%`, or `-` where nothing was reported."""
    if reported is None or reported.progress_percentage is None:
        return "-"
    return f"{reported.progress_percentage}%"


def format_remaining(reported: TrainerStatus | None) -> str:
    """Return `12s left`; nothing where that is not known, or all is done."""
    if (
        reported is None
        or reported.estimated_remaining_seconds is None
        or reported.progress_percentage == 100
    ):
        return ""
    return f"{format_duration(reported.estimated_remaining_seconds)} left"


def format_metrics(reported: TrainerStatus | None, limit: int = _METRICS_SHOWN) -> str:
    """Return `epoch=3 loss=0.25`: the first metrics, as they were reported."""
    metrics: Sequence[Metric] = (reported.metrics if reported else None) or ()
    return " ".join(f"{metric.name}={shorten_number(metric.value)}" for metric in metrics[:limit])


def shorten_number(text: str) -> str:
    """Return a number with at most four significant digits; what is no number stays."""
    try:
        number = float(text)
    except ValueError:
        return text
    short = f"{number:.4g}"
    return short if len(short) < len(text) else text


def format_run_time(train_job: TrainJob, now: datetime) -> str:
    """Return how long the job ran, or runs already; `-` where it never began."""
    status = train_job.status
    if status is None or status.start_time is None:
        return "-"
    return format_duration(((status.completion_time or now) - status.start_time).total_seconds())
