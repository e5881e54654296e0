"""The runtime's template as this TrainJob has it: labels passed on, patches laid over, resources merged in.

The steps C and D of spec 01 section 5.2; labels by spec 02 section 3.1. Everything that reads the template
afterwards, for admission as for rendering, reads this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trainwright.api.constants import NODE
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import JobSetMetadata, JobSetTemplate, RuntimeSpec
from trainwright.api.trainjob import TrainJob
from trainwright.template.patches import apply_patches
from trainwright.template.replicated_jobs import get_part, list_replicated_jobs
from trainwright.template.resources import merge_resources
from trainwright.template.rewrite import rewrite_containers, rewrite_pod_template
from trainwright.template.steps import list_steps


def build_merged_template(runtime_spec: RuntimeSpec, job: TrainJob) -> JobSetTemplate:
    """Return the template with the job's labels, patches and `trainer.resourcesPerNode` merged in.

    Labels that the runtime lets pass win over its own, and patches over both. Resources go to the container
    `node` of every step that trains (`template.steps`), whether or not the runtime has an ML policy.
    """
    template = runtime_spec.template or JobSetTemplate()
    if job.spec is None:
        return template
    labels = pick_labels(job.metadata.labels or {}, runtime_spec.propagated_labels or ())
    patched = apply_patches(_add_labels(template, labels), job.spec.runtime_patches or ())
    resources = job.spec.trainer.resources_per_node if job.spec.trainer else None
    if resources is None or patched.spec is None:
        return patched
    steps = list_steps(patched.spec, runtime_spec.ml_policy)
    replicated_jobs = [
        _merge_into_trainer(replicated_job, resources) if step.uses_resources else replicated_job
        for replicated_job, step in zip(list_replicated_jobs(patched.spec), steps, strict=True)
    ]
    return JobSetTemplate(metadata=patched.metadata, spec={**patched.spec, "replicatedJobs": replicated_jobs})


def pick_labels(labels: Mapping[str, str], patterns: Sequence[str]) -> dict[str, str]:
    """Return the labels whose key is one of the patterns, or begins with one that ends with a slash."""
    keys, prefixes = set(patterns), tuple(pattern for pattern in patterns if pattern.endswith("/"))
    return {key: value for key, value in labels.items() if key in keys or key.startswith(prefixes)}


def _add_labels(template: JobSetTemplate, labels: Mapping[str, str]) -> JobSetTemplate:
    """Return the template with the labels on the JobSet and on all of its pods."""
    if not labels or template.spec is None:
        return template

    def label(pod: Json) -> Json:
        metadata = get_part(pod, "metadata")
        return {**pod, "metadata": {**metadata, "labels": {**get_part(metadata, "labels"), **labels}}}

    metadata = template.metadata or JobSetMetadata()
    return JobSetTemplate(
        metadata=msgspec.structs.replace(metadata, labels={**(metadata.labels or {}), **labels}),
        spec={
            **template.spec,
            "replicatedJobs": [
                rewrite_pod_template(replicated_job, label)
                for replicated_job in list_replicated_jobs(template.spec)
            ],
        },
    )


def _merge_into_trainer(replicated_job: Json, resources: ResourceRequirements) -> Json:
    def merge_into(container: Json) -> Json:
        merged = merge_resources(container.get("resources") or {}, resources)
        return {**container, "resources": merged} if merged else container

    return rewrite_containers(replicated_job, {NODE: merge_into})
