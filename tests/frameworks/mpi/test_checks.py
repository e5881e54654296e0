"""What is refused and what is warned about, after spec 02 section 16.5 (numbers in the names)."""

from __future__ import annotations

from typing import Any

import pytest

from frameworks.mpi.builders import launcher, mpi_layout, mpi_runtime, node
from template.builders import container
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import MPIPolicy, RuntimeSpec
from trainwright.frameworks.mpi import MPI

AS_NODE = MPIPolicy(run_launcher_as_node=True)
WORKER = {**node(), "name": "worker"}


def variable(*names: str) -> list[Json]:
    return [{"name": name, "value": "1"} for name in names]


def intel(**fields: Any) -> RuntimeSpec:
    return mpi_runtime(policy=MPIPolicy(mpi_implementation="Intel"), **fields)


# Runtime, trainer block -> the paths of the errors, and a part of the text of each.
ERRORS: dict[str, tuple[RuntimeSpec, dict[str, Any], list[tuple[str, str]]]] = {
    "4 processes": (mpi_runtime(), {"num_proc_per_node": 8}, []),
    "5 no launcher, one node": (mpi_runtime(node(), policy=AS_NODE), {"num_nodes": 1}, []),
    "6 no launcher": (
        mpi_runtime(node(), policy=AS_NODE),
        {"num_nodes": 2},
        [("spec.trainer.numNodes", "no replicated job 'launcher'")],
    ),
    "7 no node": (
        mpi_runtime(launcher(dependsOn=[]), policy=AS_NODE),
        {"num_nodes": 2},
        [("spec.trainer.numNodes", "no replicated job 'node'")],
    ),
    "8 neither": (
        mpi_runtime(WORKER, policy=AS_NODE),
        {"num_nodes": 2},
        [("spec.trainer.numNodes", "no replicated job 'launcher' and no 'node'")],
    ),
    "no node, launcher apart: each pod would train by itself": (
        mpi_runtime(launcher(dependsOn=[])),
        {"num_nodes": 2},
        [("spec.trainer.numNodes", "use a runtime with both")],
    ),
    "no node, a number of the runtime": (
        mpi_runtime(launcher(dependsOn=[]), num_nodes=4),
        {},
        [("spec.runtimeRef", "its mlPolicy.numNodes is 4")],
    ),
    "9 a reserved variable": (
        mpi_runtime(),
        {"env": variable("OMPI_MCA_orte_default_hostfile")},
        [("spec.trainer.env", "OMPI_MCA_orte_default_hostfile")],
    ),
    "10 two reserved variables": (
        mpi_runtime(),
        {"env": variable("OMPI_MCA_plm_rsh_args", "OMPI_MCA_orte_keep_fqdn_hostnames")},
        [("spec.trainer.env", "OMPI_MCA_orte_keep_fqdn_hostnames, OMPI_MCA_plm_rsh_args")],
    ),
    "11 another variable": (mpi_runtime(), {"env": variable("NCCL_DEBUG", "PRTE_MCA_plm_ssh_args")}, []),
    "hosts of Intel MPI": (
        intel(),
        {"env": variable("I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE", "OMPI_MCA_plm_rsh_args")},
        [("spec.trainer.env", "HYDRA_HOST_FILE, I_MPI_HYDRA_HOST_FILE: set by")],
    ),
    "hosts of MPICH": (
        mpi_runtime(policy=MPIPolicy(mpi_implementation="MPICH")),
        {"env": variable("HYDRA_HOST_FILE")},
        [("spec.trainer.env", "HYDRA_HOST_FILE")],
    ),
    "b072 no implementation means Open MPI": (
        mpi_runtime(policy=MPIPolicy(mpi_implementation="")),
        {"num_nodes": 2},
        [],
    ),
    "b072 one that admission never saw": (
        mpi_runtime(policy=MPIPolicy(mpi_implementation="LAM")),
        {},
        [("spec.runtimeRef", "known are Intel, MPICH, OpenMPI")],
    ),
    "containers of other names would get no keys": (
        mpi_runtime(node(container("sshd")), launcher(container("mpi"), container("log"), ancestor=None)),
        {"num_nodes": 2},
        [
            (
                "spec.runtimeRef",
                "'launcher' must be called 'node' to get ssh keys and hosts; it has 'mpi', 'log'",
            ),
            ("spec.runtimeRef", "'node' must be called 'node' to get ssh keys and hosts; it has 'sshd'"),
        ],
    ),
}


