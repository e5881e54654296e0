"""MPI, after the case list of spec 02 section 16.4 (numbers in the names)."""

from __future__ import annotations

from typing import Any

import pytest

from frameworks.mpi.builders import launcher, mpi_layout, mpi_runtime, node
from template.builders import PLAIN, TORCH, container, replicated_job
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import MLPolicy, MPIPolicy
from trainwright.frameworks.contract import ContainerAddition, Contribution, GeneratedSecret, PodAddition
from trainwright.frameworks.mpi import MPI
from trainwright.frameworks.mpi.nodes import count_slots

ONE_GPU = ResourceRequirements(limits={"nvidia.com/gpu": "1"})
EIGHT_GPUS = ResourceRequirements(limits={"nvidia.com/gpu": "8"})
AS_NODE = MPIPolicy(run_launcher_as_node=True)

ALL_ENV = [
    "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames=true",
    "OMPI_MCA_orte_set_default_slots=1",
    "OMPI_MCA_plm_rsh_args=-o ConnectionAttempts=10",
    "PRTE_MCA_prte_default_hostfile=/etc/mpi/hostfile",
    "PRTE_MCA_prte_keep_fqdn_hostnames=false",
    "PRTE_MCA_prte_set_default_slots=1",
    "PRTE_MCA_plm_ssh_args=-o ConnectionAttempts=10",
    "PRTE_MCA_plm_ssh_no_tree_spawn=1",
    "HYDRA_HOST_FILE=/etc/mpi/hostfile-hydra",
    "HYDRA_LAUNCHER=ssh",
    "HYDRA_LAUNCHER_EXTRA_ARGS=-o ConnectionAttempts=10",
    "I_MPI_HYDRA_HOST_FILE=/etc/mpi/hostfile-hydra",
    "I_MPI_HYDRA_BOOTSTRAP=ssh",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS=-o ConnectionAttempts=10",
    "I_MPI_PERHOST=1",
    "HYDRA_IFACE=eth0",
    "I_MPI_HYDRA_IFACE=eth0",
    "OMPI_ALLOW_RUN_AS_ROOT=1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
]
SSH_MOUNT = {"name": "mpi-ssh-auth", "mountPath": "/root/.ssh"}
SECRET = GeneratedSecret(name="demo-mpi-ssh-auth", generator="ssh-key", type="kubernetes.io/ssh-auth")


def env(*entries: str) -> tuple[Json, ...]:
    return tuple({"name": name, "value": value} for name, _, value in (e.partition("=") for e in entries))


def ssh_volume(private_mode: int = 0o600) -> Json:
    return {
        "name": "mpi-ssh-auth",
        "secret": {
            "secretName": "demo-mpi-ssh-auth",
            "defaultMode": 0o400,
            "items": [
                {"key": "ssh-privatekey", "path": "id_rsa", "mode": private_mode},
                {"key": "ssh-publickey", "path": "id_rsa.pub", "mode": 0o644},
                {"key": "ssh-publickey", "path": "authorized_keys", "mode": 0o644},
            ],
        },
    }


HOSTFILE_VOLUME = {
    "name": "mpi-hostfile",
    "configMap": {
        "name": "demo-mpi-hostfile",
        "items": [{"key": file, "path": file, "mode": 0o444} for file in ("hostfile", "hostfile-hydra")],
    },
}


def launcher_env(contribution: Contribution) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in contribution.pods["launcher"].containers["node"].env}


def private_modes(contribution: Contribution) -> dict[str, int]:
    return {
        name: volume["secret"]["items"][0]["mode"]
        for name, addition in contribution.pods.items()
        for volume in addition.volumes
        if "secret" in volume
    }


@pytest.mark.parametrize(
    ("policy", "active"),
    [(None, False), (PLAIN, False), (TORCH, False), (MLPolicy(mpi=MPIPolicy()), True)],
    ids=["1 and 2 no policy", "3 plain", "3 torch", "mpi"],
)
def test_when_it_takes_part(policy: MLPolicy | None, active: bool) -> None:
    assert MPI().is_active(policy) is active


def test_4_launcher_and_nodes_get_keys_and_the_launcher_the_hosts() -> None:
    assert MPI().build_contribution(mpi_layout(num_nodes=2)) == Contribution(
        pods={
            "node": PodAddition(
                containers={"node": ContainerAddition(volume_mounts=(SSH_MOUNT,))}, volumes=(ssh_volume(),)
            ),
            "launcher": PodAddition(
                containers={
                    "node": ContainerAddition(
                        env=env(*ALL_ENV),
                        volume_mounts=(SSH_MOUNT, {"name": "mpi-hostfile", "mountPath": "/etc/mpi"}),
                    )
                },
                volumes=(ssh_volume(), HOSTFILE_VOLUME),
                starts_after=("node",),
            ),
        },
        secrets=(SECRET,),
        objects=(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "demo-mpi-hostfile"},
                "data": {
                    "hostfile": "demo-node-0-0.demo slots=1\ndemo-node-0-1.demo slots=1\n",
                    "hostfile-hydra": "demo-node-0-0.demo:1\ndemo-node-0-1.demo:1\n",
                },
            },
        ),
    )


