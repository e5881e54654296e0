"""Short ways to write what `decide` sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from control.world import JOB
from template.builders import container, replicated_job, runtime_spec
from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.runtime import ClusterTrainingRuntime, RuntimeSpec, TrainingRuntime
from trainwright.api.trainjob import RuntimeRef, Trainer, TrainJob, TrainJobSpec

QUEUE_LABELS = {"kueue.x-k8s.io/queue-name": "team-a"}


def train_job(
    *,
    num_nodes: int | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    runtime: str = "rt",
    kind: str = TRAINING_RUNTIME,
    **spec: Any,
) -> TrainJob:
    """A TrainJob `demo`; `spec` are further fields of its spec."""
    trainer = {"trainer": Trainer(num_nodes=num_nodes)} if num_nodes else {}
    return TrainJob(
        metadata=ObjectMeta(
            name=JOB, namespace="ns", uid="uid-job", generation=1, labels=labels, annotations=annotations
        ),
        spec=TrainJobSpec(runtime_ref=RuntimeRef(name=runtime, kind=kind), **{**trainer, **spec}),
    )


def runtime(*replicated_jobs: Json, ttl: int | None = None, **fields: Any) -> TrainingRuntime:
    """A TrainingRuntime `rt` with one trainer step whose pods do not restart."""
    spec = runtime_spec(*(replicated_jobs or (step(),)), **fields)
    spec = RuntimeSpec(ml_policy=spec.ml_policy, template=spec.template, ttl_seconds_after_finished=ttl)
    return TrainingRuntime(
        metadata=ObjectMeta(name="rt", namespace="ns", uid="uid-rt", generation=3), spec=spec
    )


def cluster_runtime(*replicated_jobs: Json) -> ClusterTrainingRuntime:
    """A ClusterTrainingRuntime `rt`."""
    return ClusterTrainingRuntime(
        metadata=ObjectMeta(name="rt", uid="uid-crt", generation=2),
        spec=runtime_spec(*(replicated_jobs or (step(),))),
    )


def step(
    name: str = "node",
    *,
    ancestor: str | None = "trainer",
    image: str = "registry.example/img:1",
    pod: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Json:
    """A replicated job that never restarts its pods."""
    name_of_container = ancestor if ancestor and ancestor != "trainer" else "node"
    return replicated_job(
        name,
        container(name_of_container, image=image),
        ancestor=ancestor,
        pod={"restartPolicy": "Never", **(pod or {})},
        job={"backoffLimit": 0},
        **fields,
    )


RUNTIME_KINDS = (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME)
