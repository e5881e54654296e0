from __future__ import annotations

import re

import pytest

from examples.example_run import ExampleRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

EXAMPLE = "slices"
ENVIRONMENTS = ("TRAIN",)

ALL_PARAMETERS = (64 + 1) * 128 + (128 + 1) * 64 + (64 + 1) * 10


def test_each_slice_keeps_the_whole_model_between_its_nodes(example: ExampleRun) -> None:
    name = example.apply()
    logs = example.finish(name)
    assert "2 slices of 2 processes on cpu" in logs
    kept = re.findall(r"slice (\d) process (\d) keeps (\d+) parameters", logs)
    assert sorted((slice_, process) for slice_, process, _ in kept) == [
        ("0", "0"),
        ("0", "1"),
        ("1", "0"),
        ("1", "1"),
    ]
    for wanted in ("0", "1"):
        assert sum(int(count) for slice_, _, count in kept if slice_ == wanted) == ALL_PARAMETERS
    assert "slice 1 process 1 keeps" in example.read_logs(name, "--rank", "3")
    accuracies = re.findall(r"test accuracy (\S+)", logs)
    assert float(accuracies[-1]) >= 0.9


def test_a_number_of_nodes_that_fills_no_slice_is_refused(example: ExampleRun) -> None:
    with pytest.raises(AssertionError, match="is 3, but the runtime has 2 nodes per slice"):
        example.apply(numNodes=3)
