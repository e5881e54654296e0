from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.torchrun import run_torchrun

FILE = Path(__file__).parent.parent.parent / "examples" / "steps" / "trainjob.yaml"


@pytest.fixture
def objects() -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in yaml.safe_load_all(FILE.read_text())}


def test_the_file_is_complete(objects: dict[str, dict[str, Any]]):
    """Two replicated jobs, the second after the first, and everything they name is in the file."""
    runtime, job = objects["TrainingRuntime"], objects["TrainJob"]
    prepare, node = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert node["dependsOn"] == [{"name": prepare["name"], "status": "Complete"}]
    assert job["spec"]["runtimeRef"] == {"kind": "TrainingRuntime", "name": runtime["metadata"]["name"]}
    for step in (prepare, node):
        pod = step["template"]["spec"]["template"]["spec"]
        assert pod["volumes"][0]["configMap"]["name"] == objects["ConfigMap"]["metadata"]["name"]
        script = Path(pod["containers"][0]["command"][1]).name
        assert script in objects["ConfigMap"]["data"]


@pytest.mark.e2e
@pytest.mark.timeout(500)
async def test_the_scripts_prepare_train_and_go_on_from_a_checkpoint(
    training_environment: Path, tmp_path: Path, objects: dict[str, dict[str, Any]]
):
    for name, text in objects["ConfigMap"]["data"].items():
        (tmp_path / name).write_text(text)
    variables = {
        "SETTINGS": str(tmp_path / "settings.json"),
        "DATA_DIR": str(tmp_path),
        "SECONDS_PER_EPOCH": "0",
    }
    python = training_environment / "bin" / "python"
    prepare = await asyncio.create_subprocess_exec(python, str(tmp_path / "prepare.py"), env=variables)
    assert await prepare.wait() == 0

    settings = json.loads((tmp_path / "settings.json").read_text())
    (tmp_path / "settings.json").write_text(json.dumps({**settings, "epochs": 40}))
    words = [str(tmp_path / "train.py")]
    async with run_torchrun(training_environment, (2, 1), words, variables) as job:
        await job.wait_for_line("2 processes, starting after epoch 0")
        await job.finish()
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    async with run_torchrun(training_environment, (1, 1), words, variables) as job:
        await job.wait_for_line("1 processes, starting after epoch 40")
        fitted = re.fullmatch(r"y = (\S+) x \+ (\S+)", await job.wait_for_line("y = "))
        assert fitted is not None
        assert [float(number) for number in fitted.groups()] == pytest.approx([3, 2], abs=0.05)
        await job.finish()
