"""The MPI example: its files as they are, each runtime with an mpirun of its implementation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.lab import Lab
from runner.mpi_jobs import find_implementation

FOLDER = Path(__file__).parents[2] / "examples" / "mpi"
# Implementation -> runtime of the example.
RUNTIMES = {"Open MPI 4": "open-mpi", "Open MPI 5": "open-mpi", "MPICH": "mpich", "Intel MPI": "intel-mpi"}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    laboratory = Lab(tmp_path)
    yield laboratory
    laboratory.close()
    laboratory.kill_leftovers()


def load(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_the_runtimes_differ_in_implementation_and_image_alone() -> None:
    policies = {}
    bodies = []
    for runtime in load("runtimes.yaml"):
        mpi = runtime["spec"]["mlPolicy"]["mpi"]
        policies[runtime["metadata"]["name"]] = mpi.pop("mpiImplementation")
        for step in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
            (container,) = step["template"]["spec"]["template"]["spec"]["containers"]
            assert container.pop("image") == f"registry.example/{runtime['metadata']['name']}:1"
        bodies.append(runtime["spec"])
    assert policies == {"open-mpi": "OpenMPI", "mpich": "MPICH", "intel-mpi": "Intel"}
    assert bodies[0] == bodies[1] == bodies[2]


@pytest.mark.e2e
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", RUNTIMES)
async def test_the_job_sums_over_two_nodes(lab: Lab, name: str) -> None:
    implementation = find_implementation(name)
    lab.bound_seconds = 90.0
    lab.environment |= {"PATH": implementation.path, "HOME": str(lab.work), **implementation.environment}
    for runtime in load("runtimes.yaml"):
        runtime["metadata"]["namespace"] = "default"
        await lab.cluster.apply(runtime, "test")
    (job,) = load("trainjob.yaml")
    job["metadata"] |= {
        "namespace": "default",
        "annotations": {"trainer.kubeflow.org/local-working-directory": str(FOLDER)},
    }
    job["spec"]["runtimeRef"]["name"] = RUNTIMES[name]
    job["spec"]["trainer"]["command"][1] = implementation.python
    await lab.cluster.create(job)
    async with lab.supervising("sums"):
        assert await lab.until_finished("sums") == {"Complete": ("True", "AllJobsCompleted")}
    (log,) = lab.paths.jobs.glob("*/pods/sums-launcher-0-0-*/node.log")
    text = log.read_text()
    for rank in range(4):
        assert f"rank {rank} of 4 on " in text
    assert "sums of 1 and of 100000 doubles are right" in text
