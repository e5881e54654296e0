"""mpirun over two nodes with two slots each, on this machine, with each implementation, told nothing but the
variables that the runtime renders."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import msgspec
import psutil
import pytest

from runner.executors import pods
from runner.executors.pods import TRAINING_SECONDS, context, pod, read_log, until
from runner.mpi_jobs import (
    ALLREDUCE,
    IMPLEMENTATIONS,
    LAUNCHER,
    NODES,
    Implementation,
    Json,
    build_launcher,
    build_node,
    find_implementation,
)
from trainwright.api.core import PodStatus
from trainwright.runner.executor import PodRun
from trainwright.runner.executors import remote_hosts
from trainwright.runner.executors.process import ProcessExecutor
from trainwright.runner.executors.trial import try_namespaces

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(params=["namespaces", "processes"])
async def isolation(request) -> str:
    if request.param == "namespaces":
        found, refusal = await try_namespaces(os.geteuid())
        if not found.mount:
            pytest.skip(f"NO NAMESPACES ON THIS MACHINE: {refusal}")
    return request.param


@pytest.fixture
def executor(isolation) -> ProcessExecutor:
    return ProcessExecutor({"TRAINWRIGHT_ISOLATION": isolation})


@pytest.fixture(params=IMPLEMENTATIONS)
def implementation(request) -> Implementation:
    return find_implementation(request.param)


class MpiJob:
    """The pods of one job: the nodes, and the launcher once it was started."""

    def __init__(self, executor: ProcessExecutor, implementation: Implementation, root: Path) -> None:
        self._executor = executor
        self._implementation = implementation
        self._root = root
        self.nodes: list[PodRun] = []

    async def start(self, host: str, spec: Json) -> PodRun:
        return await self._executor.start(
            pod(name=f"{host}-abcde", **spec),
            context(
                self._root / "pods" / host,
                host_names=(LAUNCHER, *NODES),
                environment={
                    "PATH": self._implementation.path,
                    "HOME": str(self._root),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    **self._implementation.environment,
                },
                config_maps={"demo-mpi-hostfile": {"hostfile": self._implementation.hostfile.encode()}},
                secrets={"demo-mpi-ssh-auth": {"ssh-privatekey": b"private", "ssh-publickey": b"public"}},
            ),
        )

    async def launch(self, *command: str, **env: str) -> PodRun:
        return await self.start(LAUNCHER, build_launcher(self._implementation, list(command), **env))

    def log(self, host: str = LAUNCHER) -> str:
        return read_log(self._root / "pods" / host)


@asynccontextmanager
async def mpi_job(
    executor: ProcessExecutor, implementation: Implementation, root: Path
) -> AsyncIterator[MpiJob]:
    """Have two nodes ready; nothing of them is left at the end."""
    job = MpiJob(executor, implementation, root)
    try:
        for index, host in enumerate(NODES):
            job.nodes.append(await job.start(host, build_node(index)))
        for node in job.nodes:
            await until(node, is_ready)
        yield job
    finally:
        await asyncio.gather(*(node.stop(5.0) for node in job.nodes))
    assert list_processes_of(root) == []


async def end(run: PodRun) -> PodStatus:
    """Wait until mpirun, and what it started, has ended."""
    return await pods.end(run, TRAINING_SECONDS)


async def until_true(holds: Callable[[], bool]) -> None:
    """Wait for what ranks do."""
    await pods.until_true(holds, TRAINING_SECONDS)


def is_ready(status: PodStatus) -> bool:
    return any(
        condition.type == "Ready" and condition.status == "True" for condition in status.conditions or ()
    )


def get_end(status: PodStatus):
    return status.container_statuses[0].state.terminated


def iterate_processes(root: Path) -> Iterator[Path]:
    """Yield the folder in /proc of what runs with this job's HOME: daemons of MPI included."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"HOME={root}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                yield entry


