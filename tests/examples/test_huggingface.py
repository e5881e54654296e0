from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples.torchrun import run_torchrun
from trainwright.runner.progress.history import ProgressHistory, read_history
from trainwright.runner.progress.package import path_for_jobs
from trainwright.runner.progress.server import ProgressServer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

SCRIPT = Path(__file__).parent.parent.parent / "examples" / "huggingface" / "train.py"


async def test_two_processes_learn_the_topics_report_it_and_go_on_from_their_checkpoint(
    training_environment: Path, tmp_path: Path
):
    async def ignore(_: object) -> None:
        pass

    history = ProgressHistory(tmp_path / "progress.jsonl")
    words = [str(SCRIPT), "--output-dir", str(tmp_path / "output"), "--epochs"]
    async with ProgressServer("default", "topics", tmp_path / "token", ignore, history) as server:
        variables = {
            **server.environment,
            "PYTHONPATH": str(path_for_jobs(tmp_path / "python")),
            "DISABLE_KUBEFLOW_INTEGRATION": "TRUE",
            "HF_HUB_OFFLINE": "1",
        }
        async with run_torchrun(training_environment, (1, 2), [*words, "3"], variables) as job:
            await job.finish()
        first = read_history(tmp_path / "progress.jsonl")
        async with run_torchrun(training_environment, (1, 2), [*words, "4"], variables) as job:
            printed = re.search(r"test accuracy (\S+), checkpoint in ", await job.finish())
    assert printed is not None
    assert float(printed[1]) >= 0.95
    second = read_history(tmp_path / "progress.jsonl")[len(first) :]
    assert first[0].metrics["step"] == 0
    assert first[-1].progress_percentage == 100
    assert second[0].metrics["step"] == first[-1].metrics["step"]
    assert second[-1].progress_percentage == 100
    assert second[-1].metrics["eval_accuracy"] >= 0.95
