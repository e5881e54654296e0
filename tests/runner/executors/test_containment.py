"""Nothing survives a pod, whatever its programs do, and nothing survives a supervisor that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path

import pytest

from runner.executors.pods import (
    PATIENCE_SECONDS,
    context,
    list_processes,
    pod,
    until,
    until_exists,
    until_true,
)
from trainwright.runner.executors.pod_folder import remove_leftovers
from trainwright.runner.executors.process import ProcessExecutor
from trainwright.runner.executors.trial import try_namespaces

# Each leaves a process behind that ignores SIGTERM and whose command line has the marker.
SURVIVORS = {
    "a child that ignores SIGTERM": "spawn()",
    "a child in a session of its own": "spawn(start_new_session=True)",
    "a daemon by double fork": (
        "os.fork() == 0 and (os.setsid(), os.fork() == 0 and spawn(wait=True), os._exit(0))"
    ),
    "a daemon with a cleared environment": "spawn(start_new_session=True, env={})",
    "a daemon that closes its output": "spawn(start_new_session=True, stdout=NULL, stderr=NULL)",
}
PROGRAM = """
import os, signal, subprocess, sys, time
marker, ready, tail = sys.argv[1:]
NULL = subprocess.DEVNULL
signal.signal(signal.SIGTERM, signal.SIG_IGN)
STAY = (
    "import signal, time, sys; signal.signal(15, signal.SIG_IGN); "
    "open(sys.argv[2], 'w').write('up'); time.sleep(1000)"
)
def spawn(wait=False, **options):
    child = subprocess.Popen([sys.executable, "-c", STAY, marker, ready], **options)
    if wait:
        child.wait()
{action}
while not os.path.exists(ready):
    time.sleep(0.005)
if tail == "hang":
    time.sleep(1000)
sys.exit(3)
"""


@pytest.fixture(params=["namespaces", "shared pids", "processes"])
async def settings(request):
    if request.param == "processes":
        return {"TRAINWRIGHT_ISOLATION": "processes"}
    found, refusal = await try_namespaces(os.geteuid())
    if not found.mount:
        pytest.skip(f"NO NAMESPACES ON THIS MACHINE, this part of the executor is not tested: {refusal}")
    private = "no" if request.param == "shared pids" else "yes"
    return {"TRAINWRIGHT_ISOLATION": "namespaces", "TRAINWRIGHT_PID_NAMESPACE": private}


@pytest.fixture
def marker():
    return f"marker-{uuid.uuid4().hex}"


def program(action: str, marker: str, ready: Path, tail: str) -> dict:
    source = PROGRAM.replace("{action}", action)
    return {"name": "node", "command": [sys.executable, "-c", source, marker, str(ready), tail]}


@pytest.mark.parametrize("action", SURVIVORS.values(), ids=SURVIVORS)
async def test_nothing_survives_a_kill(settings, tmp_path, marker, action):
    executor = ProcessExecutor(settings)
    body = pod(program(action, marker, tmp_path / "ready", "hang"))
    run = await executor.start(body, context(tmp_path / "pod"))
    await until_exists(tmp_path / "ready")
    assert len(list_processes(marker)) >= 2
    await run.stop(0.05)
    assert list_processes(marker) == []
    assert run.status.container_statuses[0].state.terminated.exit_code == 137


@pytest.mark.parametrize("action", SURVIVORS.values(), ids=SURVIVORS)
async def test_nothing_survives_the_end_of_the_main_process(settings, tmp_path, marker, action):
    executor = ProcessExecutor(settings)
    body = pod(program(action, marker, tmp_path / "ready", "exit"))
    run = await executor.start(body, context(tmp_path / "pod"))
    status = await until(run, lambda status: status.phase == "Failed")
    assert list_processes(marker) == []
    assert status.container_statuses[0].state.terminated.exit_code == 3


async def test_a_program_that_forks_again_and_again_is_ended(settings, tmp_path, marker):
    """Each generation starts the next in a new session and leaves at once: no listing shows them all."""
    relay = (
        "import os, sys, time\n"
        "open(sys.argv[2], 'w').write('up')\n"
        "while True:\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "    os.setsid()\n"
        "    time.sleep(0.0005)\n"
    )
    start = (
        "import subprocess, sys, time\n"
        f"for _ in range(3): subprocess.Popen([sys.executable, '-c', {relay!r}, *sys.argv[1:]])\n"
        "time.sleep(1000)"
    )
    body = {"name": "node", "command": [sys.executable, "-c", start, marker, str(tmp_path / "ready")]}
    run = await ProcessExecutor(settings).start(pod(body), context(tmp_path / "pod"))
    await until_exists(tmp_path / "ready")
    await run.stop(0)
    assert list_processes(marker) == []


async def test_orphans_are_reaped_while_the_pod_runs(settings, tmp_path):
    """A main process that never waits for children it did not start must not collect zombies."""
    source = textwrap.dedent(
        """
        import os, sys, time
        for _ in range(20):
            pid = os.fork()
            if pid == 0:
                if os.fork() == 0:
                    os._exit(0)
                os._exit(0)
            os.waitpid(pid, 0)
        def zombies():
            count = 0
            for entry in os.listdir("/proc"):
                if entry.isdigit():
                    try:
                        fields = open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()
                    except OSError:
                        continue
                    count += fields[0] == "Z" and fields[1] == str(os.getppid())
            return count
        for _ in range(1000):
            if zombies() == 0:
                sys.exit(0)
            time.sleep(0.005)
        sys.exit(1)
        """
    )
    body = {"name": "node", "command": [sys.executable, "-c", source]}
    run = await ProcessExecutor(settings).start(pod(body), context(tmp_path / "pod"))
    status = await until(run, lambda status: status.phase in ("Succeeded", "Failed"))
    assert status.phase == "Succeeded"


SUPERVISOR = """
import asyncio, sys, json, signal
from pathlib import Path
from runner.executors.pods import pod, context
from trainwright.runner.executors.process import ProcessExecutor