def list_processes_of(root: Path) -> list[str]:
    """Return the command lines of what runs in this job."""
    found = []
    for process in iterate_processes(root):
        with contextlib.suppress(OSError):
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def list_peers(root: Path, program: str) -> set[str]:
    """Return the addresses of both ends of all connections of a job, or of what runs this program in it."""
    found = set()
    for process in iterate_processes(root):
        with contextlib.suppress(OSError, psutil.Error):
            if not (process / "cmdline").read_bytes().startswith(program.encode()):
                continue
            for connection in psutil.Process(int(process.name)).net_connections("tcp"):
                if connection.status == psutil.CONN_ESTABLISHED:
                    found |= {connection.laddr.ip, connection.raddr.ip}
    return found


async def test_mpirun_without_options_reduces_over_all_slots_of_all_nodes(
    executor, isolation, implementation, tmp_path
):
    async with mpi_job(executor, implementation, tmp_path) as job:
        launcher = await job.launch("mpirun", implementation.python, str(ALLREDUCE))
        status = await end(launcher)
        assert status.phase == "Succeeded", job.log()
        assert "sums of 1 and of 100000 doubles are right" in job.log()
        hosts = re.findall(r"rank \d of 4 on (\S+)", job.log())
        if isolation == "namespaces":
            assert Counter(hosts) == dict.fromkeys(NODES, 2)
        assert len(hosts) == 4
        for host in NODES:
            assert "remote start: started: " in job.log(host)


@pytest.mark.parametrize("name", ["Open MPI 4", "Open MPI 5"])
async def test_jobs_of_one_name_do_not_meet_in_shared_memory(executor, name, tmp_path):
    """Open MPI names its segments by host, process id and rank, and pods have process ids of their own."""
    implementation = find_implementation(name)

    async def run(root: Path) -> tuple[str, str]:
        async with mpi_job(executor, implementation, root) as job:
            status = await end(await job.launch("mpirun", implementation.python, str(ALLREDUCE)))
            return status.phase, job.log()

    roots = [tmp_path / str(number) for number in range(3)]
    for root in roots:
        root.mkdir()
    for phase, log in await asyncio.gather(*map(run, roots)):
        assert phase == "Succeeded", log


async def test_killed_ranks_leave_nothing_in_shared_memory(executor, isolation, tmp_path):
    if isolation == "processes":
        pytest.skip("without namespaces all pods have the machine's /dev/shm")
    implementation = find_implementation("MPICH")
    script = (
        "import time; from mpi4py import MPI; MPI.COMM_WORLD.Barrier(); print('began', flush=True); "
        "time.sleep(600)"
    )
    async with mpi_job(executor, implementation, tmp_path) as job:
        launcher = await job.launch("mpirun", implementation.python, "-c", script)
        await until_true(lambda: job.log().count("began") == 4)
        records = [json.loads(file.read_text()) for file in tmp_path.glob("pods/*/host-paths.json")]
        folders = [Path(record["shared_memory"]) for record in records]
        assert sum(len(list(folder.iterdir())) for folder in folders) > 0
        await asyncio.gather(*(run.stop(0) for run in (*job.nodes, launcher)))
        assert not any(map(Path.exists, folders))


async def test_ranks_run_in_the_directory_of_the_job(executor, implementation, tmp_path):
    script = tmp_path / "where.py"
    script.write_text(
        "import os\nfrom mpi4py import MPI\nfound = MPI.COMM_WORLD.gather(os.getcwd())\n"
        "if found:\n    print(*found, flush=True)\n"
    )
    async with mpi_job(executor, implementation, tmp_path) as job:
        status = await end(await job.launch("mpirun", implementation.python, str(script)))
        assert status.phase == "Succeeded", job.log()
        assert job.log().split().count(str(tmp_path / "pods")) == 4, job.log()


