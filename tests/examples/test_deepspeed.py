from __future__ import annotations

import re

import pytest

from examples.example_run import ExampleRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

EXAMPLE = "deepspeed"
ENVIRONMENTS = ("DEEPSPEED",)


def test_each_rank_optimizes_a_part_of_the_parameters_and_goes_on_from_its_checkpoint(
    example: ExampleRun,
) -> None:
    # At its first start on a machine without GPUs DeepSpeed compiles a part of itself, which takes minutes.
    example.patience_seconds = 400
    logs = example.finish(example.apply())
    assert "4 ranks on cpu, starting after epoch 0" in logs
    shares = re.findall(r"rank (\d) optimizes (\d+) of (\d+) parameters", logs)
    assert sorted(rank for rank, _, _ in shares) == ["0", "1", "2", "3"]
    assert max(int(own) for _, own, _ in shares) <= 0.26 * int(shares[0][2])
    accuracy = re.search(r"test accuracy (\S+), checkpoint", logs)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.9
    metrics = example.read_metrics("digits-deepspeed")
    assert metrics["percent"] == 100
    assert metrics["accuracy"] == pytest.approx(float(accuracy[1]), abs=1e-4)

    command = ["mpirun", "python", "train.py", "--epochs", "11"]
    logs = example.finish(example.apply(name="second", command=command))
    assert "4 ranks on cpu, starting after epoch 10" in logs
    loss = re.search(r"epoch 11/11  loss (\S+)", logs)
    assert loss is not None
    assert float(loss[1]) < 0.3  # 2.1 where training begins
