"""Gang schedulers that a cluster does not have: the cause names them, and the job goes on when they come."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from kube.control_plane import ControlPlane
from kube.gang_tests.jobs import gang_runtime, step
from kube.operating import People, condition, operating, train_job
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import Connection

QUEUE = "scheduling.volcano.sh/queue-name"
VOLCANO_TYPES = "volcano.sh/apis/pkg/apis/scheduling/v1beta1"


def build_volcano_crds(plane: ControlPlane) -> list[dict[str, Any]]:
    """Return Volcano's CRDs, made of its Go types as Volcano makes them."""
    generated = subprocess.run(
        [plane.programs / "controller-gen", "crd", f"paths={VOLCANO_TYPES}", "output:stdout"],
        cwd=Path(__file__).parents[1] / "programs/controller-gen",
        check=True,
        capture_output=True,
    )
    return [document for document in yaml.safe_load_all(generated.stdout) if document]


async def test_a_job_waits_for_volcano_to_be_installed_and_says_so(
    people: People, operator_connection: Connection, control_plane: ControlPlane
) -> None:
    """1. Volcano is not there: nothing is made, and the status says what is missing. 2. Its CRDs are
    installed, and nothing else happens: the job goes on. 3. The PodGroup is stored as it was applied:
    Volcano's schema knows all of it."""
    topology = {"networkTopology": {"mode": "soft", "highestTierAllowed": 2}}
    node = step("node", ancestor="trainer", pod={"priorityClassName": "system-node-critical"})
    await people.create(gang_runtime({"volcano": topology}, node))
    patch: Json = {
        "manager": "example.com/test",
        "trainingRuntimeSpec": {"template": {"metadata": {"annotations": {QUEUE: "research"}}}},
    }
    resources = {"requests": {"cpu": "1"}}
    async with operating(operator_connection, people.namespace):
        await people.create(
            train_job(
                runtime="gang",
                trainer={"numNodes": 3, "resourcesPerNode": resources},
                runtimePatches=[patch],
            )
        )
        status = await people.until_status(lambda status: condition(status, "ResourcesCreated"))
        refused = condition(status, "ResourcesCreated")
        assert (refused["status"], refused["reason"]) == ("False", "VolcanoNotInstalled")
        assert "PodGroup of scheduling.volcano.sh/v1beta1 is not known here" in refused["message"]
        assert status["cause"]["reason"] == "VolcanoNotInstalled"
        assert status["cause"]["hint"].startswith("install Volcano")
        assert await people.find("JobSet") is None

        control_plane.install_crds(build_volcano_crds(control_plane))
        group = await people.until_found("PodGroup.scheduling.volcano.sh")
        await people.until_status(lambda status: not condition(status, "ResourcesCreated"))
        pods = await people.until_pods(3)
    assert group["spec"] == {
        "minMember": 3,
        "minResources": {"cpu": "3"},
        "networkTopology": {"mode": "soft", "highestTierAllowed": 2},
        "priorityClassName": "system-node-critical",
        "queue": "research",
    }
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"volcano"}
    assert {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in pods} == {"demo"}


async def test_a_version_that_kubernetes_does_not_serve_is_named(
    people: People, operator_connection: Connection
) -> None:
    await people.create(gang_runtime({"native": {"version": "v1alpha3"}}))
    async with operating(operator_connection, people.namespace):
        await people.create(train_job(runtime="gang"))
        status = await people.until_status(lambda status: condition(status, "ResourcesCreated"))
    assert status["cause"]["reason"] == "NativeGangsNotServed"
    assert "PodGroup of scheduling.k8s.io/v1alpha3 is not known here" in status["cause"]["message"]
