"""Whatever reading lets through, and whatever is stored already, admission answers and never raises."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml
from hypothesis import given

from api.mutations import mutated
from trainwright.admission import (
    default_runtime,
    default_train_job,
    validate_runtime,
    validate_train_job,
)
from trainwright.api.encoding import parse_object
from trainwright.api.reading import read_object
from trainwright.api.runtime import ClusterTrainingRuntime, TrainingRuntime
from trainwright.api.trainjob import TrainJob

ORACLE = Path(__file__).resolve().parent.parent / "data" / "oracle"
NOW = datetime(2026, 1, 31, tzinfo=UTC)
KINDS: dict[str, type[Any]] = {
    "TrainJob": TrainJob,
    "TrainingRuntime": TrainingRuntime,
    "ClusterTrainingRuntime": ClusterTrainingRuntime,
}


def load(*cases: str) -> list[Any]:
    return [
        document
        for case in cases
        for document in yaml.safe_load_all((ORACLE / case / "input.yaml").read_text())
        if document["kind"] in KINDS
    ]


OBJECTS = load("init-both", "patch-pod-fields", "patch-two-managers", "plain-jobset-fields", "torch-gpu-job")
JOBS = [body for body in OBJECTS if body["kind"] == "TrainJob"]
RUNTIMES = [body for body in OBJECTS if body["kind"] != "TrainJob"]


@given(mutated(OBJECTS))
def test_whatever_can_be_read_is_answered(body: Any) -> None:
    for read in read_object(body).objects:
        value = read.value
        if isinstance(value, TrainJob):
            job = default_train_job(value, None, NOW)
            verdict = validate_train_job(job, parse_object(RUNTIMES[0], TrainingRuntime), job)
        elif isinstance(value, TrainingRuntime | ClusterTrainingRuntime):
            verdict = validate_runtime(default_runtime(value))
        else:
            continue
        assert verdict.is_allowed == (verdict.status_code == 200)


@given(mutated(RUNTIMES), mutated(JOBS))
def test_whatever_is_stored_is_answered(runtime_body: Any, job_body: Any) -> None:
    """Stored objects are as their type wants them, but no more; nobody has read them strictly."""
    try:
        runtime = parse_object(runtime_body, TrainingRuntime)
        job = parse_object(job_body, TrainJob)
    except msgspec.ValidationError:
        return
    old = parse_object(JOBS[0], TrainJob)

    validate_runtime(default_runtime(runtime))
    validate_train_job(default_train_job(job, None, NOW), runtime)
    validate_train_job(default_train_job(job, old, NOW), runtime, old)
