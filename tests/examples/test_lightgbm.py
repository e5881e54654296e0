from __future__ import annotations

import re

import pytest

from examples.example_run import ExampleRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

EXAMPLE = "lightgbm"
ENVIRONMENTS = ("FRAMEWORKS",)


def test_two_nodes_grow_the_same_trees_as_good_as_those_of_one(example: ExampleRun) -> None:
    logs = example.finish(example.apply())
    assert "2 nodes, starting after round 0" in logs
    found = re.findall(r"node (\d) has trees (\w+)", logs)
    assert sorted(node for node, _ in found) == ["0", "1"]
    assert len({trees for _, trees in found}) == 1
    accuracy = re.search(r"test accuracy (\S+), checkpoint", logs)
    alone = re.search(r"trained alone, the test accuracy is (\S+)", logs)
    assert accuracy is not None
    assert alone is not None
    assert float(accuracy[1]) >= 0.94
    assert abs(float(accuracy[1]) - float(alone[1])) <= 0.02
    metrics = example.read_metrics("digits-lightgbm")
    assert metrics["percent"] == 100
    assert metrics["accuracy"] == pytest.approx(float(accuracy[1]), abs=1e-4)


def test_a_second_run_goes_on_from_the_checkpoint_of_the_first(example: ExampleRun) -> None:
    example.finish(example.apply(name="first", args=["--rounds", "10"]))
    logs = example.finish(example.apply(name="second", args=["--rounds", "15"]))
    assert "2 nodes, starting after round 10" in logs
    assert "round 15/15" in logs
    trees = re.findall(r"node \d has trees (\w+)", logs)
    assert len(trees) == 2
    assert len(set(trees)) == 1
    model = str(example.checkpoints / "model.txt")
    trees_in_all = example.python(
        f"import lightgbm; print(lightgbm.Booster(model_file={model!r}).num_trees())"
    )
    assert int(trees_in_all) == 15 * 10  # one for each digit
