"""The variables that make an mpirun without options use all hosts (spec 02 section 6.2, case B070).

Every implementation reads its own, and passes over those of the others without a word. Open MPI 5, whose
runtime was taken out into PRRTE, no longer reads what Open MPI 4 reads. All of them are set, whatever the
runtime calls its implementation, so that none can overlook the hosts; tests run all four against this list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trainwright.api.meta import Json
from trainwright.frameworks.mpi.hostfile import HOSTFILE_MOUNT, HYDRA, OPEN_MPI, get_file_name

# The sshd of a node may need a moment more than its pod.
_SSH_ARGS: Final = "-o ConnectionAttempts=10"

# What container runtimes call the interface of every pod that has a network of its own.
POD_INTERFACE: Final = "eth0"

_HYDRA_IMPLEMENTATIONS: Final = frozenset({"MPICH", "Intel"})

# What a TrainJob may not set, by implementation: the peer's four, and what says where the hosts are.
RESERVED_ENV: Final[Mapping[str, frozenset[str]]] = {
    OPEN_MPI: frozenset(
        {
            "OMPI_MCA_orte_default_hostfile",
            "OMPI_MCA_orte_keep_fqdn_hostnames",
            "OMPI_MCA_orte_set_default_slots",
            "OMPI_MCA_plm_rsh_args",
        }
    ),
    "MPICH": frozenset({"HYDRA_HOST_FILE"}),
    "Intel": frozenset({"HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"}),
}


def get_main_form(implementation: str | None) -> str:
    """Return the form of the file `hostfile`; nothing said means Open MPI."""
    return HYDRA if implementation in _HYDRA_IMPLEMENTATIONS else OPEN_MPI


def build_open_mpi_4_env(slots: int, main_form: str) -> list[Json]:
    """Return what the peer sets, in its order.

    Full host names are kept, because pods do not resolve each other's short ones.
    """
    return _build_env(
        OMPI_MCA_orte_default_hostfile=f"{HOSTFILE_MOUNT}/{get_file_name(OPEN_MPI, main_form)}",
        OMPI_MCA_orte_keep_fqdn_hostnames="true",
        OMPI_MCA_orte_set_default_slots=str(slots),
        OMPI_MCA_plm_rsh_args=_SSH_ARGS,
    )


def build_other_env(slots: int, main_form: str, *, runs_as_root: bool, interface: str | None) -> list[Json]:
    """Return what the others read: Open MPI 5, MPICH, Intel MPI.

    Open MPI 5 hands ssh the full name from the launcher in any case; told to keep it, a launcher that is
    a node would not recognise itself and reach for ssh. Its daemons on nodes, which start others where
    there are more than 64 nodes, hand over short names, so the launcher starts all. As root, Open MPI
    runs nothing unless told twice. Hydra's daemons call the launcher back by its own host name, which
    other pods cannot resolve, or by the address of the `interface` that it is told. Intel MPI passes over
    the slots in its file: left to itself it starts a rank for each core of a host.
    """
    hydra = f"{HOSTFILE_MOUNT}/{get_file_name(HYDRA, main_form)}"
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if runs_as_root else {}
    called_back = {"HYDRA_IFACE": interface, "I_MPI_HYDRA_IFACE": interface} if interface else {}
    return _build_env(
        PRTE_MCA_prte_default_hostfile=f"{HOSTFILE_MOUNT}/{get_file_name(OPEN_MPI, main_form)}",
        PRTE_MCA_prte_keep_fqdn_hostnames="false",
        PRTE_MCA_prte_set_default_slots=str(slots),
        PRTE_MCA_plm_ssh_args=_SSH_ARGS,
        PRTE_MCA_plm_ssh_no_tree_spawn="1",
        HYDRA_HOST_FILE=hydra,
        HYDRA_LAUNCHER="ssh",
        HYDRA_LAUNCHER_EXTRA_ARGS=_SSH_ARGS,
        I_MPI_HYDRA_HOST_FILE=hydra,
        I_MPI_HYDRA_BOOTSTRAP="ssh",
        I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS=_SSH_ARGS,
        I_MPI_PERHOST=str(slots),
        **called_back,
        **as_root,
    )


def _build_env(**variables: str) -> list[Json]:
    return [{"name": name, "value": value} for name, value in variables.items()]
