"""Pods in the store and the processes of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from runner.lab import Lab, replicated_job, shell
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
