"""What a list shows of a job."""

from datetime import UTC, datetime, timedelta

import pytest

from trainwright.api.meta import Condition, ObjectKey, ObjectMeta
from trainwright.api.trainjob import (
    Cause,
    JobStatus,
    Metric,
    RuntimeRef,
    Trainer,
    TrainerStatus,
    TrainJob,
    TrainJobSpec,
    TrainJobStatus,
)
from trainwright.cli.job_rows import build_row, build_wide_row, get_phase, shorten_number

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SHIPPED = {
    ObjectKey("ClusterTrainingRuntime", "", "torch"): 3,
    ObjectKey("TrainingRuntime", "default", "torch"): 7,
}


def job(status=None, *, nodes=None, kind=None) -> TrainJob:
    return TrainJob(
        metadata=ObjectMeta(
            name="digits", namespace="default", creation_timestamp=NOW - timedelta(minutes=5)
        ),
        spec=TrainJobSpec(runtime_ref=RuntimeRef(name="torch", kind=kind), trainer=Trainer(num_nodes=nodes)),
        status=status,
    )


RUNNING = TrainJobStatus(
    phase="Running",
    start_time=NOW - timedelta(seconds=72),
    restarts=2,
    trainer_status=TrainerStatus(
        progress_percentage=40,
        metrics=[Metric(name="epoch", value="3"), Metric(name="loss", value="0.123456789")],
    ),
    cause=Cause(
        layer="Container",
        kind="Pod",
        name="digits-node-0-0",
        reason="NonZeroExit",
        message="first line\nsecond line that goes on and on and on and on and on",
        hint="",
        since=NOW,
    ),
)


def test_a_running_job_in_one_line():
    assert build_row(job(RUNNING, nodes=2), {}, NOW) == ("digits", "Running", "torch", "2", "40%", "5m")


def test_a_running_job_in_one_wide_line():
    assert build_wide_row(job(RUNNING, nodes=2), {}, NOW)[6:] == (
        "1m12s",
        "2",
        "epoch=3 loss=0.1235",
        "NonZeroExit: first line second line that goes on and on a...",
    )


def test_a_job_that_nobody_has_looked_at_yet():
    assert build_wide_row(job(nodes=1), {}, NOW) == (
        *("digits", "Created", "torch", "1", "-", "5m"),
        *("-", "0", "-", "-"),
    )


@pytest.mark.parametrize(
    ("kind", "nodes"), [(None, "3"), ("ClusterTrainingRuntime", "3"), ("TrainingRuntime", "7")]
)
def test_the_runtime_brings_the_node_count_where_the_job_does_not(kind, nodes):
    assert build_row(job(kind=kind), SHIPPED, NOW)[3] == nodes


def test_a_runtime_that_is_gone_leaves_the_node_count_open():
    assert build_row(job(), {}, NOW)[3] == "-"


def test_a_finished_job_shows_how_long_it_ran():
    status = TrainJobStatus(
        phase="Complete", start_time=NOW - timedelta(hours=2), completion_time=NOW - timedelta(hours=1)
    )
    assert build_wide_row(job(status), SHIPPED, NOW)[6] == "1h"


@pytest.mark.parametrize(
    ("types", "phase"),
    [
        ([], "Created"),
        (["Suspended"], "Suspended"),
        (["Suspended", "Failed"], "Failed"),
        (["Complete"], "Complete"),
    ],
)
def test_the_state_of_a_job_without_phase_is_read_from_its_conditions(types, phase):
    conditions = [
        Condition(type=name, status="True", reason="r", message="m", last_transition_time=NOW)
        for name in types
    ]
    assert get_phase(job(TrainJobStatus(conditions=conditions))) == phase


@pytest.mark.parametrize(
    ("initializer", "node", "phase"),
    [
        ((0, 0), (0, 0), "Created"),
        ((1, 0), (0, 0), "Created"),
        ((0, 1), (0, 0), "Created"),
        ((0, 1), (1, 0), "Running"),
    ],
)
def test_the_state_of_a_job_on_another_cluster_is_read_from_its_counters(initializer, node, phase):
    """Each is how many are ready, and how many have succeeded."""
    counters = [
        JobStatus(name=name, ready=ready, succeeded=succeeded, failed=0, active=ready, suspended=0)
        for name, (ready, succeeded) in (("dataset-initializer", initializer), ("node", node))
    ]
    assert get_phase(job(TrainJobStatus(jobs_status=counters))) == phase


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("0.123456789", "0.1235"),
        ("3", "3"),
        ("1e-05", "1e-05"),
        ("nan", "nan"),
        ("good", "good"),
        ("1234567", "1234567"),
    ],
)
def test_numbers_are_shortened_only_where_that_saves_room(text, shown):
    assert shorten_number(text) == shown
