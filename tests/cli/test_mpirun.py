"""Which runtimes start ranks of a script, and by which program."""

import pytest

from cli.program import Program
from runner.mpi_jobs import IMPLEMENTATIONS, find_implementation
from trainwright.api.meta import ObjectMeta
from trainwright.api.runtime import JobSetTemplate, MLPolicy, MPIPolicy, RuntimeSpec, TrainingRuntime
from trainwright.cli.mpirun import find_mpirun
from trainwright.runtimes import load_shipped_runtimes

SHIPPED = {
    "deepspeed-distributed": "mpirun",
    "intel-mpi-distributed": "mpiexec.hydra",
    "mlx-distributed": "mpirun",
    "mpi-distributed": "mpirun",
    "mpich-distributed": "mpirun",
}


def test_scripts_of_shipped_runtimes_of_mpi_are_started_as_ranks():
    found = {name: find_mpirun(runtime) for name, runtime in load_shipped_runtimes().items()}
    assert {name: program for name, program in found.items() if program is not None} == SHIPPED


WITHOUT = {
    "nothing": None,
    "no policy": RuntimeSpec(template=JobSetTemplate(spec={"replicatedJobs": [{"name": "launcher"}]})),
    "no template": RuntimeSpec(ml_policy=MLPolicy(mpi=MPIPolicy())),
    "no launcher": RuntimeSpec(
        ml_policy=MLPolicy(mpi=MPIPolicy()),
        template=JobSetTemplate(spec={"replicatedJobs": [{"name": "node"}]}),
    ),
}


@pytest.mark.parametrize("spec", WITHOUT.values(), ids=WITHOUT)
def test_without_a_launcher_each_node_starts_its_own(spec):
    assert find_mpirun(TrainingRuntime(metadata=ObjectMeta(name="any"), spec=spec)) is None


SCRIPT = """\
import os
from pathlib import Path
names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
rank = next(os.environ[name] for name in names if name in os.environ)
other = Path("other.txt").read_text()
os.write(1, f"rank {rank} {other} {os.environ['RATE']}\\n".encode())
"""
SHIPPED_BY_IMPLEMENTATION = {"MPICH": "mpich-distributed", "Intel MPI": "intel-mpi-distributed"}


@pytest.mark.e2e
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_a_script_runs_as_ranks_on_all_nodes_of_this_machine(name, tmp_path):
    """A launcher that used no other node would fail."""
    implementation = find_implementation(name)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text(SCRIPT)
    (tmp_path / "work" / "other.txt").write_text("of the project")
    program = Program(
        folder=tmp_path / "work",
        state=tmp_path / "state",
        path=implementation.path.split(":"),
        extra=implementation.environment,
    )
    runtime = SHIPPED_BY_IMPLEMENTATION.get(name, "mpi-distributed")
    options = ("--nodes", "2", "--nproc-per-node", "2", "--env", "RATE=3")
    said = program.succeed("run", "train.py", "--runtime", runtime, *options)
    lines = [line.removeprefix("[launcher-0-0] ") for line in said.splitlines()]
    ranks = sorted(line for line in lines if line.startswith("rank "))
    assert ranks == [f"rank {rank} of the project 3" for rank in range(4)]
