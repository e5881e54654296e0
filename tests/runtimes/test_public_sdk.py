"""The shipped runtimes as the public SDK reads them, by its own code."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from trainwright.api.encoding import build_object
from trainwright.runtimes import load_shipped_runtimes

PROGRAM = """\
import json
import sys

from kubeflow.trainer.backends.kubernetes import utils
from kubeflow_trainer_api import models

found = {}
for body in json.load(sys.stdin):
    runtime = models.TrainerV1alpha1ClusterTrainingRuntime.from_dict(body)
    framework = runtime.metadata.labels["trainer.kubeflow.org/framework"]
    jobs = runtime.spec.template.spec.replicated_jobs
    trainer = utils.get_runtime_trainer(framework, jobs, runtime.spec.ml_policy)
    words = [word for part in trainer.command for word in part.split()]
    starters = ("mpirun", "tune", "torchrun", "python")
    started_by = next(starter for starter in starters if starter in words)
    read = [trainer.framework, trainer.trainer_type.name, started_by, trainer.num_nodes]
    found[runtime.metadata.name] = read
print(json.dumps(found))
"""
STARTED_BY = {"torch": "torchrun", "mpi": "mpirun"}


@pytest.fixture
def sdk_environment() -> Path:
    chosen = os.environ.get("TRAINWRIGHT_SDK_ENV")
    if not chosen:
        pytest.skip("NOT TESTED: no SDK; `make test-full` sets TRAINWRIGHT_SDK_ENV and installs it")
    return Path(chosen)


def test_the_public_sdk_understands_every_shipped_runtime(sdk_environment: Path) -> None:
    shipped = load_shipped_runtimes()
    bodies = {name: build_object(runtime) for name, runtime in shipped.items()}
    ran = subprocess.run(
        [sdk_environment / "bin/python", "-c", PROGRAM],
        input=json.dumps(list(bodies.values())),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    expected = {}
    for name, body in bodies.items():
        framework = body["metadata"]["labels"]["trainer.kubeflow.org/framework"]
        chosen = next(iter(set(body["spec"]["mlPolicy"]) - {"numNodes"}), "plain")
        is_tune = framework == "torchtune"
        starter = "tune" if is_tune else STARTED_BY.get(chosen, "python")
        expected[name] = [framework, "BUILTIN_TRAINER" if is_tune else "CUSTOM_TRAINER", starter, 1]
    assert json.loads(ran.stdout) == expected
