"""Runtimes whose processes have to be told that there are others: what they start is one training."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from cli.program import Program

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
WITH_ACCELERATE = """\
from accelerate import Accelerator
import torch

accelerator = Accelerator()
ranks = accelerator.gather(torch.tensor([accelerator.process_index + 1])).sum().item()
place = f"{accelerator.process_index} of {accelerator.num_processes}"
print(f"{place} sums to {ranks}, {accelerator.mixed_precision}\\n", end="")  # one write: ranks share a pipe
accelerator.end_training()
"""
# Ends with the lines of the page about Lightning.
WITH_LIGHTNING = """\
import torch
import lightning as L
from torch.utils.data import DataLoader, TensorDataset


class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        x, y = batch
        return ((self.layer(x) - y) ** 2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


"""
FIT = """
x = torch.linspace(0, 1, 64).unsqueeze(1)
trainer.fit(Line(), DataLoader(TensorDataset(x, 2 * x), batch_size=8))
print(f"{trainer.global_rank} of {trainer.world_size} has {trainer.num_training_batches} batches\\n", end="")
"""


RANKS = """\
import socket
from mpi4py import MPI

hosts = MPI.COMM_WORLD.gather(socket.gethostname())
if MPI.COMM_WORLD.rank == 0:
    print("ranks on", *(host.removeprefix("launched-") for host in hosts))
"""
# Which variable of `make test` names an environment that has the implementation.
IMPLEMENTATIONS = {
    "mpi-distributed": "TRAINWRIGHT_OPENMPI_ENV",
    "mpich-distributed": "TRAINWRIGHT_MPICH_ENV",
    "intel-mpi-distributed": "TRAINWRIGHT_INTEL_MPI_ENV",
}


@pytest.fixture
def program(tmp_path: Path, training_environment: Path) -> Program:
    """The program, called from a shell in which the training environment is active."""
    folder = tmp_path / "work"
    folder.mkdir()
    path = (str(training_environment / "bin"), "/usr/bin", "/bin")
    return Program(folder=folder, state=tmp_path / "state", path=path, extra={"OMP_NUM_THREADS": "1"})


def build_job(runtime: str, trainer: str) -> str:
    return (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: launched}\n"
        f"spec: {{runtimeRef: {{name: {runtime}}}, trainer: {trainer}}}\n"
    )


def train(program: Program, job: str) -> str:
    """Run a job to its end, and return its log."""
    program.succeed("apply", "-f", "-", stdin=job)
    done = program.run("wait", "launched", "--for", "complete", "--timeout", "300", seconds=320)
    log = program.succeed("logs", "launched")
    assert done.returncode == 0, done.stderr + log
    return log


def test_accelerate_makes_one_training_of_all_processes_also_on_cpus(program: Program) -> None:
    program.write("train.py", WITH_ACCELERATE)
    trainer = "{numNodes: 2, numProcPerNode: 2, args: [--mixed_precision=bf16, train.py]}"
    log = train(program, build_job("accelerate-distributed", trainer))
    assert sorted(re.findall(r"\d of \d sums to \d+, \w+", log)) == [
        f"{rank} of 4 sums to 10, bf16" for rank in range(4)
    ]


def test_accelerate_trains_in_one_process_where_nothing_says_more(program: Program) -> None:
    program.write("train.py", WITH_ACCELERATE)
    log = train(program, build_job("accelerate-distributed", "{numProcPerNode: 1, args: [train.py]}"))
    assert "0 of 1 sums to 1, no" in log


def test_lightning_takes_what_torchrun_started_by_the_lines_of_its_page(program: Program) -> None:
    page = (ROOT / "docs/runtimes/lightning.md").read_text()
    [lines] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    options = "    accelerator='cpu', max_epochs=1, logger=False, enable_checkpointing=False,\n)"
    assert lines.endswith("\n)\n")
    program.write("train.py", WITH_LIGHTNING + lines.removesuffix(")\n") + options + FIT)
    trainer = "{numNodes: 2, numProcPerNode: 1, command: [torchrun, train.py]}"
    log = train(program, build_job("lightning-distributed", trainer))
    assert sorted(re.findall(r"\d of 2 has \d+ batches", log)) == [
        "0 of 2 has 4 batches",
        "1 of 2 has 4 batches",
    ]


@pytest.mark.parametrize("runtime", IMPLEMENTATIONS)
def test_mpirun_without_options_starts_on_every_node_as_many_ranks_as_the_job_says(
    runtime: str, tmp_path: Path
) -> None:
    """Three, which is neither the number of cores nor what any implementation starts by itself."""
    environment = os.environ.get(IMPLEMENTATIONS[runtime])
    if not environment:
        pytest.skip(f"NOT TESTED: {runtime}; `make test` sets {IMPLEMENTATIONS[runtime]} where it can")
    folder = tmp_path / "work"
    folder.mkdir()
    program = Program(
        folder=folder, state=tmp_path / "state", path=(f"{environment}/bin", "/usr/bin", "/bin")
    )
    program.extra["I_MPI_ROOT"] = environment
    program.write("ranks.py", RANKS)
    trainer = "{numNodes: 2, numProcPerNode: 3, command: [mpirun, python, ranks.py]}"
    log = train(program, build_job(runtime, trainer))
    [hosts] = re.findall(r"ranks on (.*)", log)
    assert sorted(hosts.split()) == ["launcher-0-0"] * 3 + ["node-0-0"] * 3
