"""The callbacks in real, tiny trainings of the real libraries, against a real progress server."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from trainwright.runner.progress.history import HistoryEntry, ProgressHistory, build_curves, read_history
from trainwright.runner.progress.package import path_for_jobs
from trainwright.runner.progress.server import ProgressServer

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SCRIPTS = Path(__file__).parent / "scripts"


async def run_training(
    environment: Path, script: str, words: list[str], tmp_path: Path, **variables: str
) -> list[HistoryEntry]:
    """Run the script to its end with a progress server, and return what it reported."""

    async def on_report(_: object) -> None:
        pass

    history = tmp_path / "progress.jsonl"
    server = ProgressServer("default", "demo", tmp_path / "token", on_report, ProgressHistory(history))
    async with server:
        process = await asyncio.create_subprocess_exec(
            environment / "bin" / "python",
            SCRIPTS / script,
            str(tmp_path / "output"),
            *words,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "HF_HUB_OFFLINE": "1",
                "CUDA_VISIBLE_DEVICES": "",
                "OMP_NUM_THREADS": "1",
                **server.environment,
                "TRAINWRIGHT_PROGRESS_INTERVAL_SECONDS": "0",
                "PYTHONPATH": str(path_for_jobs(tmp_path / "python")),
                **variables,
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(250):
            output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
    return read_history(history)


async def test_a_hugging_face_trainer_reports_steps_and_what_it_logs(
    training_environment: Path, tmp_path: Path
):
    reports = await run_training(
        training_environment,
        "train_huggingface.py",
        ["ours"],
        tmp_path,
        DISABLE_KUBEFLOW_INTEGRATION="TRUE",
    )
    last = reports[-1]
    assert last.progress_percentage == 100
    assert (last.metrics["step"], last.metrics["epoch"]) == (8, 2)
    assert {"loss", "learning_rate", "grad_norm", "eval_loss", "train_runtime"} <= set(last.metrics)
    curves = build_curves(reports)
    assert curves.axis == "epoch"
    assert curves.metrics["loss"][-1][1] < curves.metrics["loss"][0][1]


async def test_the_callback_that_transformers_brings_is_served_too(
    training_environment: Path, tmp_path: Path
):
    reports = await run_training(training_environment, "train_huggingface.py", [], tmp_path)
    assert reports[0].progress_percentage == 0
    assert reports[-1].progress_percentage == 100
    assert "eval_loss" in reports[-1].metrics


async def test_both_callbacks_together_end_at_100_percent(training_environment: Path, tmp_path: Path):
    reports = await run_training(training_environment, "train_huggingface.py", ["ours"], tmp_path)
    assert reports[-1].progress_percentage == 100
    assert "eval_loss" in reports[-1].metrics


async def test_a_lightning_trainer_reports_steps_and_what_its_module_logs(
    training_environment: Path, tmp_path: Path
):
    reports = await run_training(training_environment, "train_lightning.py", [], tmp_path)
    last = reports[-1]
    assert last.progress_percentage == 100
    assert last.metrics["step"] == 12
    curves = build_curves(reports)
    assert curves.axis == "step"
    for name in ("train_loss", "val_loss"):
        assert curves.metrics[name][-1][1] < curves.metrics[name][0][1]
