"""Runtimes with gang policies, and TrainJobs whose simulated pods need a device that few nodes have."""

from __future__ import annotations

from typing import Any

from kube.kwok import EXIT_CODE, RUNS_FOR
from kube.operating import ANCESTOR, API_VERSION, People
from trainwright.api.meta import Json

COSCHEDULING = "coscheduling"  # the scheduler of that plugin
IMAGE = "registry.example/train:1"
PATIENCE_SECONDS = 120.0


def step(name: str, *, ends: bool = True, ancestor: str | None = None, **fields: Any) -> Json:
    """A replicated job whose pods run for a second, or until they are deleted."""
    container = "node" if ancestor == "trainer" else (ancestor or "main")
    annotations = {EXIT_CODE: "0", RUNS_FOR: "1s"} if ends else {}
    pod = {"restartPolicy": "Never", "containers": [{"name": container, "image": IMAGE}]}
    template: Json = {
        "spec": {
            "backoffLimit": 0,
            "template": {"metadata": {"annotations": annotations}, "spec": {**pod, **fields.pop("pod", {})}},
        }
    }
    if ancestor:
        template["metadata"] = {"labels": {ANCESTOR: ancestor}}
    return {"name": name, "template": template, **fields}


def gang_runtime(policy: Json | None, *steps: Json, name: str = "gang", **template: Any) -> Json:
    """A runtime with this gang policy, and a step that trains where none is given."""
    spec: Json = {
        "mlPolicy": {"numNodes": 1},
        "template": {
            "spec": {"replicatedJobs": list(steps) or [step("node", ancestor="trainer")], **template}
        },
    }
    if policy is not None:
        spec["podGroupPolicy"] = policy
    return {"apiVersion": API_VERSION, "kind": "TrainingRuntime", "metadata": {"name": name}, "spec": spec}


def needing(device: str) -> Json:
    """What each node of a TrainJob asks for: one device."""
    return {"requests": {device: "1"}, "limits": {device: "1"}}


async def count_placed(people: People, job: str) -> int:
    """Return how many pods of a TrainJob have a node."""
    labels = {"jobset.sigs.k8s.io/jobset-name": job}
    pods = (await people.cluster.list("Pod", people.namespace, labels)).items
    return sum("nodeName" in pod["spec"] for pod in pods)
