from __future__ import annotations

import re

import pytest

from examples.example_run import ExampleRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

EXAMPLE = "tensorflow"
ENVIRONMENTS = ("TENSORFLOW",)


def test_two_workers_end_with_the_same_variables(example: ExampleRun) -> None:
    logs = example.finish(example.apply())
    assert "2 workers, starting after epoch 0" in logs
    found = re.findall(r"worker (\d) has variables (\w+)", logs)
    assert sorted(worker for worker, _ in found) == ["0", "1"]
    assert len({variables for _, variables in found}) == 1
    accuracy = re.search(r"test accuracy (\S+), checkpoint", logs)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.95
    metrics = example.read_metrics("digits-tensorflow")
    assert metrics["percent"] == 100
    assert metrics["accuracy"] == pytest.approx(float(accuracy[1]), abs=1e-4)


def test_a_second_run_goes_on_from_the_checkpoint_of_the_first(example: ExampleRun) -> None:
    example.finish(example.apply(name="first", args=["--epochs", "5"]))
    logs = example.finish(example.apply(name="second", args=["--epochs", "6"], numNodes=1))
    assert "1 workers, starting after epoch 5" in logs
    loss = re.search(r"epoch 6/6  loss (\S+)", logs)
    assert loss is not None
    assert float(loss[1]) < 0.3  # 1.7 where training begins


def test_a_chief_trains_with_workers_and_two_parameter_servers(example: ExampleRun) -> None:
    logs = example.finish(example.apply("served.yaml"))
    for task in ("worker 0", "worker 1", "ps 0", "ps 1"):
        assert f"{task} serves" in logs
    assert re.search(r"weights are on \S*/job:ps/replica:0/task:0/\S* \S*/job:ps/replica:0/task:1/", logs)
    accuracy = re.search(r"epoch 20/20  loss \S+  test accuracy (\S+)", logs)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.9
    assert example.read_metrics("digits-served")["percent"] == 100
