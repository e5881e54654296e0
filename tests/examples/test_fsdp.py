from __future__ import annotations

import re

import pytest

from examples.example_run import ExampleRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

EXAMPLE = "fsdp"
ENVIRONMENTS = ("TRAIN",)


def test_each_rank_holds_a_part_of_the_parameters(example: ExampleRun) -> None:
    logs = example.finish(example.apply())
    assert "2 ranks on cpu, starting after epoch 0" in logs
    held = re.findall(r"rank (\d) holds (\d+) of (\d+) parameters", logs)
    assert sorted(rank for rank, _, _ in held) == ["0", "1"]
    assert sum(int(own) for _, own, _ in held) == int(held[0][2])
    assert max(int(own) for _, own, _ in held) <= 0.6 * int(held[0][2])
    accuracy = re.search(r"test accuracy (\S+), checkpoint", logs)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.95
    metrics = example.read_metrics("digits-fsdp")
    assert metrics["percent"] == 100
    assert metrics["accuracy"] == pytest.approx(float(accuracy[1]), abs=1e-4)


def test_a_checkpoint_of_two_ranks_is_loaded_by_one(example: ExampleRun) -> None:
    example.finish(example.apply(name="first", args=["--epochs", "10"]))
    logs = example.finish(example.apply(name="second", args=["--epochs", "11"], numNodes=1))
    assert "1 ranks on cpu, starting after epoch 10" in logs
    loss = re.search(r"epoch 11/11  loss (\S+)", logs)
    assert loss is not None
    assert float(loss[1]) < 0.2  # 1.9 where training begins
