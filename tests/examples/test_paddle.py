from __future__ import annotations

import re

import pytest

from examples.example_run import ExampleRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

EXAMPLE = "paddle"
ENVIRONMENTS = ("PADDLE",)


def test_two_nodes_end_with_the_same_parameters(example: ExampleRun) -> None:
    logs = example.finish(example.apply())
    assert "2 processes, starting after epoch 0" in logs
    found = re.findall(r"rank (\d) has parameters (\w+)", logs)
    assert sorted(rank for rank, _ in found) == ["0", "1"]
    assert len({parameters for _, parameters in found}) == 1
    accuracy = re.search(r"test accuracy (\S+), checkpoint", logs)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.95
    metrics = example.read_metrics("digits-paddle")
    assert metrics["percent"] == 100
    assert metrics["accuracy"] == pytest.approx(float(accuracy[1]), abs=1e-4)


def test_a_second_run_goes_on_from_the_checkpoint_of_the_first(example: ExampleRun) -> None:
    example.finish(example.apply(name="first", args=["--epochs", "5"]))
    logs = example.finish(example.apply(name="second", args=["--epochs", "6"], numNodes=1))
    assert "1 processes, starting after epoch 5" in logs
    loss = re.search(r"epoch 6/6  loss (\S+)", logs)
    assert loss is not None
    assert float(loss[1]) < 0.3  # 1.8 where training begins
