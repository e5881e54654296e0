from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples.torchrun import run_torchrun
from trainwright.control.progress_protocol import Report
from trainwright.runner.progress.history import ProgressHistory, build_curves, read_history
from trainwright.runner.progress.package import path_for_jobs
from trainwright.runner.progress.server import ProgressServer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "digits" / "train.py"


async def test_two_nodes_of_two_processes_learn_the_digits_and_report_it(
    training_environment: Path, tmp_path: Path
):
    reports: list[Report] = []

    async def keep(report: Report) -> None:
        reports.append(report)

    history = ProgressHistory(tmp_path / "progress.jsonl")
    words = [str(SCRIPT), "--checkpoint-dir", str(tmp_path / "checkpoints")]
    async with ProgressServer("default", "digits", tmp_path / "token", keep, history) as server:
        variables = {**server.environment, "PYTHONPATH": str(path_for_jobs(tmp_path / "python"))}
        async with run_torchrun(training_environment, (2, 2), words, variables) as job:
            await job.wait_for_line("4 processes on cpu, starting after epoch 0")
            last_words = await job.finish()

    printed = re.search(r"test accuracy (\S+), checkpoint (\S+)", last_words)
    assert printed is not None
    assert float(printed[1]) >= 0.95
    assert printed[2] == str(tmp_path / "checkpoints" / "digits.pt")
    status = reports[-1].status
    metrics = {metric.name: metric.value for metric in status.metrics or ()}
    assert (status.progress_percentage, status.estimated_remaining_seconds) == (100, 0)
    assert float(metrics["accuracy"]) == pytest.approx(float(printed[1]), abs=1e-4)
    assert metrics["epoch"] == "20"
    curves = build_curves(read_history(tmp_path / "progress.jsonl"))
    assert curves.axis == "epoch"
    assert len(curves.metrics["loss"]) >= 3
    assert curves.metrics["loss"][-1][1] < curves.metrics["loss"][0][1] / 5


async def test_a_stopped_run_goes_on_where_it_was_with_another_number_of_processes(
    training_environment: Path, tmp_path: Path
):
    """1. Two processes are stopped in epoch 3 or later. 2. One goes on with the epoch after the last."""
    words = [str(SCRIPT), "--epochs", "100000", "--checkpoint-dir", str(tmp_path)]
    async with run_torchrun(training_environment, (1, 2), words, {}) as job:
        await job.wait_for_line("epoch 3/100000")
        await job.stop()
    async with run_torchrun(training_environment, (1, 1), words, {}) as job:
        started = await job.wait_for_line("1 processes on cpu, starting after epoch ")
        done = int(started.rpartition(" ")[2])
        assert done >= 2
        first = await job.wait_for_line("epoch ")
        assert first.startswith(f"epoch {done + 1}/")