async def test_the_exit_code_of_a_rank_is_that_of_the_launcher(executor, implementation, tmp_path):
    script = tmp_path / "fail.py"
    script.write_text(
        "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n"
        "if MPI.COMM_WORLD.rank == 3:\n    MPI.COMM_WORLD.Abort(17)\n"
        "MPI.COMM_WORLD.Barrier()\n"
    )
    async with mpi_job(executor, implementation, tmp_path) as job:
        status = await end(await job.launch("mpirun", implementation.python, str(script)))
        assert (status.phase, get_end(status).exit_code) == ("Failed", 17), job.log()


async def test_stopping_leaves_no_process_and_tells_the_ranks_before(executor, implementation, tmp_path):
    script = tmp_path / "wait.py"
    script.write_text(
        "import pathlib, signal, sys, time\nfrom mpi4py import MPI\n"
        "rank = MPI.COMM_WORLD.rank\n"
        "def end(*_):\n    pathlib.Path(sys.argv[1], f'told-{rank}').touch()\n    sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "MPI.COMM_WORLD.Barrier()\n"
        "pathlib.Path(sys.argv[1], f'began-{rank}').touch()\n"
        "while True:\n    time.sleep(0.05)\n"
    )
    # Intel's mpirun is a shell script that dies of SIGTERM without passing it on.
    program = "mpiexec.hydra" if implementation.name == "Intel MPI" else "mpirun"
    async with mpi_job(executor, implementation, tmp_path) as job:
        launcher = await job.launch(program, implementation.python, str(script), str(tmp_path))
        await until_true(lambda: len(list(tmp_path.glob("began-*"))) == 4)
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(run.stop(30.0) for run in (launcher, *job.nodes)))
        assert asyncio.get_running_loop().time() - began < 20
        assert launcher.status.phase == "Failed"
        assert sorted(path.name for path in tmp_path.glob("told-*")) == [f"told-{rank}" for rank in range(4)]


async def test_ranks_and_daemons_meet_on_the_loopback(executor, implementation, tmp_path):
    """Any other link may go away while a job runs: that of a VPN, of a container engine.

    The daemons of Open MPI 5 refuse the loopback where there is anything else.
    """
    script = tmp_path / "talk.py"
    script.write_text(
        "import pathlib, sys, time\nfrom array import array\nfrom mpi4py import MPI\n"
        "total = array('d', bytes(800_000))\n"
        "MPI.COMM_WORLD.Allreduce(array('d', [1.0]) * 100_000, total)\n"
        "pathlib.Path(sys.argv[1], f'began-{MPI.COMM_WORLD.rank}').touch()\n"
        "while True:\n    time.sleep(0.05)\n"
    )
    async with mpi_job(executor, implementation, tmp_path) as job:
        launcher = await job.launch("mpirun", implementation.python, str(script), str(tmp_path))
        await until_true(lambda: len(list(tmp_path.glob("began-*"))) == 4)
        peers = list_peers(tmp_path, implementation.python if implementation.name == "Open MPI 5" else "")
        await launcher.stop(0)
        assert peers
        assert {peer for peer in peers if not ip_address(peer.removeprefix("::ffff:")).is_loopback} == set()


async def test_a_node_that_is_killed_ends_the_launcher(executor, implementation, tmp_path):
    script = tmp_path / "wait.py"
    script.write_text(
        "import pathlib, sys, time\nfrom mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\n"
        "pathlib.Path(sys.argv[1], f'began-{MPI.COMM_WORLD.rank}').touch()\n"
        "while True:\n    time.sleep(0.05)\n"
    )
    async with mpi_job(executor, implementation, tmp_path) as job:
        launcher = await job.launch("mpirun", implementation.python, str(script), str(tmp_path))
        await until_true(lambda: len(list(tmp_path.glob("began-*"))) == 4)
        await job.nodes[1].stop(0)
        status = await end(launcher)
        assert status.phase == "Failed"
        assert "demo-node-0-1" in get_end(status).message


