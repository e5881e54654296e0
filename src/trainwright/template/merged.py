"""The runtime's template as this TrainJob has it: patches laid over, resources merged in.

The steps C and D of spec 01 section 5.2. Everything that reads the template afterwards, for admission as for
rendering, reads this one.
"""

from __future__ import annotations

from trainwright.api.constants import NODE
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import JobSetTemplate, RuntimeSpec
from trainwright.api.trainjob import TrainJob
from trainwright.template.patches import apply_patches
from trainwright.template.replicated_jobs import list_replicated_jobs
from trainwright.template.resources import merge_resources
from trainwright.template.rewrite import rewrite_containers
from trainwright.template.steps import list_steps


def build_merged_template(runtime_spec: RuntimeSpec, job: TrainJob) -> JobSetTemplate:
    """Return the template with the job's patches and `trainer.resourcesPerNode` merged in.

    Resources go to the container `node` of every step that trains (`template.steps`), whether or not the
    runtime has an ML policy.
    """
    template = runtime_spec.template or JobSetTemplate()
    if job.spec is None:
        return template
    patched = apply_patches(template, job.spec.runtime_patches or ())
    resources = job.spec.trainer.resources_per_node if job.spec.trainer else None
    if resources is None or patched.spec is None:
        return patched
    steps = list_steps(patched.spec, runtime_spec.ml_policy)
    replicated_jobs = [
        _merge_into_trainer(replicated_job, resources) if step.uses_resources else replicated_job
        for replicated_job, step in zip(list_replicated_jobs(patched.spec), steps, strict=True)
    ]
    return JobSetTemplate(metadata=patched.metadata, spec={**patched.spec, "replicatedJobs": replicated_jobs})


def _merge_into_trainer(replicated_job: Json, resources: ResourceRequirements) -> Json:
    def merge_into(container: Json) -> Json:
        merged = merge_resources(container.get("resources") or {}, resources)
        return {**container, "resources": merged} if merged else container

    return rewrite_containers(replicated_job, {NODE: merge_into})
