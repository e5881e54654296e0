"""Pods that have to make room: what the page about gangs has in its runtime, with real controllers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from kube.operating import People, Running, condition, eventually, operating, runtime, train_job
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import Connection

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/gang-scheduling.md"
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}


@pytest.fixture
async def operator(operator_connection: Connection, namespace: str) -> AsyncIterator[Running]:
    async with operating(operator_connection, namespace) as running:
        yield running


def read_policies() -> tuple[Json, Json]:
    """The failure policy of the page's JobSet, and the pod failure policy of its Job."""
    blocks = [block.partition("```")[0] for block in PAGE.read_text().split("```yaml\n")[1:]]
    (block,) = (block for block in blocks if "podFailurePolicy" in block)
    spec = yaml.safe_load(block)["template"]["spec"]
    return spec["failurePolicy"], spec["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]


def build_runtime() -> Json:
    of_job_set, of_job = read_policies()
    patient = runtime(nodes=2, failurePolicy=of_job_set)
    step = patient["spec"]["template"]["spec"]["replicatedJobs"][0]
    step["template"]["spec"]["podFailurePolicy"] = of_job
    return patient


async def test_b053_a_preempted_pod_starts_all_anew_and_a_program_that_fails_does_not(
    people: People, operator: Running
) -> None:
    """1. One of two pods is preempted. 2. Both are made anew, uncounted. 3. A program fails, and the job."""
    await people.create(build_runtime())
    await people.create(train_job())
    await people.set_pods("Running", 2)
    await people.until_phase("Running")
    first = await people.until_pods(2)
    gone = first[1]["metadata"]["name"]
    await people.set_pod(first[1], "Failed", exit_code=143)
    found = await people.find("Pod", gone)
    conditions = [*found["status"]["conditions"], {**DISRUPTED, "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    await people.cluster.patch_status(people.key("Pod", gone), {"status": {"conditions": conditions}})

    async def are_anew() -> list[Json] | None:
        pods = await people.until_pods(2)
        old = {pod["metadata"]["uid"] for pod in first}
        return None if old & {pod["metadata"]["uid"] for pod in pods} else pods

    await eventually(are_anew)
    job_set = await people.find("JobSet")
    assert (job_set["status"]["restarts"], job_set["status"].get("restartsCountTowardsMax", 0)) == (1, 0)
    assert condition(await people.status(), "Failed") is None
    await people.set_pods("Running", 2)
    await people.until_status(lambda status: status.get("restarts") == 1 and status["phase"] == "Running")

    await people.set_pods("Failed", 2, exit_code=1)
    status = await people.until_phase("Failed")
    assert condition(status, "Failed")["reason"] == "ReachedMaxRestarts"