def test_7_a_launcher_that_is_a_node_comes_first_in_the_hostfile() -> None:
    [hostfile] = MPI().build_contribution(mpi_layout(mpi_runtime(policy=AS_NODE), num_nodes=10)).objects
    assert hostfile["data"]["hostfile"].splitlines() == [
        "demo-launcher-0-0.demo slots=1",
        *(f"demo-node-0-{i}.demo slots=1" for i in range(9)),
    ]
    # Hydra knows itself by its bare name alone, and there is no sshd in the launcher.
    assert hostfile["data"]["hostfile-hydra"].splitlines() == [
        "demo-launcher-0-0:1",
        *(f"demo-node-0-{i}.demo:1" for i in range(9)),
    ]


def test_one_node_is_one_host() -> None:
    [hostfile] = MPI().build_contribution(mpi_layout(mpi_runtime(policy=AS_NODE))).objects
    assert hostfile["data"]["hostfile"] == "demo-launcher-0-0.demo slots=1\n"


def test_a_launcher_without_nodes_is_the_host_and_gets_what_nodes_get() -> None:
    """An empty hostfile would leave it to mpirun where to run, and how much."""
    layout = mpi_layout(mpi_runtime(launcher(dependsOn=[])), resources_per_node=EIGHT_GPUS)
    [hostfile] = MPI().build_contribution(layout).objects
    assert hostfile["data"] == {
        "hostfile": "demo-launcher-0-0.demo slots=8\n",
        "hostfile-hydra": "demo-launcher-0-0:8\n",
    }


@pytest.mark.parametrize("policy", [MPIPolicy(), AS_NODE], ids=["launcher apart", "launcher is a node"])
def test_a_job_of_no_nodes_has_no_pods_and_no_hosts(policy: MPIPolicy) -> None:
    layout = mpi_layout(mpi_runtime(policy=policy), num_nodes=0)
    assert [pod_set.num_nodes for pod_set in layout.pod_sets] == [0, 0]
    [hostfile] = MPI().build_contribution(layout).objects
    assert hostfile["data"] == {"hostfile": "", "hostfile-hydra": ""}


def test_hosts_follow_the_subdomain_and_replicas_of_the_nodes() -> None:
    spec = mpi_runtime(node(replicas=2), launcher(), network={"subdomain": "net"})
    [hostfile] = MPI().build_contribution(mpi_layout(spec, num_nodes=2)).objects
    assert hostfile["data"]["hostfile-hydra"].split() == [
        f"demo-node-{replica}-{index}.net:1" for replica in (0, 1) for index in (0, 1)
    ]


# The policy's numProcPerNode, the trainer block -> slots (spec 02 section 6.1).
SLOTS: dict[str, tuple[int | None, dict[str, Any], int]] = {
    "nothing said": (None, {}, 1),
    "5 the job's number": (1, {"num_proc_per_node": 2}, 2),
    "the job's number wins over the policy's and accelerators": (
        4,
        {"num_proc_per_node": 2, "resources_per_node": EIGHT_GPUS},
        2,
    ),
    "6 accelerators": (1, {"resources_per_node": EIGHT_GPUS}, 8),
    "one accelerator": (1, {"resources_per_node": ONE_GPU}, 1),
    "the policy's number wins over accelerators": (4, {"resources_per_node": EIGHT_GPUS}, 4),
}


@pytest.mark.parametrize(("policy", "trainer", "slots"), SLOTS.values(), ids=SLOTS)
def test_slots(policy: int | None, trainer: dict[str, Any], slots: int) -> None:
    layout = mpi_layout(mpi_runtime(policy=MPIPolicy(num_proc_per_node=policy)), **trainer)
    assert count_slots(layout) == slots
    found = launcher_env(MPI().build_contribution(layout))
    assert found["OMPI_MCA_orte_set_default_slots"] == str(slots)
    assert found["PRTE_MCA_prte_set_default_slots"] == str(slots)


def test_accelerators_of_the_nodes_count_not_those_of_a_launcher_apart() -> None:
    two, four = ({"limits": {"nvidia.com/gpu": amount}} for amount in ("2", "4"))
    spec = mpi_runtime(node(container(resources=four)), launcher(container(resources=two)))
    assert count_slots(mpi_layout(spec)) == 4


