"""MPI TrainJobs from submission to their end, as the mpi framework renders them, with real mpiruns."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from runner.lab import Lab, replicated_job
from runner.mpi_jobs import ALLREDUCE, IMPLEMENTATIONS, Implementation, Json, find_implementation
from trainwright.runner.executors.process import ProcessExecutor
from trainwright.runner.executors.trial import try_namespaces
from trainwright.runner.supervisor.lost import report_lost
from trainwright.runner.supervisor.supervisor_lock import find_live_supervisor

DRIVER = Path(__file__).parents[1] / "driver.py"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# Every rank says that it has begun, and waits to be told to end.
ENDLESS = """
import os, pathlib, signal, sys, time
from mpi4py import MPI
rank, work = MPI.COMM_WORLD.rank, pathlib.Path(sys.argv[1])
def end(*_):
    (work / f"stopped-{rank}").touch()
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
MPI.COMM_WORLD.Barrier()
if rank == 3 and (work / "abort").exists():
    MPI.COMM_WORLD.Abort(17)
if (work / "second").exists():
    sys.exit(0)
(work / f"began-{rank}").write_text(str(os.getpid()))
while True:
    time.sleep(0.02)
"""


@pytest.fixture(params=["namespaces", "processes"])
async def isolation(request) -> str:
    if request.param == "namespaces":
        found, refusal = await try_namespaces(os.geteuid())
        if not found.mount:
            pytest.skip(f"NO NAMESPACES ON THIS MACHINE: {refusal}")
    return request.param


@pytest.fixture
def build_executor(isolation):
    return lambda: ProcessExecutor({"TRAINWRIGHT_ISOLATION": isolation})


@pytest.fixture
def mpich() -> Implementation:
    return find_implementation("MPICH")


async def submit(lab: Lab, implementation: Implementation, *command: str, **mpi: object) -> None:
    """Store a TrainJob of two nodes with two slots, with a runtime as the shipped ones are."""
    lab.bound_seconds = 90.0  # an mpirun takes a second or two, on a machine that has nothing else to do
    lab.environment |= {"PATH": implementation.path, "HOME": str(lab.work), **implementation.environment}
    # Open MPI kills a second after SIGTERM, in which not every rank of a busy machine has its turn. The whole
    # time always passes in Open MPI 4, and once more before SIGTERM.
    lab.environment |= {"OMPI_MCA_odls_base_sigkill_timeout": "5", "PRTE_MCA_odls_base_sigkill_timeout": "60"}
    node: Json = replicated_job("node", "")
    container = node["template"]["spec"]["template"]["spec"]["containers"][0]
    del container["env"]
    container |= {
        "command": ["/usr/sbin/sshd"],
        "args": ["-De", "-f", "/home/mpiuser/.sshd_config"],
        "readinessProbe": {"tcpSocket": {"port": 2222}, "initialDelaySeconds": 5},
    }
    launcher: Json = replicated_job("launcher", "", step="trainer")
    del launcher["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
    await lab.submit(
        node,
        launcher,
        nodes=2,
        policy={"mpi": {"sshAuthMountPath": "/home/mpiuser/.ssh", **mpi}},
        template={"successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]}},
        trainer={"command": list(command), "numProcPerNode": 2},
    )


async def submit_endless(lab: Lab, implementation: Implementation) -> None:
    (lab.work / "endless.py").write_text(ENDLESS)
    await submit(
        lab, implementation, "mpirun", implementation.python, str(lab.work / "endless.py"), str(lab.work)
    )


def read_launcher_log(lab: Lab) -> str:
    return "".join(log.read_text() for log in lab.paths.jobs.glob("*/pods/demo-launcher-0-0-*/node.log"))


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
async def test_a_job_uses_all_slots_of_all_nodes(lab: Lab, name: str, isolation: str, build_executor) -> None:
    implementation = find_implementation(name)
    await submit(lab, implementation, "mpirun", implementation.python, str(ALLREDUCE))
    async with lab.supervising(build_executor=build_executor):
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}
    log = read_launcher_log(lab)
    assert "sums of 1 and of 100000 doubles are right" in log
    hosts = re.findall(r"rank \d of 4 on (\S+)", log)
    assert len(hosts) == 4
    if isolation == "namespaces":
        assert Counter(hosts) == {"demo-node-0-0": 2, "demo-node-0-1": 2}
    assert lab.processes() == set()


async def test_the_launcher_of_a_shipped_runtime_is_a_node(lab: Lab, mpich: Implementation) -> None:
    """numNodes counts the launcher, whose ranks come first."""
    await submit(lab, mpich, "mpirun", mpich.python, str(ALLREDUCE), runLauncherAsNode=True)
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}
    assert len(re.findall(r"rank \d of 4 on ", read_launcher_log(lab))) == 4


async def test_the_exit_code_of_a_rank_reaches_the_status(
    lab: Lab, mpich: Implementation, build_executor
) -> None:
    (lab.work / "abort").touch()
    await submit_endless(lab, mpich)
    async with lab.supervising(build_executor=build_executor):
        assert (await lab.until_finished()).keys() == {"Failed"}
    cause = (await lab.get())["status"]["cause"]
    assert cause["name"].startswith("demo-launcher-0-0-")
    assert "17" in cause["message"]
    assert lab.processes() == set()


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
async def test_a_killed_node_fails_the_job(lab: Lab, name: str) -> None:
    implementation = find_implementation(name)
    await submit_endless(lab, implementation)
    async with lab.supervising():
        await lab.until_file("began-3")
        (victim,) = [pid for pid in lab.processes() if is_server_of("demo-node-0-1", pid)]
        os.kill(victim, signal.SIGKILL)
        assert (await lab.until_finished()).keys() == {"Failed"}
    cause = (await lab.get())["status"]["cause"]
    # Within one second the launcher may have failed as well, and says of whom.
    assert "demo-node-0-1" in f"{cause['name']} {cause['message']}"
    assert lab.processes() == set()


def is_server_of(host: str, pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"serve" in words and host.encode() in words


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
async def test_a_job_is_suspended_and_goes_on(lab: Lab, name: str) -> None:
    """1. All ranks run. 2. The job is suspended: every rank is told, no process is left. 3. It is resumed."""
    implementation = find_implementation(name)
    program = "mpiexec.hydra" if name == "Intel MPI" else "mpirun"
    script = lab.work / "endless.py"
    script.write_text(ENDLESS)
    await submit(lab, implementation, program, implementation.python, str(script), str(lab.work))
    async with lab.supervising():
        for rank in range(4):
            await lab.until_file(f"began-{rank}")
        await lab.suspend()
    assert lab.processes() == set()
    assert len(list(lab.work.glob("stopped-*"))) == 4
    (lab.work / "second").touch()
    await lab.resume()
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}
    assert lab.processes() == set()


@pytest.mark.parametrize("name", ["Open MPI 4", "MPICH"])
async def test_nothing_survives_a_supervisor_that_is_killed(lab: Lab, name: str, isolation: str) -> None:
    """Not even Open MPI's daemons, which leave their parent and lead sessions of their own."""
    await submit_endless(lab, find_implementation(name))
    command = [sys.executable, str(DRIVER), str(lab.paths.root), str(lab.work), "start", "demo"]
    inherited = {"INHERITED": json.dumps(lab.environment), "TRAINWRIGHT_ISOLATION": isolation}
    await asyncio.to_thread(subprocess.run, command, env={**os.environ, **inherited}, check=True, timeout=60)
    for rank in range(4):
        await lab.until_file(f"began-{rank}")
    uid = (await lab.get())["metadata"]["uid"]
    supervisor = find_live_supervisor(lab.paths.job(uid))
    assert supervisor is not None
    before = lab.processes()
    os.kill(supervisor.process.pid, signal.SIGKILL)
    # The kernel takes a moment to end all of its threads, and until then they hold the lock.
    assert await lab.until(lambda: report_lost(lab.cluster, lab.paths), "lost") == [lab.key()]
    assert len(before) >= 6
    assert lab.processes() == set()
    assert not lab.paths.job(uid).shared.exists()


