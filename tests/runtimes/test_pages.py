"""The pages about the shipped runtimes, and what the jobs in them become on one node and on four."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from trainwright.admission import Verdict, default_train_job, validate_train_job
from trainwright.api.constants import FRAMEWORK_LABEL
from trainwright.api.meta import Json
from trainwright.api.reading import read_objects
from trainwright.api.trainjob import TrainJob
from trainwright.api.writing import build_yaml
from trainwright.render import render
from trainwright.runtimes import DESCRIPTION_ANNOTATION, load_shipped_runtimes

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs/runtimes"
GOLDEN = ROOT / "tests/data/runtimes"
RUNTIMES = load_shipped_runtimes()
PAGES = {path.stem: path for path in sorted(FOLDER.glob("*.md")) if path.stem != "index"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
# TorchTune trains these on several nodes in no configuration.
ON_ONE_NODE = {"torchtune-llama3.2-1b", "torchtune-llama3.2-3b", "torchtune-qwen2.5-1.5b"}
# What TorchTune has on several nodes is full fine-tuning.
FULL = {"torchtune-llama3.3-70b": ["epochs=2"]}


def list_runtimes(page: str) -> list[str]:
    """Return the names in the line `Runtimes: ...` of a page."""
    [line] = re.findall(r"^Runtimes: (.*)$", PAGES[page].read_text(), re.MULTILINE)
    return re.findall(r"`([^`]+)`", line)


def read_job(page: str) -> TrainJob:
    [block] = re.findall(r"```yaml\n(.*?)```", PAGES[page].read_text(), re.DOTALL)
    result = read_objects(block, page)
    assert (result.errors, result.warnings) == ((), ())
    [found] = result.objects
    assert isinstance(found.value, TrainJob)
    return found.value


PAGE_OF = {name: page for page in PAGES for name in list_runtimes(page)}


def build_job(name: str, num_nodes: int) -> TrainJob:
    """Return the job of the runtime's page, for the runtime and this many nodes, as admission stores it."""
    job = read_job(PAGE_OF[name])
    replace = msgspec.structs.replace
    assert job.spec is not None
    assert job.spec.trainer is not None
    arguments = job.spec.trainer.args if num_nodes == 1 else FULL.get(name, job.spec.trainer.args)
    trainer = replace(job.spec.trainer, num_nodes=num_nodes, args=arguments)
    reference = replace(job.spec.runtime_ref, name=name)
    changed = replace(job, spec=replace(job.spec, runtime_ref=reference, trainer=trainer))
    return default_train_job(changed, None, NOW)


def list_sizes(name: str) -> tuple[int, ...]:
    return (1,) if name in ON_ONE_NODE else (1, 4)


def render_golden(name: str) -> str:
    objects: list[Json] = [
        obj for size in list_sizes(name) for obj in render(build_job(name, size), RUNTIMES[name])
    ]
    return build_yaml(objects)


def test_every_runtime_has_a_page() -> None:
    assert sorted(PAGE_OF) == list(RUNTIMES)


def test_the_index_lists_every_runtime_with_its_page_in_the_runtimes_own_words() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| (.*) \| \[\]\((\S+)\.md\) \|$", (FOLDER / "index.md").read_text(), re.M
    )
    assert rows == [
        (name, (runtime.metadata.annotations or {})[DESCRIPTION_ANNOTATION], PAGE_OF[name])
        for name, runtime in RUNTIMES.items()
    ]


@pytest.mark.parametrize("page", PAGES)
def test_the_job_of_a_page_is_admitted_without_a_word(page: str) -> None:
    job = read_job(page)
    assert job.spec is not None
    name = job.spec.runtime_ref.name
    assert PAGE_OF[name] == page
    assert validate_train_job(default_train_job(job, None, NOW), RUNTIMES[name]) == Verdict()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_which_image_it_is_and_what_was_tested(page: str) -> None:
    text = " ".join(PAGES[page].read_text().split())
    assert "ested here" in text or "Not tested here" in text
    for name in list_runtimes(page):
        spec = RUNTIMES[name].spec
        assert spec is not None
        assert spec.template is not None
        assert spec.template.spec is not None
        for job in spec.template.spec["replicatedJobs"]:
            [container] = job["template"]["spec"]["template"]["spec"]["containers"]
            image = container["image"]
            own_name, _, tag = image.rpartition("/")[2].partition(":")
            if "kubeflow" in image:
                assert tag in text
                assert own_name in text or container["name"].endswith("-initializer")
            else:
                assert f"`{image}`" in text


@pytest.mark.parametrize("name", RUNTIMES)
def test_jobs_of_a_runtime_become_what_the_golden_file_has(name: str) -> None:
    """After an intended change: run this file as a program, and read the difference."""
    for size in list_sizes(name):
        assert validate_train_job(build_job(name, size), RUNTIMES[name]) == Verdict()
    assert (GOLDEN / f"{name}.yaml").read_text() == render_golden(name)


@pytest.mark.parametrize("name", sorted(ON_ONE_NODE))
def test_a_small_model_is_not_tuned_on_several_nodes(name: str) -> None:
    verdict = validate_train_job(build_job(name, 4), RUNTIMES[name])
    assert "spec.trainer.numNodes" in {error.path for error in verdict.errors}


def test_there_is_no_golden_file_of_a_runtime_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == {*RUNTIMES, "versions"}


def test_the_readme_names_every_framework() -> None:
    readme = (ROOT / "README.md").read_text()
    named = {
        "accelerate": "Accelerate",
        "deepspeed": "DeepSpeed",
        "flux": "Flux",
        "jax": "JAX",
        "lightgbm": "LightGBM",
        "lightning": "Lightning",
        "megatron": "Megatron-LM",
        "mlx": "MLX",
        "mpi": "MPI",
        "paddle": "PaddlePaddle",
        "plain": "plain programs",
        "tensorflow": "TensorFlow",
        "torch": "PyTorch",
        "torchtune": "TorchTune",
        "xgboost": "XGBoost",
    }
    frameworks = {(runtime.metadata.labels or {})[FRAMEWORK_LABEL] for runtime in RUNTIMES.values()}
    assert {named[framework] for framework in frameworks if named[framework] not in readme} == set()


if __name__ == "__main__":
    for written in RUNTIMES:
        (GOLDEN / f"{written}.yaml").write_text(render_golden(written))
    sys.exit()
