"""What is said about a running job where there is no terminal. The terminal itself: test_terminal.py."""

import itertools

from trainwright.api.meta import ObjectMeta
from trainwright.api.trainjob import Metric, TrainerStatus, TrainJob, TrainJobStatus
from trainwright.cli.progress_display import PlainDisplay, describe_progress
from trainwright.cli.targets import LogLine


def job(phase: str, percent: int | None = None, remaining: int | None = None, **metrics: str) -> TrainJob:
    reported = TrainerStatus(
        progress_percentage=percent,
        estimated_remaining_seconds=remaining,
        metrics=[Metric(name=name, value=value) for name, value in metrics.items()],
    )
    return TrainJob(
        metadata=ObjectMeta(name="digits"), status=TrainJobStatus(phase=phase, trainer_status=reported)
    )


def test_progress_is_one_short_line():
    assert (
        describe_progress(job("Running", 40, 72, epoch="3", loss="0.25"))
        == "40%, 1m12s left, epoch=3 loss=0.25"
    )
    assert describe_progress(job("Running", loss="0.25")) == "loss=0.25"
    assert describe_progress(job("Running", 100, 0)) == "100%"
    assert describe_progress(job("Running")) == ""


def test_states_are_said_at_once_and_progress_at_most_every_ten_seconds(capsys):
    clock = itertools.count(step=4.0)  # 0, 4, 8, 12, ...
    display = PlainDisplay(print, clock.__next__)
    display.show_job(job("Created"))
    for percent in (0, 10, 20, 30, 40, 50):
        display.show_job(job("Running", percent))
    display.show_job(job("Complete", 50))
    assert capsys.readouterr().err.splitlines() == [
        "digits: Created",
        "digits: Running",
        "digits: 0%",
        "digits: 30%",
        "digits: Complete",
    ]


def test_progress_that_does_not_change_is_said_once(capsys):
    clock = itertools.count(step=100.0)
    display = PlainDisplay(print, clock.__next__)
    for _ in range(3):
        display.show_job(job("Running", 10))
    assert capsys.readouterr().err.splitlines() == ["digits: Running", "digits: 10%"]


def test_output_of_ranks_goes_where_data_goes():
    lines: list[str] = []
    display = PlainDisplay(lines.append, lambda: 0.0)
    display.show_output(LogLine(source="rank 1", text="epoch 3\tdone"))
    assert lines == ["[rank 1] epoch 3\tdone\n"]
