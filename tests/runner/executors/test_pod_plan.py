"""What a pod comes to, as values."""

from __future__ import annotations

import copy
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.runner.executor import PodContext
from trainwright.runner.executors.pod_env import Machine
from trainwright.runner.executors.pod_plan import (
    ContainerPlan,
    File,
    Obstacle,
    PodPlan,
    Volume,
    VolumeKind,
    VolumeMount,
    plan_pod,
)

MACHINE = Machine(cpus=8, memory_bytes=1 << 30)
CONTEXT = PodContext(
    folder=Path("/state/pod"),
    shared_folder=Path("/state/shared"),
    mount_points=Path("/state/mount-points"),
    host_names=("demo-node-0-0",),
    subdomain="demo",
    working_directory=Path("/work"),
    environment={},
    config_maps={"cm": {"a": b"1", "b": b"2"}},
    secrets={"s": {"key": b"secret"}},
    claims={"data": Path("/claims/data")},
)


def pod(container=None, **spec):
    return {
        "metadata": {"name": "demo-node-0-0-abcde", "namespace": "team", "uid": "u", "labels": {"app": "x"}},
        "spec": {
            "hostname": "demo-node-0-0",
            "containers": [{"name": "node", "command": ["run"], **(container or {})}],
            **spec,
        },
    }


