"""The shipped set: which runtimes there are, and what holds of every one."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
import yaml

from trainwright.admission import Verdict, validate_runtime
from trainwright.api.constants import ANCESTOR_LABEL
from trainwright.api.encoding import build_json, build_object, encode_canonical
from trainwright.api.meta import Json
from trainwright.api.reading import read_objects
from trainwright.runtimes import DESCRIPTION_ANNOTATION, RUNTIME_VERSION_ANNOTATION, load_shipped_runtimes
from trainwright.template.shape import find_shape_errors

RUNTIMES = load_shipped_runtimes()
VERSIONS = Path(__file__).resolve().parent.parent / "data/runtimes/versions.yaml"
PEER = "ghcr.io/kubeflow/trainer"
INITIALIZERS = {
    "dataset-initializer": f"{PEER}/dataset-initializer:v2.3.0",
    "model-initializer": f"{PEER}/model-initializer:v2.3.0",
}
TUNE = {**INITIALIZERS, "node": f"{PEER}/torchtune-trainer:v2.3.0"}


def build_mpi_policy(implementation: str = "OpenMPI") -> Json:
    return {
        "mpi": {
            "mpiImplementation": implementation,
            "numProcPerNode": 1,
            "sshAuthMountPath": "/home/mpiuser/.ssh",
            "runLauncherAsNode": True,
        }
    }


# Name -> framework label, policy, image by replicated job. Source: spec 02, section 12; the others are ours.
SHIPPED: dict[str, tuple[str, Json, dict[str, str]]] = {
    "accelerate-distributed": ("accelerate", {"torch": {}}, {"node": "trainwright/accelerate:1.15.0"}),
    "deepspeed-distributed": (
        "deepspeed",
        build_mpi_policy(),
        dict.fromkeys(("node", "launcher"), f"{PEER}/deepspeed-runtime:v2.3.0"),
    ),
    "flux-distributed": ("flux", {"flux": {}}, {"node": "ubuntu:jammy"}),
    "intel-mpi-distributed": (
        "mpi",
        build_mpi_policy("Intel"),
        dict.fromkeys(("node", "launcher"), "trainwright/intel-mpi:2021.18.1"),
    ),
    "jax-distributed": ("jax", {"jax": {}}, {"node": "nvcr.io/nvidia/jax:25.10-py3"}),
    "lightgbm-distributed": ("lightgbm", {"xgboost": {}}, {"node": "trainwright/lightgbm:4.7.0"}),
    "lightning-distributed": ("lightning", {"torch": {}}, {"node": "trainwright/lightning:2.6.6"}),
    "megatron-distributed": ("megatron", {"torch": {}}, {"node": "trainwright/megatron-core:0.19.2"}),
    "mlx-distributed": (
        "mlx",
        build_mpi_policy(),
        dict.fromkeys(("node", "launcher"), f"{PEER}/mlx-runtime:v2.3.0"),
    ),
    "mpi-distributed": (
        "mpi",
        build_mpi_policy(),
        dict.fromkeys(("node", "launcher"), "trainwright/openmpi:5.0.11"),
    ),
    "mpich-distributed": (
        "mpi",
        build_mpi_policy("MPICH"),
        dict.fromkeys(("node", "launcher"), "trainwright/mpich:5.0.2"),
    ),
    "paddle-distributed": (
        "paddle",
        {"paddle": {}},
        {"node": "paddlepaddle/paddle:3.0.0-gpu-cuda12.6-cudnn9.5-trt10.5"},
    ),
    "plain": ("plain", {}, {"node": "python:3.13-slim"}),
    "tensorflow-distributed": (
        "tensorflow",
        {"tensorflow": {}},
        {"node": "tensorflow/tensorflow:2.20.0-gpu"},
    ),
    "torch-distributed": (
        "torch",
        {"torch": {}},
        {"node": "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"},
    ),
    "torchtune-llama3.2-1b": ("torchtune", {"torch": {}}, TUNE),
    "torchtune-llama3.2-3b": ("torchtune", {"torch": {}}, TUNE),
    "torchtune-llama3.3-70b": ("torchtune", {"torch": {}}, TUNE),
    "torchtune-qwen2.5-1.5b": ("torchtune", {"torch": {}}, TUNE),
    "xgboost-distributed": ("xgboost", {"xgboost": {}}, {"node": f"{PEER}/xgboost-runtime:v2.3.0"}),
}


def list_replicated_jobs(name: str) -> list[Json]:
    found: list[Json] = build_object(RUNTIMES[name])["spec"]["template"]["spec"]["replicatedJobs"]
    return found


def iterate_pods(name: str) -> Iterator[tuple[str, Json, Json]]:
    """Replicated job, spec of the Job, spec of the pod."""
    for job in list_replicated_jobs(name):
        spec = job["template"]["spec"]
        yield job["name"], spec, spec["template"]["spec"]


def read_file(name: str) -> str:
    return (resources.files("trainwright.runtimes") / f"{name}.yaml").read_text(encoding="utf-8")


def test_the_shipped_runtimes_are_those() -> None:
    assert list(RUNTIMES) == list(SHIPPED)


@pytest.mark.parametrize(("name", "expected"), SHIPPED.items(), ids=SHIPPED)
def test_label_policy_and_images(name: str, expected: tuple[str, Json, dict[str, str]]) -> None:
    framework, policy, images = expected
    runtime = RUNTIMES[name]
    assert runtime.spec is not None
    assert runtime.metadata.name == name
    assert runtime.metadata.labels == {"trainer.kubeflow.org/framework": framework}
    assert build_json(runtime.spec.ml_policy) == {"numNodes": 1, **policy}
    assert {job: pod["containers"][0]["image"] for job, _, pod in iterate_pods(name)} == images


@pytest.mark.parametrize("name", SHIPPED)
def test_a_failure_shows_at_once(name: str) -> None:
    for _, job, pod in iterate_pods(name):
        assert (job["backoffLimit"], pod["restartPolicy"]) == (0, "Never")


@pytest.mark.parametrize("name", SHIPPED)
def test_images_have_tags_that_stay(name: str) -> None:
    for _, _, pod in iterate_pods(name):
        for container in pod["containers"]:
            tag = container["image"].rpartition("/")[2].partition(":")[2]
            assert tag
            assert tag != "latest"


@pytest.mark.parametrize("name", SHIPPED)
def test_what_the_public_sdk_reads_is_there(name: str) -> None:
    """It takes the first step with a label, asks its container `node`, and looks for a framework label."""
    trainers = [
        job
        for job in list_replicated_jobs(name)
        if job["template"].get("metadata", {}).get("labels", {}).get(ANCESTOR_LABEL) == "trainer"
    ]
    assert len(trainers) == 1
    assert trainers[0]["template"]["spec"]["template"]["spec"]["containers"][0]["name"] == "node"


@pytest.mark.parametrize("name", SHIPPED)
def test_a_runtime_says_in_one_line_what_it_is_for(name: str) -> None:
    description = (RUNTIMES[name].metadata.annotations or {})[DESCRIPTION_ANNOTATION]
    assert 10 < len(description) <= 70
    assert not description.endswith(".")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_runtime_is_read_strictly_and_admitted_without_a_word(name: str) -> None:
    result = read_objects(read_file(name), name)
    assert (result.errors, result.warnings) == ((), ())
    assert [found.value for found in result.objects] == [RUNTIMES[name]]
    assert validate_runtime(RUNTIMES[name]) == Verdict()
    spec = RUNTIMES[name].spec
    assert spec is not None
    assert spec.template is not None
    assert find_shape_errors(spec.template.spec) == []


@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_in_a_file_is_lost_by_reading_it(name: str) -> None:
    document: Json = yaml.safe_load(read_file(name))
    assert build_object(RUNTIMES[name]) == document


def test_runtimes_that_differ_in_their_image_alone_stay_equal() -> None:
    """The MPI runtimes are one pattern; a correction of one that the others lack would be an oversight."""

    def strip(name: str) -> str:
        framework, policy, images = SHIPPED[name]
        text = read_file(name)
        for word in (name, images["node"], policy["mpi"]["mpiImplementation"], f"framework: {framework}"):
            text = text.replace(word, "_")
        return "\n".join(
            line for line in text.splitlines() if not line.startswith(("#", "    kubernetes.io/"))
        )

    mpi = [name for name, (_, policy, _) in SHIPPED.items() if "mpi" in policy]
    assert len(mpi) == 5
    assert len({strip(name) for name in mpi}) == 1


def test_a_runtime_that_changed_has_a_new_version() -> None:
    """After a change, count `trainer.kubeflow.org/runtime-version` up and run this file as a program."""
    assert yaml.safe_load(VERSIONS.read_text()) == build_versions()


def build_versions() -> dict[str, dict[str, str]]:
    """Return version and hash of the content by name."""
    return {
        name: {
            "version": (runtime.metadata.annotations or {})[RUNTIME_VERSION_ANNOTATION],
            "content": hashlib.sha256(encode_canonical(build_object(runtime))).hexdigest()[:16],
        }
        for name, runtime in RUNTIMES.items()
    }


def test_the_set_is_a_mapping_that_knows_its_names() -> None:
    assert "plain" in RUNTIMES
    assert "plain.yaml" not in RUNTIMES
    assert RUNTIMES.get("../runtimes/plain") is None
    assert len(RUNTIMES) == len(SHIPPED)
    with pytest.raises(KeyError, match="unknown"):
        RUNTIMES["unknown"]


@pytest.mark.parametrize(
    "use", ["pass", "list(load_shipped_runtimes())", "'plain' in load_shipped_runtimes()"]
)
def test_no_yaml_is_read_before_a_runtime_is_asked_for(use: str) -> None:
    program = (
        "import sys; from trainwright.runtimes import load_shipped_runtimes; "
        f"{use}; sys.exit('yaml' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def _record_versions() -> None:
    recorded = yaml.safe_load(VERSIONS.read_text()) if VERSIONS.exists() else {}
    versions = build_versions()
    for name, new in versions.items():
        old = recorded.get(name)
        if old is not None and old["content"] != new["content"] and old["version"] == new["version"]:
            sys.exit(f"{name} changed: count its {RUNTIME_VERSION_ANNOTATION} up from {old['version']}")
    VERSIONS.write_text(yaml.safe_dump(versions))


if __name__ == "__main__":
    _record_versions()
