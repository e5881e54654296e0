"""What is different about the pods of an MPI job, without any MPI."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from runner.executors.pods import complete, context, pod, read_log
from trainwright.runner.executors.mpi_pod import (
    RemoteStart,
    belongs_to_outer_run,
    build_launcher_defaults,
    choose_links,
    describe_loss,
    find_remote_start,
    find_silent_fault,
)
from trainwright.runner.executors.process import ProcessExecutor

SSHD = ["/usr/sbin/sshd"]


def container(command: list[str] | None, *volumes: str) -> dict[str, Any]:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in volumes]
    return {"name": "node", "command": command, "volumeMounts": mounts}


ROLES = {
    "a node that runs sshd": (container(SSHD, "mpi-ssh-auth"), RemoteStart.SERVER),
    "a launcher": (container(["mpirun", "x"], "mpi-ssh-auth", "mpi-hostfile"), RemoteStart.CLIENT),
    "a launcher that leaves its command to the image": (
        container(None, "mpi-ssh-auth", "mpi-hostfile"),
        RemoteStart.CLIENT,
    ),
    "an sshd that has nothing to do with MPI": (container(SSHD), None),
    "an sshd of another place": (container(["/opt/sshd"], "mpi-ssh-auth"), None),
    "a node that starts its sshd by a script": (container(["/bin/sh", "-c", "x"], "mpi-ssh-auth"), None),
    "what joins the parts of a long hostfile": (container(["/bin/sh"], "mpi-hostfile"), None),
    "no mounts at all": ({"name": "node"}, None),
}


@pytest.mark.parametrize(("body", "role"), ROLES.values(), ids=ROLES)
def test_parts_are_told_apart_by_what_was_rendered(body: dict[str, Any], role: RemoteStart | None) -> None:
    assert find_remote_start(body) == role


UNBOUND = {
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "I_MPI_PIN": "off",
}
YIELDING = {"OMPI_MCA_mpi_yield_when_idle": "1"}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
DEFAULTS = {
    "as many ranks as cores": ({"OMPI_MCA_orte_set_default_slots": "2"}, 2, 4, False, UNBOUND),
    "more ranks than cores": ({"OMPI_MCA_orte_set_default_slots": "3"}, 2, 4, False, UNBOUND | YIELDING),
    "Open MPI 5 alone": ({"PRTE_MCA_prte_set_default_slots": "3"}, 2, 4, False, UNBOUND | YIELDING),
    "no number of slots": ({"OMPI_MCA_orte_set_default_slots": "many"}, 4, 4, False, UNBOUND),
    "root": ({}, 1, 4, True, UNBOUND | AS_ROOT),
}


@pytest.mark.parametrize(("own", "nodes", "cpus", "is_root", "expected"), DEFAULTS.values(), ids=DEFAULTS)
def test_ranks_of_one_machine_share_its_cores(
    own: dict[str, str], nodes: int, cpus: int, is_root: bool, expected: dict[str, str]
) -> None:
    assert build_launcher_defaults(own, nodes, cpus, is_root=is_root) == expected


LO = dict.fromkeys(
    (
        "OMPI_MCA_btl_tcp_if_include",
        "OMPI_MCA_oob_tcp_if_include",
        "HYDRA_IFACE",
        "I_MPI_HYDRA_IFACE",
        "FI_TCP_IFACE",
        "UCX_NET_DEVICES",
    ),
    "lo",
)
BTL, OOB = "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"
# What the pod sets, what the submitter has, arguments -> which variables are left alone.
LINKS = {
    "nothing is chosen": ({}, {}, [], set()),
    "what is rendered for pods of a cluster": ({"HYDRA_IFACE": "eth0"}, {}, [], set()),
    "the pod chooses": (
        {"FI_TCP_IFACE": "ib0", "HYDRA_IFACE": "ib0"},
        {},
        [],
        {"FI_TCP_IFACE", "HYDRA_IFACE"},
    ),
    "the submitter chooses": ({}, {BTL: "eth0"}, [], {BTL}),
    "links not to use": ({"OMPI_MCA_btl_tcp_if_exclude": "docker0"}, {}, [], {BTL}),
    "links not to use, in the arguments": ({}, {}, ["mpirun --mca oob_tcp_if_exclude virbr0 x"], {OOB}),
}


@pytest.mark.parametrize(("own", "inherited", "words", "left"), LINKS.values(), ids=LINKS)
def test_ranks_are_led_to_the_loopback_unless_somebody_chooses_a_link(
    own: dict[str, str], inherited: dict[str, str], words: list[str], left: set[str]
) -> None:
    assert choose_links(own, inherited, words, "lo") == {
        name: link for name, link in LO.items() if name not in left
    }


@pytest.mark.parametrize(
    ("variable", "belongs"),
    {
        "OMPI_COMM_WORLD_RANK": True,
        "OMPI_MCA_orte_hnp_uri": True,
        "PMIX_RANK": True,
        "PMI_RANK": True,
        "OMPI_MCA_btl": False,
        "I_MPI_FABRICS": False,
    }.items(),
)
def test_an_outer_run_leaves_settings_but_no_ranks(variable: str, belongs: bool) -> None:
    assert belongs_to_outer_run(variable) is belongs


FAULTS = {
    "every node was used": ({}, {"a", "b"}, {"a", "b"}, False),
    "one node was enough": ({}, {"a", "b"}, {"b"}, False),
    "there is no other node": ({}, set(), set(), False),
    "no node was used": ({}, {"a", "b"}, set(), True),
    "no node was to be used": ({"TRAINWRIGHT_MPI_ONE_HOST": "allow"}, {"a", "b"}, set(), False),
}


@pytest.mark.parametrize(("environment", "nodes", "asked", "is_fault"), FAULTS.values(), ids=FAULTS)
def test_a_success_on_one_host_is_a_fault(
    environment: dict[str, str], nodes: set[str], asked: set[str], is_fault: bool
) -> None:
    fault = find_silent_fault(environment, nodes, asked)
    assert (fault is not None) is is_fault
    assert fault is None or "used none of the 2 nodes (a, b)" in fault


def test_a_long_list_of_nodes_is_cut() -> None:
    assert "n-00, n-01, n-02 and 47 more" in describe_loss({f"n-{number:02}" for number in range(50)})


@pytest.fixture(params=["auto", "processes"])
def executor(request: pytest.FixtureRequest) -> ProcessExecutor:
    return ProcessExecutor({"TRAINWRIGHT_ISOLATION": request.param}, retry_seconds=0.05)


# Without namespaces a path that nothing mentions cannot be had, unless the user may make a link there.
HOSTFILE = {"HYDRA_HOST_FILE": "/etc/mpi/hostfile"}
AGENTS = (
    "OMPI_MCA_plm_rsh_agent",
    "PRTE_MCA_plm_ssh_agent",
    "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
)


def launcher(command: list[str], **env: str) -> dict[str, Any]:
    return pod(
        {
            **container(command, "mpi-ssh-auth"),
            "volumeMounts": [
                {"name": "mpi-ssh-auth", "mountPath": "/root/.ssh"},
                {"name": "mpi-hostfile", "mountPath": "/etc/mpi"},
            ],
            "env": [{"name": name, "value": value} for name, value in (HOSTFILE | env).items()],
        },
        name="demo-launcher-0-0-abcde",
        volumes=[
            {"name": "mpi-ssh-auth", "emptyDir": {}},
            {"name": "mpi-hostfile", "emptyDir": {}},
        ],
    )


async def read_environment(
    executor: ProcessExecutor, folder: Path, inherited: dict[str, str], **env: str
) -> dict[str, str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), **inherited}
    status = await complete(executor, launcher(["env"], **env), context(folder, environment=environment))
    assert status.phase == "Succeeded"
    return dict(line.split("=", 1) for line in read_log(folder).splitlines())


async def test_mpirun_is_led_to_our_client_whatever_the_submitter_had(executor, tmp_path) -> None:
    inherited = {"OMPI_MCA_plm_rsh_agent": "rsh", "HYDRA_LAUNCHER": "slurm", "PMIX_RANK": "3"}
    found = await read_environment(executor, tmp_path / "pods" / "p", inherited)
    client = f"{found['TMPDIR']}/.trainwright/ssh"
    assert {name: found[name] for name in AGENTS} == dict.fromkeys(AGENTS, client)
    assert (found["HYDRA_LAUNCHER"], found["I_MPI_HYDRA_BOOTSTRAP"]) == ("ssh", "ssh")
    assert "PMIX_RANK" not in found


async def test_a_launcher_without_gpus_hides_none_from_the_ranks_that_inherit_from_it(
    executor, tmp_path
) -> None:
    found = await read_environment(executor, tmp_path / "pods" / "p", {"CUDA_VISIBLE_DEVICES": "GPU-a"})
    assert "CUDA_VISIBLE_DEVICES" not in found


async def test_a_runtime_may_bring_its_own_way_to_the_nodes(executor, tmp_path) -> None:
    found = await read_environment(executor, tmp_path / "pods" / "p", {}, OMPI_MCA_plm_rsh_agent="/opt/rsh")
    assert found["OMPI_MCA_plm_rsh_agent"] == "/opt/rsh"
    assert found["HYDRA_LAUNCHER_EXEC"].endswith("/.trainwright/ssh")


async def test_the_client_has_a_path_that_open_mpi_does_not_take_apart(executor, tmp_path) -> None:
    spaced = tmp_path / "my : temp"
    spaced.mkdir()
    found = await read_environment(executor, tmp_path / "pods" / "p", {"TMPDIR": str(spaced)})
    assert not {" ", ":"} & set(found["OMPI_MCA_plm_rsh_agent"])


async def test_names_of_hosts_in_the_arguments_of_mpirun_stay(executor, tmp_path) -> None:
    folder = tmp_path / "pods" / "p"
    await complete(executor, launcher(["echo", "-host", "demo-node-0-1.demo"]), context(folder))
    assert read_log(folder) == "-host demo-node-0-1.demo\n"