async def test_a_run_on_one_host_fails_and_says_so(lab: Lab, mpich: Implementation) -> None:
    await submit(lab, mpich, "env", "-u", "HYDRA_HOST_FILE", "mpirun", "-n", "2", "true")
    async with lab.supervising():
        assert (await lab.until_finished()).keys() == {"Failed"}
    cause = (await lab.get())["status"]["cause"]
    assert "used none of the 2 nodes (demo-node-0-0, demo-node-0-1)" in cause["message"]


async def test_keys_and_hosts_are_where_the_pod_wants_them(lab: Lab, mpich: Implementation) -> None:
    """Also where the folder does not exist on this machine, and with the modes that ssh insists on."""
    command = (
        "stat -c '%a %n' /home/mpiuser/.ssh/* /etc/mpi/* > $WORK/modes; cat /etc/mpi/hostfile > $WORK/hosts"
    )
    await submit(
        lab, mpich, "/bin/sh", "-c", command + "; TRAINWRIGHT=1 mpirun true", mpiImplementation="MPICH"
    )
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}
    assert (lab.work / "hosts").read_text() == "demo-node-0-0.demo:2\ndemo-node-0-1.demo:2\n"
    assert (lab.work / "modes").read_text().splitlines() == [
        "644 /home/mpiuser/.ssh/authorized_keys",
        "640 /home/mpiuser/.ssh/id_rsa",
        "644 /home/mpiuser/.ssh/id_rsa.pub",
        "444 /etc/mpi/hostfile",
        "444 /etc/mpi/hostfile-openmpi",
    ]
