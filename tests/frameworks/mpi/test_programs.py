"""Every real mpirun, told nothing but what is rendered for the launcher, starts ranks on all hosts.

ssh is a script here that writes down which host it was asked for. So what is shown is what mpirun reads and
whom it calls; that its ranks then talk to each other is shown by the tests of the runner.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import msgspec
import pytest

from frameworks.mpi.builders import mpi_layout, mpi_runtime
from trainwright.api.runtime import MPIPolicy
from trainwright.frameworks.mpi import MPI

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

HOSTS = ["demo-launcher-0-0.demo", "demo-node-0-0.demo", "demo-node-0-1.demo"]
SLOTS = 2

# Notes the host it was asked for, waits until all hosts were, and gives up: no rank is ever started.
SSH = """#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in -o|-p|-l|-i|-F) shift 2 ;; -*) shift ;; *) break ;; esac
done
mkdir "$CALLED_HOSTS/$1"
tries=0
while [ "$(ls "$CALLED_HOSTS" | wc -l)" -lt 3 ] && [ "$tries" -lt 600 ]; do
  tries=$((tries + 1))
  sleep 0.05
done
exit 1
"""
# This machine is neither a pod nor does it have a core for every rank.
OF_THIS_MACHINE = {
    "HYDRA_IFACE": "lo",
    "I_MPI_HYDRA_IFACE": "lo",
    "OMPI_MCA_oob_tcp_if_include": "lo",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}


class Implementation(msgspec.Struct, frozen=True):
    """One MPI: how to find it, and the variables that it reads."""

    variable: str  # names its environment; empty for the system's
    prefixes: tuple[str, ...]


IMPLEMENTATIONS = {
    "Open MPI 4": Implementation("", ("OMPI_MCA_orte_", "OMPI_MCA_plm_")),
    "Open MPI 5": Implementation("TRAINWRIGHT_OPENMPI_ENV", ("PRTE_",)),
    "MPICH": Implementation("TRAINWRIGHT_MPICH_ENV", ("HYDRA_",)),
    "Intel MPI": Implementation("TRAINWRIGHT_INTEL_MPI_ENV", ("I_MPI_HYDRA_", "HYDRA_")),
}


@pytest.fixture(params=IMPLEMENTATIONS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def program(name: str) -> dict[str, str]:
    """PATH and what else finds the implementation."""
    variable = IMPLEMENTATIONS[name].variable
    if variable:
        folder = os.environ.get(variable)
        if not folder:
            pytest.skip(f"NOT TESTED with {name}: `make test` sets {variable} and installs it where it can")
        return {"PATH": f"{folder}/bin:/usr/bin:/bin", "I_MPI_ROOT": folder}
    if not Path("/usr/bin/mpirun").exists() or b"(Open MPI) 4." not in subprocess.check_output(
        ["/usr/bin/mpirun", "--version"]
    ):
        pytest.skip(f"NOT TESTED with {name}: install openmpi-bin (scripts/system-packages does, for root)")
    return {"PATH": "/usr/bin:/bin"}


@pytest.fixture(params=["OpenMPI", "MPICH"])
def launcher(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The variables of the launcher, with its hostfiles in a folder of this machine.

    For runtimes that call their implementation the one or the other: it must make no difference.
    """
    policy = MPIPolicy(run_launcher_as_node=True, mpi_implementation=request.param)
    layout = mpi_layout(mpi_runtime(policy=policy), num_nodes=len(HOSTS), num_proc_per_node=SLOTS)
    contribution = MPI().build_contribution(layout)
    [hostfile] = contribution.objects
    for file, text in hostfile["data"].items():
        (tmp_path / file).write_text(text)
    env = contribution.pods["launcher"].containers["node"].env
    return {entry["name"]: entry["value"].replace("/etc/mpi", str(tmp_path)) for entry in env}


class Run(msgspec.Struct):
    """How mpirun ended, what its ranks said, and the hosts that it called."""

    exit_code: int
    words: list[str]
    called: list[str]


def run(tmp_path: Path, *environments: dict[str, str]) -> Run:
    """Run a command under mpirun without options."""
    called = tmp_path / "called"
    called.mkdir()
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    # A folder of its own, with a path that leaves room for the names of sockets: all runs of a user have one
    # folder for Open MPI's sessions, and make and remove it as they come and go.
    with tempfile.TemporaryDirectory(prefix="tw-", ignore_cleanup_errors=True) as temporary:
        env = {"HOME": str(tmp_path), "TMPDIR": temporary, "CALLED_HOSTS": str(called), **OF_THIS_MACHINE}
        for more in environments:
            env |= {name: value for name, value in more.items() if name not in OF_THIS_MACHINE}
        env["PATH"] = f"{ssh.parent}:{env['PATH']}"
        done = subprocess.run(
            ["mpirun", "echo", "rank"], env=env, capture_output=True, text=True, timeout=90, check=False
        )
    return Run(done.returncode, done.stdout.split(), sorted(path.name for path in called.iterdir()))


def test_mpirun_without_options_calls_all_hosts(
    program: dict[str, str], launcher: dict[str, str], tmp_path: Path
) -> None:
    called = run(tmp_path, program, launcher).called
    assert [host.partition(".")[0] for host in called] == [host.partition(".")[0] for host in HOSTS]


def test_without_its_own_variables_it_would_silently_use_one_host(
    name: str, program: dict[str, str], launcher: dict[str, str], tmp_path: Path
) -> None:
    """Why they are all set: nobody is called, the command runs here, and the exit code is 0."""
    prefixes = IMPLEMENTATIONS[name].prefixes
    others = {key: value for key, value in launcher.items() if not key.startswith(prefixes)}
    assert others != launcher
    ended = run(tmp_path, program, others)
    assert (ended.exit_code, ended.called) == (0, [])
    assert set(ended.words) == {"rank"}
