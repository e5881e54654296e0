"""What is different about a pod of an MPI job on one machine. Pure.

On a cluster mpirun reaches the nodes by ssh, and each node runs sshd. Here there is neither: a server of ours
(`remote_start`) stands for sshd, and mpirun is told to call our client instead of ssh. Everything else, the
hostfile above all, is as it was rendered.

    container                                              here
    mounts the job's ssh keys, and runs /usr/sbin/sshd     runs our server instead
    mounts both keys and hostfile (the launcher)           gets the variables below, and fails where mpirun
                                                           succeeds without having used any node
    any other                                              runs as it is, an sshd of its own included

The variables give way to those that the pod sets itself. Source: spec 02 section 6 (volumes, environment);
names of variables by implementation: docs/design/mpi-on-one-machine.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from trainwright.api.meta import Json
from trainwright.frameworks.mpi.environment import POD_INTERFACE

SSH_AUTH_VOLUME: Final = "mpi-ssh-auth"
HOSTFILE_VOLUME: Final = "mpi-hostfile"
SSH_SERVER: Final = "/usr/sbin/sshd"
# Of a launcher that means to leave the nodes alone.
ONE_HOST_ENV: Final = "TRAINWRIGHT_MPI_ONE_HOST"

# Which program starts daemons on other hosts. Open MPI 4; Open MPI 5; MPICH, and Intel MPI by either name.
_CLIENT_VARIABLES: Final = (
    "OMPI_MCA_plm_rsh_agent",
    "PRTE_MCA_plm_ssh_agent",
    "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
)
# A Hydra that finds itself under Slurm or another batch system would start its daemons by that.
_HYDRA_LAUNCHERS: Final = ("HYDRA_LAUNCHER", "I_MPI_HYDRA_BOOTSTRAP")
_SLOTS: Final = ("OMPI_MCA_orte_set_default_slots", "PRTE_MCA_prte_set_default_slots")
# Which network links are used -> what says which are not, and must not be set as well. Between ranks of Open
# MPI; by daemons of Open MPI 4, MPICH and Intel MPI; by libfabric and UCX, between ranks of these two.
_LINKS: Final = {
    "OMPI_MCA_btl_tcp_if_include": "OMPI_MCA_btl_tcp_if_exclude",
    "OMPI_MCA_oob_tcp_if_include": "OMPI_MCA_oob_tcp_if_exclude",
    "HYDRA_IFACE": None,
    "I_MPI_HYDRA_IFACE": None,
    "FI_TCP_IFACE": None,
    "UCX_NET_DEVICES": None,
}
# What mpirun tells a process about the run that it belongs to. The launcher of a job may itself have been
# started by another mpirun: with these it would take itself for one of that run's ranks.
_RUN_PREFIXES: Final = ("OMPI_COMM_WORLD_", "OMPI_MCA_ess", "OMPI_MCA_orte_", "PMIX_", "PMI_")


class RemoteStart(StrEnum):
    """A container's part when mpirun starts programs in other pods."""

    SERVER = "server"
    CLIENT = "client"


def find_remote_start(container: Json) -> RemoteStart | None:
    """Return the container's part; None for one that has nothing to do with it."""
    mounted = {mount.get("name") for mount in container.get("volumeMounts") or ()}
    if SSH_AUTH_VOLUME not in mounted:
        return None
    if (container.get("command") or [""])[0] == SSH_SERVER:
        return RemoteStart.SERVER
    return RemoteStart.CLIENT if HOSTFILE_VOLUME in mounted else None


def build_client_environment(program: str) -> dict[str, str]:
    """Return what makes each implementation's mpirun call this program instead of ssh."""
    return dict.fromkeys(_CLIENT_VARIABLES, program) | dict.fromkeys(_HYDRA_LAUNCHERS, "ssh")


def build_launcher_defaults(
    own: Mapping[str, str], nodes: int, cpus: int, *, is_root: bool
) -> dict[str, str]:
    """Return what a launcher's container gets because all nodes are one machine; `own` are the pod's.

    - Ranks are bound to no core: each "node" would bind its first rank to the same one, and Open MPI 5
      refuses more slots than cores.
    - Open MPI's waiting ranks give way to others where there are more ranks than cores.
    - Open MPI runs for root only when told so. Who runs jobs as root has decided that already.
    """
    defaults = {
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "I_MPI_PIN": "off",
    }
    slots = next((own[name] for name in _SLOTS if own.get(name, "").isdigit()), "1")
    if int(slots) * nodes > cpus:
        defaults["OMPI_MCA_mpi_yield_when_idle"] = "1"
    if is_root:
        defaults |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return defaults


def choose_links(
    own: Mapping[str, str], inherited: Collection[str], arguments: Iterable[str], loopback: str
) -> dict[str, str]:
    """Return what leads ranks and daemons to the loopback, where all nodes are one machine.

    Each implementation takes what links it finds, such as those of a VPN or of a container engine, and waits
    for ever where one goes away. A link that the pod (`own`) or the submitter chooses stays, but for the one
    that is rendered because pods on a cluster have it. Open MPI refuses to be told both which links to use
    and which not, by variables or in the arguments.
    """
    words = "\n".join(arguments)
    chosen = {name for name, value in own.items() if name not in _LINKS or value != POD_INTERFACE}
    chosen.update(inherited)
    return {
        name: loopback
        for name, other in _LINKS.items()
        if name not in chosen
        and (other is None or (other not in chosen and other.removeprefix("OMPI_MCA_") not in words))
    }


def belongs_to_outer_run(variable: str) -> bool:
    """Say whether an inherited variable is about the mpirun that started whoever submitted the job."""
    return variable.startswith(_RUN_PREFIXES)


def describe_loss(lost: Collection[str]) -> str:
    """Return why a launcher failed whose nodes ended before it, whatever it ended with.

    Some implementations name the lost host only long before their last lines, and that of Open MPI 5 exits
    with 0, as if all were well.
    """
    return f"mpirun lost what it had started on {_list(sorted(lost))}: the pod ended before the launcher"


def find_silent_fault(
    environment: Mapping[str, str], nodes: Collection[str], asked: Collection[str]
) -> str | None:
    """Return what is wrong with a launcher that ended with 0; None where nothing is.

    `nodes` are the other pods in which our server waits, `asked` those that were asked to start something.
    An mpirun that does not read the hostfile runs all ranks beside itself, without a word: the job would be
    called complete, having trained on one host.
    """
    if not nodes or asked or environment.get(ONE_HOST_ENV) == "allow":
        return None
    return (
        f"the launcher succeeded, but used none of the {len(nodes)} nodes ({_list(sorted(nodes))}): "
        "mpirun did not read the hostfile. Check that the mpirun on the PATH is of the implementation that "
        "the runtime names (mlPolicy.mpi.mpiImplementation) and that the command runs mpirun on all hosts; "
        f"set {ONE_HOST_ENV}=allow in the launcher's environment if one host is meant"
    )


def _list(names: Sequence[Any]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{', '.join(names[:3])} and {len(names) - 3} more"