@pytest.mark.parametrize("implementation", ["MPICH", "Intel"])
def test_scripts_find_the_form_of_their_implementation_under_the_usual_name(implementation: str) -> None:
    spec = mpi_runtime(policy=MPIPolicy(mpi_implementation=implementation))
    contribution = MPI().build_contribution(mpi_layout(spec, num_nodes=1))
    assert contribution.objects[0]["data"] == {
        "hostfile": "demo-node-0-0.demo:1\n",
        "hostfile-openmpi": "demo-node-0-0.demo slots=1\n",
    }
    found = launcher_env(contribution)
    assert found["HYDRA_HOST_FILE"] == found["I_MPI_HYDRA_HOST_FILE"] == "/etc/mpi/hostfile"
    assert found["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile-openmpi"
    assert found["PRTE_MCA_prte_default_hostfile"] == "/etc/mpi/hostfile-openmpi"


def test_what_a_runtime_sets_for_the_newer_ones_stays_and_the_peers_four_are_ours() -> None:
    own = env("PRTE_MCA_plm_ssh_args=-p 2222", "OMPI_MCA_plm_rsh_args=-p 2222")
    spec = mpi_runtime(node(), launcher(container(env=list(own))))
    found = launcher_env(MPI().build_contribution(mpi_layout(spec)))
    assert "PRTE_MCA_plm_ssh_args" not in found
    assert found["OMPI_MCA_plm_rsh_args"] == "-o ConnectionAttempts=10"


def test_hydra_is_called_back_by_the_address_of_the_pod_but_for_pods_of_the_hosts_network() -> None:
    """Pods do not resolve each other's short names; on the network of the host there may be no eth0."""
    own, shared = (
        launcher_env(MPI().build_contribution(mpi_layout(mpi_runtime(node(), launcher(**fields)))))
        for fields in ({}, {"pod": {"hostNetwork": True}})
    )
    assert own.keys() - shared.keys() == {"HYDRA_IFACE", "I_MPI_HYDRA_IFACE"}


HOME = MPIPolicy(ssh_auth_mount_path="/home/mpiuser/.ssh")
MODES: dict[str, tuple[MPIPolicy, Json, Json, bool]] = {
    "keys in root's home": (MPIPolicy(), {}, {}, True),
    "keys in another home": (HOME, {}, {}, False),
    "the pod runs as a user": (MPIPolicy(), {"runAsUser": 1000, "fsGroup": 1000}, {}, False),
    "the pod runs as root": (HOME, {"runAsUser": 0}, {}, True),
    "the container's user wins": (HOME, {"runAsUser": 1000}, {"runAsUser": 0}, True),
    "a folder that only begins like root's": (MPIPolicy(ssh_auth_mount_path="/rooty/.ssh"), {}, {}, False),
}


@pytest.mark.parametrize(("policy", "pod", "own", "is_root"), MODES.values(), ids=MODES)
def test_b073_only_its_user_may_read_the_private_key(
    policy: MPIPolicy, pod: Json, own: Json, is_root: bool
) -> None:
    """ssh refuses a key that it owns and others may read; the files of a Secret are root's."""
    fields = {"pod": {"securityContext": pod}} if pod else {}
    found = container(securityContext=own) if own else container()
    contribution = MPI().build_contribution(
        mpi_layout(mpi_runtime(node(found, **fields), launcher(found, **fields), policy=policy))
    )
    mode = 0o600 if is_root else 0o640
    assert private_modes(contribution) == {"node": mode, "launcher": mode}
    assert ("OMPI_ALLOW_RUN_AS_ROOT" in launcher_env(contribution)) is is_root
    [mount] = contribution.pods["node"].containers["node"].volume_mounts
    assert mount["mountPath"] == (policy.ssh_auth_mount_path or "/root/.ssh")


WAITS: dict[str, tuple[list[Json], Json, tuple[str, ...]]] = {
    "the runtime does not say": ([node(), launcher(dependsOn=[])], {}, ("node",)),
    "b074 the launcher stands first": ([launcher(dependsOn=[]), node()], {}, ("node",)),
    "no nodes": ([launcher(dependsOn=[])], {}, ()),
    "nodes that wait for the launcher": (
        [launcher(dependsOn=[]), node(dependsOn=[{"name": "launcher", "status": "Ready"}])],
        {},
        (),
    ),
    "nodes that wait for what waits for the launcher": (
        [
            launcher(dependsOn=[]),
            replicated_job("check", ancestor=None, dependsOn=[{"name": "launcher", "status": "Complete"}]),
            node(dependsOn=[{"name": "check", "status": "Complete"}]),
        ],
        {},
        (),
    ),
    "in order": (
        [node(), launcher(dependsOn=[])],
        {"startupPolicy": {"startupPolicyOrder": "InOrder"}},
        (),
    ),
}


@pytest.mark.parametrize(("jobs", "fields", "expected"), WAITS.values(), ids=WAITS)
def test_the_launcher_waits_for_the_nodes(jobs: list[Json], fields: Json, expected: tuple[str, ...]) -> None:
    contribution = MPI().build_contribution(mpi_layout(mpi_runtime(*jobs, **fields)))
    assert contribution.pods["launcher"].starts_after == expected


def test_a_long_hostfile_is_joined_in_the_image_of_the_job() -> None:
    layout = mpi_layout(name="a" * 44, num_nodes=10_000, image="registry.example/user:2")
    contribution = MPI().build_contribution(layout)
    [joiner] = contribution.pods["launcher"].init_containers
    assert joiner["image"] == "registry.example/user:2"
    assert len(contribution.objects) > 1


def test_without_launcher_and_node_there_is_nothing_to_add() -> None:
    other = node()
    spec = mpi_runtime({**other, "name": "worker"})
    assert MPI().build_contribution(mpi_layout(spec)) == Contribution()
