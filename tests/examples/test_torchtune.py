from __future__ import annotations

import re

import pytest

from examples.example_run import ExampleRun

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

EXAMPLE = "torchtune"
ENVIRONMENTS = ("TORCHTUNE",)


def test_tune_run_is_completed_and_fine_tunes_what_the_step_before_has_made(example: ExampleRun) -> None:
    """The recipe for one device and its configuration are filled in, the paths are those of the runtime."""
    logs = example.finish(example.apply())
    assert "Running FullFinetuneRecipeSingleDevice with resolved config" in logs
    assert "output_dir: /workspace/output" in logs
    losses = [float(loss) for loss in re.findall(r"\d\|\d+\|Loss: ([\d.]+)", logs)]
    assert losses[-1] < losses[0] / 2
    (model,) = (example.volumes / "tuning-tuned" / "output" / "epoch_1").glob("model-*.safetensors")
    assert model.stat().st_size > 16_000_000
