"""Shipped runtimes in a store: whoever works on a job reads its runtime there, as on a cluster.

A shipped runtime is put into the store when the first job needs it, marked by an annotation. What is marked
is the program's and not the user's: it follows the program when that is updated, and gives way to a runtime
of the same name that a user installs.
"""

from __future__ import annotations

from typing import Final

from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json
from trainwright.api.trainjob import TrainJob
from trainwright.cli.job_rows import build_runtime_key
from trainwright.cluster.port import Cluster
from trainwright.errors import NotFound
from trainwright.runtimes import load_shipped_runtimes

SHIPPED_ANNOTATION: Final = "trainer.kubeflow.org/shipped"
_FIELD_MANAGER: Final = "trainwright-shipped"


def is_shipped(runtime: Json) -> bool:
    """Say whether a stored runtime was put there by the program."""
    return SHIPPED_ANNOTATION in (runtime["metadata"].get("annotations") or {})


async def provide_runtime(cluster: Cluster, train_job: TrainJob) -> None:
    """Put the runtime that the job names into the store, if it is a shipped one and the user has none."""
    key = build_runtime_key(train_job)
    if key.kind != CLUSTER_TRAINING_RUNTIME:
        return
    try:
        if not is_shipped(await cluster.get(key)):
            return
    except NotFound:
        pass
    runtime = load_shipped_runtimes().get(key.name)
    if runtime is not None:
        body = build_object(runtime)
        annotations = {**(body["metadata"].get("annotations") or {}), SHIPPED_ANNOTATION: "true"}
        body["metadata"] = {**body["metadata"], "annotations": annotations}
        await cluster.apply(body, _FIELD_MANAGER)