def plan_volume(source, **mount):
    body = pod(
        {"volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}, volumes=[{"name": "v", **source}]
    )
    return plan_pod(body, CONTEXT, MACHINE)


def test_a_small_pod_is_planned_as_a_whole():
    assert plan_pod(pod(restartPolicy="Never"), CONTEXT, MACHINE) == PodPlan(
        namespace="team",
        name="demo-node-0-0-abcde",
        uid="u",
        host_name="demo-node-0-0",
        address="127.1.0.1",
        hosts=(
            "127.1.0.1 demo-node-0-0.demo demo-node-0-0 demo-node-0-0.demo.team demo-node-0-0.demo.team.svc "
            "demo-node-0-0.demo.team.svc.cluster.local\n"
        ),
        names=frozenset(
            {
                "demo-node-0-0",
                "demo-node-0-0.demo",
                "demo-node-0-0.demo.team",
                "demo-node-0-0.demo.team.svc",
                "demo-node-0-0.demo.team.svc.cluster.local",
            }
        ),
        restart_policy="Never",
        containers=(
            ContainerPlan(
                name="node",
                arguments=("run",),
                environment={
                    "PYTHONUNBUFFERED": "1",
                    "HOSTNAME": "demo-node-0-0",
                    "CUDA_VISIBLE_DEVICES": "",
                },
                working_directory="/work",
            ),
        ),
    )


FILES = {
    "a config map": (
        {"configMap": {"name": "cm"}},
        (File(path="a", content=b"1"), File(path="b", content=b"2")),
    ),
    "some of it, renamed and with modes": (
        {
            "configMap": {
                "name": "cm",
                "defaultMode": 0o600,
                "items": [{"key": "b", "path": "x/y", "mode": 0o755}],
            }
        },
        (File(path="x/y", content=b"2", mode=0o755),),
    ),
    "a secret": (
        {"secret": {"secretName": "s", "defaultMode": 0o400}},
        (File(path="key", content=b"secret", mode=0o400),),
    ),
    "an optional one that is not there": ({"secret": {"secretName": "gone", "optional": True}}, ()),
    "the downward API": (
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        (File(path="labels", content=b'app="x"'),),
    ),
    "several projected": (
        {"projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "cm", "items": []}}]}},
        (File(path="key", content=b"secret"),),
    ),
}


@pytest.mark.parametrize(("source", "files"), FILES.values(), ids=FILES)
def test_files_of_a_volume(source, files):
    plan = plan_volume(source)
    assert plan.volumes == (Volume(name="v", kind=VolumeKind.FILES, files=files),)
    assert plan.containers[0].mounts == (VolumeMount(volume="v", path="/v", read_only=True),)


VOLUMES = {
    "empty": ({"emptyDir": {}}, Volume(name="v", kind=VolumeKind.EMPTY)),
    "in memory": (
        {"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        Volume(name="v", kind=VolumeKind.MEMORY, size_bytes=1 << 20),
    ),
    "a claim": (
        {"persistentVolumeClaim": {"claimName": "data"}},
        Volume(name="v", kind=VolumeKind.CLAIM, path="/claims/data"),
    ),
    "of the host": (
        {"hostPath": {"path": "/data", "type": "Directory"}},
        Volume(name="v", kind=VolumeKind.HOST, path="/data", host_type="Directory"),
    ),
}


@pytest.mark.parametrize(("source", "volume"), VOLUMES.values(), ids=VOLUMES)
def test_folders(source, volume):
    plan = plan_volume(source)
    assert plan.volumes == (volume,)
    assert plan.containers[0].mounts == (VolumeMount(volume="v", path="/v"),)


OBSTACLES = {
    "a config map": (
        {"configMap": {"name": "gone"}},
        'MountVolume.SetUp failed for volume "v" : configmap "gone" not found',
    ),
    "a key": (
        {"configMap": {"name": "cm", "items": [{"key": "z", "path": "z"}]}},
        'MountVolume.SetUp failed for volume "v" : configmap references non-existent configmap key: z',
    ),
    "a secret": (
        {"secret": {"secretName": "gone"}},
        'MountVolume.SetUp failed for volume "v" : secret "gone" not found',
    ),
    "a kind that only a cluster has": (
        {"nfs": {"server": "x", "path": "/"}},
        'MountVolume.SetUp failed for volume "v" : a volume of kind nfs cannot be had on this machine; use '
        "one of emptyDir, configMap, secret, projected, downwardAPI, hostPath, persistentVolumeClaim",
    ),
}


@pytest.mark.parametrize(("source", "message"), OBSTACLES.values(), ids=OBSTACLES)
def test_what_cannot_be_mounted_keeps_the_container_waiting(source, message):
    plan = plan_volume(source)
    assert plan.containers[0].obstacle == Obstacle(reason="CreateContainerConfigError", message=message)


def test_a_volume_that_nothing_mounts_is_not_even_looked_at():
    plan = plan_pod(pod(volumes=[{"name": "v", "configMap": {"name": "gone"}}]), CONTEXT, MACHINE)
    assert (plan.volumes, plan.containers[0].obstacle) == ((), None)


def test_a_missing_claim_is_what_a_scheduler_says_mounted_or_not():
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}
    plan = plan_pod(pod(volumes=[claim]), CONTEXT, MACHINE)
    assert plan.unschedulable == 'persistentvolumeclaim "gone" not found'


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x"])
def test_a_sub_path_stays_inside_its_volume(path):
    plan = plan_volume({"emptyDir": {}}, subPath=path)
    assert (
        plan.containers[0].obstacle.message
        == f'subPath "{path}" of volume mount "v" must stay inside the volume'
    )


def test_a_sub_path_may_refer_to_variables():
    body = pod(
        {
            "env": [{"name": "RANK_FOLDER", "value": "rank-0"}],
            "volumeMounts": [{"name": "v", "mountPath": "/v", "subPathExpr": "$(RANK_FOLDER)"}],
        },
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    assert plan_pod(body, CONTEXT, MACHINE).containers[0].mounts[0].sub_path == "rank-0"


SSH = {"volumeMounts": [{"name": "mpi-ssh-auth", "mountPath": "/home/mpiuser/.ssh"}]}
VOLUMES = [{"name": "mpi-ssh-auth", "emptyDir": {}}, {"name": "mpi-hostfile", "emptyDir": {}}]
LAUNCHER = {"volumeMounts": [*SSH["volumeMounts"], {"name": "mpi-hostfile", "mountPath": "/etc/mpi"}]}
NODE_RANKS = {
    "what a training node runs is that rank": ({}, 3),
    "torchrun counts processes": (
        {"env": [{"name": "PET_NPROC_PER_NODE", "value": "2"}, {"name": "PET_NODE_RANK", "value": "3"}]},
        6,
    ),
    "torchrun chooses ranks itself": ({"env": [{"name": "PET_NPROC_PER_NODE", "value": "1"}]}, None),
    "a container beside it has no rank": ({"name": "proxy"}, None),
    "nor what serves mpirun": ({"command": ["/usr/sbin/sshd"], **SSH}, None),
    "nor mpirun, which prints for all": (LAUNCHER, None),
}


@pytest.mark.parametrize(("container", "expected"), NODE_RANKS.values(), ids=NODE_RANKS)
def test_output_is_that_of_a_rank(container, expected):
    context = msgspec.structs.replace(CONTEXT, node_rank=3)
    plan = plan_pod(pod(container, volumes=VOLUMES), context, MACHINE)
    assert plan.containers[0].rank_base == expected


def test_a_pod_that_is_no_training_node_has_no_rank():
    assert plan_pod(pod(), CONTEXT, MACHINE).containers[0].rank_base is None


def test_arguments_without_a_command_are_for_the_image_and_not_run():
    plan = plan_pod(pod({"command": None, "args": ["x"]}), CONTEXT, MACHINE)
    assert plan.containers[0].arguments == ()


JSON_TEXT = st.text(alphabet="$()AB: =/demo-node-0-0.:29500", max_size=30)


@given(
    command=st.lists(JSON_TEXT, min_size=1, max_size=4),
    variables=st.dictionaries(st.sampled_from(["A", "B", "MASTER_PORT"]), JSON_TEXT),
    own_names=st.booleans(),
)
def test_planning_is_pure_and_changes_nothing_it_was_given(command, variables, own_names):
    env = [{"name": name, "value": value} for name, value in variables.items()]
    body = pod({"command": command, "env": env})
    before = copy.deepcopy(body)
    machine = Machine(cpus=8, own_names=own_names)
    assert plan_pod(body, CONTEXT, machine) == plan_pod(body, CONTEXT, machine)
    assert body == before
    assert len(plan_pod(body, CONTEXT, machine).containers[0].arguments) == len(command)
