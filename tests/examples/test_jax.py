from __future__ import annotations

import re

import pytest

from examples.example_run import ExampleRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

EXAMPLE = "jax"
ENVIRONMENTS = ("FRAMEWORKS",)


def test_two_processes_end_with_the_same_parameters(example: ExampleRun) -> None:
    logs = example.finish(example.apply())
    assert "2 processes, 2 devices, starting after epoch 0" in logs
    found = re.findall(r"process (\d) has parameters (\w+)", logs)
    assert sorted(process for process, _ in found) == ["0", "1"]
    assert len({parameters for _, parameters in found}) == 1
    accuracy = re.search(r"^\S* ?test accuracy (\S+),", logs.replace("[node-0-0] ", ""), re.MULTILINE)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.95
    metrics = example.read_metrics("digits-jax")
    assert metrics["percent"] == 100
    assert metrics["accuracy"] == pytest.approx(float(accuracy[1]), abs=1e-4)


def test_a_suspended_job_goes_on_from_its_checkpoint_on_one_node(example: ExampleRun) -> None:
    """1. Two nodes train. 2. The job is suspended. 3. It is resumed on one, and says where it goes on."""
    name = example.apply(args=["--epochs", "400"])
    example.follow_until(name, "epoch 3/400")
    example.call("suspend", name)
    reached = re.findall(r"epoch (\d+)/400", example.read_logs(name))[-1]
    example.call("scale", name, "--nodes", "1")
    example.call("resume", name)
    beginning = "1 processes, 1 devices, starting after epoch "
    example.follow_until(name, beginning)
    (started,) = re.findall(rf"{beginning}(\d+)", example.read_logs(name))
    # The last line may have been printed before its checkpoint was written.
    assert int(reached) - 1 <= int(started) <= int(reached)
