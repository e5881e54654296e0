"""`kubectl wait` for conditions of TrainJobs, by kubectl itself.

It believes no condition whose observedGeneration is below the object's generation, and waits on.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kube.control_plane import ControlPlane
from kube.operating import People, operating, runtime, train_job
from trainwright.cluster.kube.config import Connection


@pytest.fixture
def kubectl(control_plane: ControlPlane) -> Path:
    return control_plane.programs / "kubectl"


async def test_a_condition_is_believed_after_the_job_was_edited(
    people: People, operator_connection: Connection, control_plane: ControlPlane, kubectl: Path
) -> None:
    """1. A suspended job is resized. 2. It ends, and is to be kept for longer. Both raise the generation."""

    async def wait_for(type_: str) -> str:
        arguments = ["--kubeconfig", control_plane.kubeconfig(), "-n", people.namespace]
        process = await asyncio.create_subprocess_exec(
            kubectl,
            *arguments,
            *("wait", "trainjob/demo", f"--for=condition={type_}", "--timeout=20s"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return said.decode().strip()

    met = "trainjob.trainer.kubeflow.org/demo condition met"
    await people.create(runtime())
    async with operating(operator_connection, people.namespace):
        await people.create(train_job(suspend=True, trainer={"numNodes": 1}))
        await people.until_phase("Suspended")
        await people.edit({"spec": {"trainer": {"numNodes": 2}}})
        assert await wait_for("Suspended") == met
        await people.edit({"spec": {"suspend": False}})
        await people.set_pods("Succeeded", 2)
        await people.until_phase("Complete")
        await people.edit({"spec": {"ttlSecondsAfterFinished": 3600}})
        assert await wait_for("Complete") == met