@pytest.mark.parametrize(("spec", "trainer", "expected"), ERRORS.values(), ids=ERRORS)
def test_errors(spec: RuntimeSpec, trainer: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    errors = MPI().validate(mpi_layout(spec, **trainer))
    assert [error.path for error in errors] == [path for path, _ in expected]
    for error, (_, part) in zip(errors, expected, strict=True):
        assert part in error.detail


USER = {"pod": {"securityContext": {"runAsUser": 1000}}}
WARNINGS: dict[str, tuple[RuntimeSpec, dict[str, Any], list[str]]] = {
    "nothing": (mpi_runtime(), {"num_nodes": 2, "command": ["mpirun", "python", "train.py"]}, []),
    "b048 accelerators without a process": (
        mpi_runtime(),
        {"num_proc_per_node": 2, "resources_per_node": ResourceRequirements(limits={"nvidia.com/gpu": "8"})},
        ["6 of them may stay idle"],
    ),
    "processes without an accelerator": (
        mpi_runtime(),
        {"num_proc_per_node": 8, "resources_per_node": ResourceRequirements(limits={"nvidia.com/gpu": "2"})},
        ["8 processes run on each node, which asks for 2 accelerator(s) only"],
    ),
    "accelerators that the runtime does not name": (
        mpi_runtime(),
        {"resources_per_node": ResourceRequirements(limits={"habana.ai/gaudi": "8"})},
        ["each node asks for habana.ai/gaudi, which does not tell how many processes it has"],
    ),
    "a program that runs once": (
        mpi_runtime(),
        {"num_nodes": 2, "command": ["/usr/bin/python3", "train.py"]},
        ["starts python3, which runs once, in the launcher"],
    ),
    "a program that is to run once": (mpi_runtime(policy=AS_NODE), {"command": ["python", "train.py"]}, []),
    "a program that runs once, on a node with several processes": (
        mpi_runtime(policy=AS_NODE),
        {"command": ["python", "train.py"], "num_proc_per_node": 2},
        ["starts python, which runs once, in the launcher"],
    ),
    "a script may start mpirun": (mpi_runtime(), {"num_nodes": 2, "command": ["bash", "run.sh"]}, []),
    "keys that the user cannot read": (
        mpi_runtime(node(**USER), launcher(**USER)),
        {},
        ["pods of launcher run as user 1000 without", "pods of node run as user 1000 without"],
    ),
    "a job that never ends": (
        mpi_runtime(successPolicy={}),
        {},
        ["successPolicy in the runtime: {operator: All, targetReplicatedJobs: [launcher]}"],
    ),
    "a job that ends with any": (mpi_runtime(successPolicy={"operator": "Any"}), {}, []),
    "a launcher that never starts": (
        mpi_runtime(node(), launcher(dependsOn=[{"name": "node", "status": "Complete"}])),
        {},
        ["let it depend on node with status Ready"],
    ),
}


@pytest.mark.parametrize(("spec", "trainer", "expected"), WARNINGS.values(), ids=WARNINGS)
def test_warnings(spec: RuntimeSpec, trainer: dict[str, Any], expected: list[str]) -> None:
    warnings = MPI().list_warnings(mpi_layout(spec, **trainer))
    assert len(warnings) == len(expected)
    for warning, part in zip(warnings, expected, strict=True):
        assert part in warning