async def main():
    settings, container, folder = json.loads(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
    run = await ProcessExecutor(settings).start(pod(container), context(folder))
    print("started", flush=True)
    await asyncio.sleep(1000)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what it starts with `&`
asyncio.run(main())
"""


def exists(path: Path) -> bool:
    return path.exists()


def start_supervisor(settings, container, folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, json.dumps(settings), json.dumps(container), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
    )


async def test_nothing_survives_a_supervisor_that_is_killed(settings, tmp_path, marker):
    """1. A supervisor starts a pod with a daemon. 2. It is killed with SIGKILL. 3. All is gone, and swept."""
    container = program(SURVIVORS["a daemon by double fork"], marker, tmp_path / "ready", "hang")
    with start_supervisor(settings, container, tmp_path / "pod") as supervisor:
        await until_exists(tmp_path / "ready")
        record = (tmp_path / "pod" / "host-paths.json").read_text()
        temporary = Path(json.loads(record)["temporary"])
        assert exists(temporary)
        supervisor.send_signal(signal.SIGKILL)
    await until_true(lambda: not list_processes(marker))
    remove_leftovers(tmp_path / "pod")
    assert not exists(temporary)
    assert sorted(path.name for path in (tmp_path / "pod").iterdir()) == ["began", "node.log"]


async def test_nothing_survives_a_supervisor_whose_loop_is_cancelled(settings, tmp_path, marker):
    container = program(SURVIVORS["a daemon by double fork"], marker, tmp_path / "ready", "hang")
    with start_supervisor(settings, container, tmp_path / "pod") as supervisor:
        await until_exists(tmp_path / "ready")
        supervisor.send_signal(signal.SIGINT)
        await asyncio.to_thread(supervisor.wait, PATIENCE_SECONDS)
    assert list_processes(marker) == []
