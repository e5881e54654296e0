"""Short ways to write runtimes and TrainJobs; every argument that is left out is absent from the object."""

from __future__ import annotations

from typing import Any

import msgspec

from trainwright.api.constants import ANCESTOR_LABEL
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.runtime import JobSetTemplate, MLPolicy, RuntimeSpec, TorchPolicy, TrainingRuntime
from trainwright.api.trainjob import (
    JobSetTemplatePatch,
    RuntimePatch,
    RuntimeRef,
    Trainer,
    TrainingRuntimeSpecPatch,
    TrainJob,
    TrainJobSpec,
)

IMAGE = "registry.example/img:1"
TORCH = MLPolicy(num_nodes=1, torch=TorchPolicy())
PLAIN = MLPolicy(num_nodes=1)


def container(name: str = "node", **fields: Any) -> Json:
    return {"name": name, "image": IMAGE, **fields}


def replicated_job(
    name: str = "node",
    *containers: Json,
    ancestor: str | None = "trainer",
    pod: Json | None = None,
    job: Json | None = None,
    **fields: Any,
) -> Json:
    """A replicated job, with one container `node` where none is given; `pod` and `job` are further fields."""
    template: Json = {
        "spec": {
            **(job or {}),
            "template": {"spec": {"containers": list(containers) or [container()], **(pod or {})}},
        }
    }
    if ancestor:
        template["metadata"] = {"labels": {ANCESTOR_LABEL: ancestor}}
    return {"name": name, "template": template, **fields}


def runtime_spec(
    *replicated_jobs: Json,
    policy: MLPolicy | None = PLAIN,
    metadata: Json | None = None,
    **fields: Any,
) -> RuntimeSpec:
    """A runtime with one trainer step where none is given; `fields` are further fields of the JobSet spec."""
    spec = {"replicatedJobs": list(replicated_jobs) or [replicated_job()], **fields}
    return RuntimeSpec(ml_policy=policy, template=job_set_template(spec, metadata))


def job_set_template(spec: Json, metadata: Json | None = None) -> JobSetTemplate:
    return msgspec.convert({"spec": spec, "metadata": metadata}, JobSetTemplate)


def runtime(spec: RuntimeSpec) -> TrainingRuntime:
    return TrainingRuntime(metadata=ObjectMeta(name="rt", namespace="ns"), spec=spec)


def train_job(
    trainer: Trainer | None = None, *, name: str = "demo", uid: str | None = "u-1", **spec: Any
) -> TrainJob:
    return TrainJob(
        metadata=ObjectMeta(name=name, namespace="ns", uid=uid),
        spec=TrainJobSpec(runtime_ref=RuntimeRef(name="rt"), trainer=trainer, **spec),
    )


def patch(
    spec: Json | None = None, metadata: Json | None = None, manager: str = "example.com/one"
) -> RuntimePatch:
    """A patch of a runtime's JobSet template, as JSON."""
    template = {
        key: value for key, value in {"metadata": metadata, "spec": spec}.items() if value is not None
    }
    return RuntimePatch(
        manager=manager,
        training_runtime_spec=TrainingRuntimeSpecPatch(
            template=msgspec.convert(template, JobSetTemplatePatch)
        ),
    )


def pod_patch(pod: Json, name: str = "node", **changes: Any) -> RuntimePatch:
    """A patch of one replicated job's pod spec."""
    return patch(
        {"replicatedJobs": [{"name": name, "template": {"spec": {"template": {"spec": pod}}}}]}, **changes
    )
