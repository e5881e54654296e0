"""Every real mpirun brings the code to its hosts: each of them starts with nothing unpacked.

ssh is a script here. It gives what it starts a host name and an empty work folder of its own, and neither
directory nor variables, as sshd does.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from runner.mpi_jobs import HOSTFILE, IMPLEMENTATIONS, NODES, SLOTS, find_implementation
from trainwright.cli.code_sources import WorkingDirectory
from trainwright.cli.shipping.archive import build_archive
from trainwright.cli.shipping.mpi_agent import build_agent, build_agent_exports
from trainwright.cli.shipping.placing import Places, build_start
from trainwright.cli.shipping.tree import Entry

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

UNSHARE = ["unshare", "--mount", "--uts", *([] if os.geteuid() == 0 else ["--map-root-user"])]
SSH = """\
#!/bin/sh
while :; do
  case "$1" in -o|-p|-l|-i|-F) shift 2 ;; -*) shift ;; *) break ;; esac
done
host=$1
shift
mkdir {folder}/hosts/$host
hostname > {folder}/callers/${{host%%.*}}
exec {unshare} sh -c '
  mount --bind {folder}/hosts/$1 {work}
  hostname ${{1%%.*}}
  cd /
  exec env -i PATH={folder}/bin:{path} HOME=/ sh -c "$2"
' sh $host "$*"
"""
SCRIPT = b"""\
import json, os, socket
told = [socket.gethostname(), os.getcwd(), open("other.txt").read(), os.environ["RATE"]]
os.write(1, (json.dumps(told) + "\\n").encode())
"""
# This machine is neither a pod nor does it have a core for every rank.
OF_THIS_MACHINE = {
    "HYDRA_IFACE": "lo",
    "I_MPI_HYDRA_IFACE": "lo",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "I_MPI_PIN": "off",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "HYDRA_LAUNCHER": "ssh",
    "I_MPI_HYDRA_BOOTSTRAP": "ssh",
}


# What makes each daemon start the next one, which happens with many hosts. MPICH has none of that.
IN_A_CHAIN = {
    "Open MPI 4": {"OMPI_MCA_routed": "radix", "OMPI_MCA_routed_radix": "1"},
    "Open MPI 5": {"PRTE_MCA_prte_routed_radix": "1"},
    "Intel MPI": {"I_MPI_HYDRA_BRANCH_COUNT": "1"},
}


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_ranks_of_every_implementation_start_in_the_code_that_was_sent(name: str, tmp_path: Path) -> None:
    assert list_callers(name, tmp_path, {}) == dict.fromkeys(NODES, socket.gethostname())


@pytest.mark.parametrize("name", IN_A_CHAIN)
def test_daemons_that_start_daemons_bring_the_code_as_well(name: str, tmp_path: Path) -> None:
    callers = list_callers(name, tmp_path, IN_A_CHAIN[name])
    assert callers == {NODES[0]: socket.gethostname(), NODES[1]: NODES[0]}


def list_callers(name: str, tmp_path: Path, settings: dict[str, str]) -> dict[str, str]:
    """Run a script that was sent; check what its ranks found, and return from where each host was called."""
    implementation = find_implementation(name)
    refused = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False).stderr
    if refused:
        pytest.skip(f"NO NAMESPACES ON THIS MACHINE: {refused}")
    for folder in ("archive", "work", "hosts", "bin", "callers"):
        (tmp_path / folder).mkdir()
    places = Places(archive=str(tmp_path / "archive"), work=str(tmp_path / "work"))
    start = build_start(WorkingDirectory(), places, build_agent_exports(places.work))
    entries = [
        Entry(path="lib", mode=0o755),
        Entry(path="code", mode=0o755),
        Entry(path="code/train.py", mode=0o644, content=SCRIPT),
        Entry(path="code/other.txt", mode=0o644, content=b"of the project"),
        *build_agent(start, ["RATE"], places.work),
    ]
    (tmp_path / "archive" / "part-00").write_bytes(build_archive(entries))
    (tmp_path / "hostfile").write_text(implementation.hostfile)
    ssh, path = tmp_path / "bin" / "ssh", implementation.path
    ssh.write_text(SSH.format(folder=tmp_path, unshare=" ".join(UNSHARE), work=places.work, path=path))
    ssh.chmod(0o755)
    told = {
        key: value.replace(HOSTFILE, str(tmp_path / "hostfile"))
        for key, value in implementation.variables.items()
    }
    program = "mpiexec.hydra" if name == "Intel MPI" else "mpirun"
    done = subprocess.run(
        [*start, program, implementation.python, "train.py"],
        env={
            **told,
            **OF_THIS_MACHINE,
            **settings,
            **implementation.environment,
            "PATH": f"{ssh.parent}:{path}",
            "HOME": str(tmp_path),
            "RATE": "it's $3",
        },
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    heard = sorted(json.loads(line) for line in done.stdout.splitlines())
    assert heard == [
        [node, f"{places.work}/code", "of the project", "it's $3"] for node in NODES for _ in range(SLOTS)
    ]
    return {path.name: path.read_text().strip() for path in (tmp_path / "callers").iterdir()}
