"""Pods in the store and the processes of this machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from runner.lab import Lab, replicated_job, shell
from trainwright.runner.executors.leftovers import end_leftovers
from trainwright.runner.executors.process_identity import ProcessIdentity


def list_starters() -> set[int]:
    """Return the children of this process that became containers."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(pid) for pid in children if b"pod_init.main()" in Path(f"/proc/{pid}/cmdline").read_bytes()}


async def test_every_container_that_runs_is_written_down(lab: Lab) -> None:
    """Whoever reports the job of a supervisor that was killed waits for these. The main container of a pod is
    another process than its init containers were."""
    prepare = {"name": "prepare", "image": "none", "command": shell("true")}
    script = 'echo up > "$WORK/up"; while [ ! -e "$WORK/go" ]; do sleep 0.01; done'
    job = await lab.submit(replicated_job("node", script, pod={"initContainers": [prepare]}))
    record = lab.paths.job(job["metadata"]["uid"]).root / "processes.json"

    def is_recorded() -> bool:
        recorded = msgspec.json.decode(record.read_bytes(), type=list[ProcessIdentity])
        return list_starters() <= {identity.pid for identity in recorded}

    async with lab.supervising():
        await lab.until_file("up")
        assert len(list_starters()) == 1
        await lab.until(is_recorded)
        (lab.work / "go").touch()


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A child of this process that no job has started."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


async def test_a_process_that_was_there_before_is_none_of_the_job(
    other: subprocess.Popen[bytes], lab: Lab
) -> None:
    """Whoever supervises a job in a process of their own may have started others in it."""
    job = await lab.submit(replicated_job("node", "true"))
    async with lab.supervising():
        await lab.until_finished()
    await asyncio.to_thread(end_leftovers, lab.paths.job(job["metadata"]["uid"]))
    assert other.poll() is None
