from __future__ import annotations

import re

import pytest

from examples.example_run import ExampleRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

EXAMPLE = "xgboost"
ENVIRONMENTS = ("FRAMEWORKS",)

HALF = """
import xgboost as xgb
from train import PARAMETERS, load_rows
(features, labels), (test, _) = load_rows()
whole = xgb.Booster(model_file={model!r})
half = xgb.train(PARAMETERS, xgb.DMatrix(features[::2], labels[::2]), num_boost_round=40)
found, others = (model.predict(xgb.DMatrix(test)) for model in (whole, half))
print(whole.num_boosted_rounds(), abs(found - others).max())
"""


def test_the_model_of_two_nodes_is_that_of_one(example: ExampleRun) -> None:
    logs = example.finish(example.apply())
    assert "2 nodes, starting after tree 0" in logs
    difference = re.search(r"trained alone, no probability differs by more than (\S+)", logs)
    accuracy = re.search(r"test accuracy (\S+)", logs)
    assert difference is not None
    assert accuracy is not None
    assert float(difference[1]) < 1e-5
    assert float(accuracy[1]) >= 0.92
    # That is no accident of easy data: with the rows of one node alone the model is another one.
    trees, far = example.python(HALF.format(model=str(example.checkpoints / "model.json"))).split()
    assert int(trees) == 40
    assert float(far) > 0.01
    metrics = example.read_metrics("tumours")
    assert metrics["percent"] == 100
    assert metrics["error"] == pytest.approx(1 - float(accuracy[1]), abs=1e-3)


def test_a_second_run_goes_on_from_the_checkpoint_of_the_first(example: ExampleRun) -> None:
    example.finish(example.apply(name="first", args=["--trees", "15"]))
    logs = example.finish(example.apply(name="second", args=["--trees", "40", "--compare"], numNodes=3))
    assert "3 nodes, starting after tree 15" in logs
    assert "tree 20/40" in logs
    assert "tree 15/40" not in logs
