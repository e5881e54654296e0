"""Runtimes of several steps, in whose pods each container asks for something else."""

from __future__ import annotations

from typing import Any

from kube.operating import ANCESTOR, runtime
from trainwright.api.meta import Json


def build_step(name: str, ancestor: str = "", replicas: int = 1, **job: Any) -> Json:
    """A replicated job whose container asks for half a CPU and has a sidecar that asks for a quarter."""
    container = {
        "name": ancestor if ancestor.endswith("initializer") else "node",
        "image": "registry.example/a:1",
        "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}],
    }
    sidecar = {
        "name": "proxy",
        "image": "registry.example/b:1",
        "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "250m"}},
    }
    pod = {
        "restartPolicy": "Never",
        "initContainers": [sidecar],
        "containers": [container],
        "volumes": [{"name": "initializer", "emptyDir": {}}],
    }
    labels = {"metadata": {"labels": {ANCESTOR: ancestor}}} if ancestor else {}
    spec = {"backoffLimit": 0, **job, "template": {"spec": pod}}
    return {"name": name, "replicas": replicas, "template": {**labels, "spec": spec}}


def build_runtime(*steps: Json, **policy: Any) -> Json:
    plain = runtime("made")
    spec = {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": list(steps)}}}
    return {**plain, "spec": spec if policy else {"template": spec["template"]}}


def after(step: Json, *names: str) -> Json:
    """The step, once the named ones are complete."""
    return {**step, "dependsOn": [{"name": name, "status": "Complete"} for name in names]}
