"""Which runtimes start ranks of a script, and by which program."""

import pytest

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
