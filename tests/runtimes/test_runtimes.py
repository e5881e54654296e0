from __future__ import annotations

import subprocess
import sys
from importlib import resources

import pytest
import yaml

from template.builders import TORCH, train_job
from trainwright.admission import Verdict, validate_runtime
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json
from trainwright.api.reading import read_objects
from trainwright.api.runtime import ClusterTrainingRuntime, MLPolicy
from trainwright.api.trainjob import Trainer
from trainwright.render import render_job_set
from trainwright.runtimes import load_shipped_runtimes
from trainwright.template.shape import find_shape_errors

RUNTIMES = load_shipped_runtimes()
# Name -> framework label, policy, image (spec 02 section 12).
SHIPPED: dict[str, tuple[str, MLPolicy, str]] = {
    "plain": ("plain", MLPolicy(num_nodes=1), "python:3.13-slim"),
    "torch-distributed": ("torch", TORCH, "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"),
}


def test_the_shipped_runtimes_are_those() -> None:
    assert list(RUNTIMES) == list(SHIPPED)


@pytest.mark.parametrize(("name", "expected"), SHIPPED.items(), ids=SHIPPED)
def test_a_shipped_runtime(name: str, expected: tuple[str, MLPolicy, str]) -> None:
    framework, policy, image = expected
    runtime = RUNTIMES[name]
    assert runtime.spec is not None
    assert runtime.spec.template is not None
    assert (runtime.metadata.name, runtime.metadata.labels) == (
        name,
        {"trainer.kubeflow.org/framework": framework},
    )
    assert runtime.spec.ml_policy == policy
    assert runtime.spec.template.spec == {
        "replicatedJobs": [
            {
                "name": "node",
                "template": {
                    "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                    "spec": {
                        "backoffLimit": 0,
                        "template": {
                            "spec": {
                                "restartPolicy": "Never",
                                "containers": [{"name": "node", "image": image}],
                            }
                        },
                    },
                },
            }
        ]
    }


@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=RUNTIMES)
def test_a_shipped_runtime_renders(runtime: ClusterTrainingRuntime) -> None:
    assert runtime.spec is not None
    assert runtime.spec.template is not None
    assert find_shape_errors(runtime.spec.template.spec) == []
    spec = render_job_set(train_job(Trainer(num_nodes=3, command=["true"])), runtime)["spec"]
    assert spec["replicatedJobs"][0]["template"]["spec"]["parallelism"] == 3


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_shipped_runtime_is_read_strictly_and_admitted_without_a_word(name: str) -> None:
    text = (resources.files("trainwright.runtimes") / f"{name}.yaml").read_text(encoding="utf-8")
    result = read_objects(text, name)
    assert (result.errors, result.warnings) == ((), ())
    assert [found.value for found in result.objects] == [RUNTIMES[name]]
    assert validate_runtime(RUNTIMES[name]) == Verdict()


@pytest.mark.parametrize("name", RUNTIMES)
def test_nothing_in_a_file_is_lost_by_reading_it(name: str) -> None:
    text = (resources.files("trainwright.runtimes") / f"{name}.yaml").read_text(encoding="utf-8")
    document: Json = yaml.safe_load(text)
    assert build_object(RUNTIMES[name]) == document


def test_a_caller_may_change_the_answer_without_changing_the_next() -> None:
    load_shipped_runtimes().clear()
    assert list(load_shipped_runtimes()) == list(SHIPPED)


def test_importing_the_package_loads_no_yaml() -> None:
    program = "import sys, trainwright.runtimes; sys.exit('yaml' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