async def test_a_launcher_that_uses_no_other_node_fails_and_says_so(executor, implementation, tmp_path):
    """As an mpirun does that is told of the hosts by variables of another implementation."""
    async with mpi_job(executor, implementation, tmp_path) as job:
        status = await end(
            await job.launch("env", *unset(implementation.variables), "mpirun", "-n", "1", "true")
        )
        assert (status.phase, get_end(status).exit_code) == ("Failed", 1), job.log()
        assert "used none of the 2 nodes (demo-node-0-0, demo-node-0-1)" in get_end(status).message
        assert "mlPolicy.mpi.mpiImplementation" in get_end(status).message


async def test_a_launcher_may_say_that_one_host_is_meant(executor, tmp_path):
    async with mpi_job(executor, find_implementation("MPICH"), tmp_path) as job:
        allowed = {"TRAINWRIGHT_MPI_ONE_HOST": "allow"}
        assert (await end(await job.launch("true", **allowed))).phase == "Succeeded"


async def test_a_launcher_that_is_a_node_has_ranks_of_its_own(executor, isolation, implementation, tmp_path):
    first = implementation.hostfile.splitlines(keepends=True)[0].replace(NODES[0], LAUNCHER)
    implementation = msgspec.structs.replace(implementation, hostfile=first + implementation.hostfile)
    async with mpi_job(executor, implementation, tmp_path) as job:
        status = await end(await job.launch("mpirun", implementation.python, str(ALLREDUCE)))
        assert status.phase == "Succeeded", job.log()
        hosts = re.findall(r"rank \d of 6 on (\S+)", job.log())
        assert len(hosts) == 6
        if isolation == "namespaces":
            assert hosts[:2] == [LAUNCHER] * 2
            assert Counter(hosts) == dict.fromkeys((LAUNCHER, *NODES), 2)


async def test_hosts_on_the_command_line_are_found_by_any_of_their_names(executor, implementation, tmp_path):
    """Also without namespaces, where addresses in arguments become 127.0.0.1 in every other container."""
    hosts = {"Open MPI 4": f"{NODES[1]}.demo:2", "Open MPI 5": f"{NODES[1]}.demo:2"}
    words = ("mpirun", "-host", hosts.get(implementation.name, NODES[1]), "-n", "2")
    async with mpi_job(executor, implementation, tmp_path) as job:
        command = ("env", *unset(implementation.variables), *words, implementation.python, str(ALLREDUCE))
        status = await end(await job.launch(*command))
        assert status.phase == "Succeeded", job.log()
        assert "started" not in job.log(NODES[0])
        assert "started" in job.log(NODES[1])


def unset(variables: Iterable[str]) -> list[str]:
    """Return the options of `env` that take the variables of the hostfile away."""
    return [
        word for name in variables if "host" in name.lower() and "keep" not in name for word in ("-u", name)
    ]


async def test_a_host_that_is_no_pod_of_the_job_is_named(executor, tmp_path):
    implementation = msgspec.structs.replace(find_implementation("MPICH"), hostfile="elsewhere:2\n")
    async with mpi_job(executor, implementation, tmp_path) as job:
        status = await end(await job.launch("mpirun", "-n", "2", "true"))
        assert status.phase == "Failed"
        assert "no pod of this job is called elsewhere; its hosts are demo-launcher-0-0" in job.log()


async def test_a_volume_at_tmp_hides_nothing_that_mpirun_needs(executor, isolation, tmp_path):
    if isolation == "processes":
        pytest.skip("without namespaces nothing is mounted at /tmp")
    if Path(remote_hosts.__file__).is_relative_to("/tmp") or Path(sys.executable).is_relative_to("/tmp"):
        pytest.skip("NOT TESTED: the volume would hide this clone, which lies below /tmp")
    implementation = find_implementation("MPICH")
    spec = build_launcher(implementation, ["mpirun", implementation.python, str(ALLREDUCE)])
    spec["containers"][0]["volumeMounts"].append({"name": "scratch", "mountPath": "/tmp"})
    spec["volumes"].append({"name": "scratch", "emptyDir": {}})
    async with mpi_job(executor, implementation, tmp_path) as job:
        status = await end(await job.start(LAUNCHER, spec))
        assert status.phase == "Succeeded", job.log()
