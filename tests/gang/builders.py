"""Jobs whose runtime has a gang policy, and the parts of what they become that are about the gang."""

from __future__ import annotations

from typing import Any

import msgspec

from template.builders import PLAIN, job_set_template, runtime, train_job
from trainwright.api.meta import Json
from trainwright.api.runtime import MLPolicy, PodGroupPolicy, RuntimeSpec
from trainwright.api.trainjob import Trainer
from trainwright.render import render
from trainwright.template.replicated_jobs import get_part, list_replicated_jobs

OWNER: Json = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "name": "demo",
    "uid": "u-1",
    "controller": True,
    "blockOwnerDeletion": True,
}


def policy(**fields: Any) -> PodGroupPolicy:
    """A policy, as JSON."""
    return msgspec.convert(fields, PodGroupPolicy)


def gang_spec(
    gang: PodGroupPolicy | None,
    *replicated_jobs: Json,
    metadata: Json | None = None,
    ml_policy: MLPolicy | None = PLAIN,
    **fields: Any,
) -> RuntimeSpec:
    """A runtime with this gang policy; `fields` are further fields of the JobSet spec."""
    template = job_set_template({"replicatedJobs": list(replicated_jobs), **fields}, metadata)
    return RuntimeSpec(ml_policy=ml_policy, pod_group_policy=gang, template=template)


def render_gang(spec: RuntimeSpec, trainer: Trainer | None = None, **job: Any) -> tuple[list[Json], Json]:
    """Return the objects beside the JobSet, and the JobSet."""
    *others, job_set = render(train_job(trainer, **job), runtime(spec))
    return others, job_set


def build_pod_group(api_version: str, spec: Json, name: str = "demo") -> Json:
    """The PodGroup of the TrainJob `demo`."""
    metadata = {"name": name, "namespace": "ns", "ownerReferences": [OWNER]}
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def list_marks(job_set: Json) -> dict[str, Json]:
    """Return what tells the pods of each replicated job to a scheduler: metadata, and fields of the pod."""
    marks = {}
    for replicated_job in list_replicated_jobs(job_set["spec"]):
        pod = get_part(replicated_job, "template", "spec", "template")
        fields = {
            name: pod["spec"][name] for name in ("schedulerName", "schedulingGroup") if name in pod["spec"]
        }
        marks[replicated_job["name"]] = {**pod.get("metadata", {}), **fields}
    return marks
