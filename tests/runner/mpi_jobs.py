"""Pods of MPI jobs for the tests of the runner, as they are rendered, and the implementations to try."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
ALLREDUCE = ROOT / "examples" / "mpi" / "allreduce.py"
HOSTFILE = "/etc/mpi/hostfile"
SLOTS = 2
NODES = ("demo-node-0-0", "demo-node-0-1")
LAUNCHER = "demo-launcher-0-0"
_OPEN_MPI_HOSTFILE = "".join(f"{node}.demo slots={SLOTS}\n" for node in NODES)
_HYDRA_HOSTFILE = "".join(f"{node}.demo:{SLOTS}\n" for node in NODES)
_OPEN_MPI = {
    "OMPI_MCA_orte_default_hostfile": HOSTFILE,
    "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
    "OMPI_MCA_orte_set_default_slots": str(SLOTS),
    "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
    "PRTE_MCA_prte_default_hostfile": HOSTFILE,
    "PRTE_MCA_prte_keep_fqdn_hostnames": "false",
    "PRTE_MCA_prte_set_default_slots": str(SLOTS),
    "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
}


class Implementation(msgspec.Struct, frozen=True):
    """One MPI: where its programs are, and what a launcher of this implementation is told."""

    name: str
    path: str
    python: str
    hostfile: str
    variables: dict[str, str]
    environment: dict[str, str]


IMPLEMENTATIONS = ("Open MPI 4", "Open MPI 5", "MPICH", "Intel MPI")


def find_implementation(name: str) -> Implementation:
    """Return the implementation; skips the test, loudly, where it is not installed."""
    if name == "Open MPI 4":
        return _find_system_open_mpi()
    variable = {
        "Open MPI 5": "TRAINWRIGHT_OPENMPI_ENV",
        "MPICH": "TRAINWRIGHT_MPICH_ENV",
        "Intel MPI": "TRAINWRIGHT_INTEL_MPI_ENV",
    }[name]
    folder = _find_environment(variable, name)
    hydra = {
        "MPICH": {"HYDRA_HOST_FILE": HOSTFILE},
        "Intel MPI": {"I_MPI_HYDRA_HOST_FILE": HOSTFILE},
    }.get(name)
    return Implementation(
        name=name,
        path=f"{folder}/bin:/usr/bin:/bin",
        python=f"{folder}/bin/python",
        hostfile=_HYDRA_HOSTFILE if hydra else _OPEN_MPI_HOSTFILE,
        variables=hydra or _OPEN_MPI,
        environment={"I_MPI_ROOT": str(folder)} if name == "Intel MPI" else {},
    )


def _find_system_open_mpi() -> Implementation:
    """Debian's: mpi4py is another environment's, and is told which library to load."""
    libraries = [path for path in Path("/usr/lib").glob("*/libmpi.so.40") if path.exists()]
    program = shutil.which("mpirun", path="/usr/bin")
    told = "" if program is None else subprocess.check_output([program, "--version"], text=True)
    if not libraries or "(Open MPI) 4." not in told:
        pytest.skip(
            "NOT TESTED with Open MPI 4: install openmpi-bin (scripts/system-packages does, for root)"
        )
    folder = _find_environment("TRAINWRIGHT_OPENMPI_ENV", "Open MPI 4")
    return Implementation(
        name="Open MPI 4",
        path="/usr/bin:/bin",
        python=f"{folder}/bin/python",
        hostfile=_OPEN_MPI_HOSTFILE,
        variables=_OPEN_MPI,
        environment={"MPI4PY_LIBMPI": str(libraries[0])},
    )


def _find_environment(variable: str, name: str) -> Path:
    chosen = os.environ.get(variable)
    if not chosen:
        pytest.skip(f"NOT TESTED with {name}: `make test` sets {variable} and installs it where it can")
    return Path(chosen)


def build_node(index: int) -> Json:
    """Return the pod spec of a node."""
    return {
        "hostname": NODES[index],
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "node",
                "command": ["/usr/sbin/sshd"],
                "args": ["-De", "-f", "/home/mpiuser/.sshd_config"],
                "readinessProbe": {"tcpSocket": {"port": 2222}, "initialDelaySeconds": 5},
                "volumeMounts": [{"name": "mpi-ssh-auth", "mountPath": "/home/mpiuser/.ssh"}],
            }
        ],
        "volumes": [build_ssh_volume()],
    }


def build_launcher(implementation: Implementation, command: list[str], **env: str) -> Json:
    """Return the pod spec of the launcher."""
    variables = {**implementation.variables, **env}
    return {
        "hostname": LAUNCHER,
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "node",
                "command": command,
                "env": [{"name": name, "value": value} for name, value in variables.items()],
                "volumeMounts": [
                    {"name": "mpi-ssh-auth", "mountPath": "/home/mpiuser/.ssh"},
                    {"name": "mpi-hostfile", "mountPath": "/etc/mpi"},
                ],
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }
        ],
        "volumes": [
            build_ssh_volume(),
            {
                "name": "mpi-hostfile",
                "configMap": {
                    "name": "demo-mpi-hostfile",
                    "items": [{"key": "hostfile", "path": "hostfile", "mode": 0o444}],
                },
            },
        ],
    }


def build_ssh_volume() -> Json:
    """Return the volume with the job's keys."""
    return {
        "name": "mpi-ssh-auth",
        "secret": {
            "secretName": "demo-mpi-ssh-auth",
            "defaultMode": 0o400,
            "items": [
                {"key": "ssh-privatekey", "path": "id_rsa", "mode": 0o600},
                {"key": "ssh-publickey", "path": "id_rsa.pub", "mode": 0o644},
                {"key": "ssh-publickey", "path": "authorized_keys", "mode": 0o644},
            ],
        },
    }
