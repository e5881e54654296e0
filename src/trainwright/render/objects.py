"""TrainJob + runtime -> the objects to apply (spec 01 section 5.2, spec 02 sections 2 and 3).

    check         template and job can be read, patches meet what is there, frameworks agree
    layout        patches and resources merged, pods counted          template.layout
    frameworks    what the pods need to find each other               frameworks
    progress      where they report, if the operator takes reports    render.progress
    per step      contributions -> initializer -> trainer -> commands -> counts -> amounts
    gang          which pods are placed together                      gang
    JobSet        metadata, suspend, owner, hash; in canonical form

Every step builds a new value from the one before; nothing that comes in is changed, and what goes out
shares no map or list with it. Why it is so, and what differs from the peer: docs/design/render.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainwright.api.constants import JOB_SET, JOBSET_API_VERSION, TEMPLATE_HASH_ANNOTATION
from trainwright.api.encoding import build_json
from trainwright.api.meta import Json
from trainwright.api.runtime import Runtime, RuntimeSpec
from trainwright.api.trainjob import TrainJob
from trainwright.frameworks import FRAMEWORKS, Contribution, Framework, select_frameworks, validate_frameworks
from trainwright.gang import find_gang_errors
from trainwright.render.amounts import set_amounts
from trainwright.render.beside import list_objects, own
from trainwright.render.canonical import canonicalize
from trainwright.render.checks import check_job, check_runtime, raise_errors
from trainwright.render.contributions import add_contribution, set_commands
from trainwright.render.counts import set_counts
from trainwright.render.dependencies import add_dependencies, order_by_dependency
from trainwright.render.filled import fill_lists
from trainwright.render.gang import join_gang
from trainwright.render.initializers import set_initializer
from trainwright.render.progress import ProgressServer, build_authority, build_progress_contribution
from trainwright.render.template_hash import build_template_hash
from trainwright.render.trainer import set_trainer
from trainwright.template.layout import JobLayout, build_layout
from trainwright.template.replicated_jobs import list_replicated_jobs


def render(
    job: TrainJob,
    runtime: Runtime,
    *,
    frameworks: Sequence[Framework] = FRAMEWORKS,
    progress: ProgressServer | None = None,
) -> list[Json]:
    """Return the objects that the job becomes, in the order in which to apply them: the JobSet is the last.

    A job without a uid, which no cluster has seen yet, gives objects without an owner. `progress` is where
    its pods report, None where nobody takes reports. Raises `RenderError`.
    """
    check_runtime(runtime, job)
    check_job(job, runtime)
    runtime_spec = runtime.spec or RuntimeSpec()
    layout = build_layout(job, runtime_spec)
    patches = (job.spec.runtime_patches if job.spec else None) or ()
    gang_errors = find_gang_errors(runtime_spec.pod_group_policy, layout.template.metadata, patches)
    raise_errors([*validate_frameworks(layout, frameworks), *gang_errors], job)
    contributions = [
        framework.build_contribution(layout) for framework in select_frameworks(layout.policy, frameworks)
    ]
    if progress is not None:
        contributions.append(build_progress_contribution(job, layout, progress))
    spec = canonicalize(_build_job_set_spec(job, layout, contributions))
    gang = join_gang(runtime_spec.pod_group_policy, layout, spec)
    beside = [*(obj for contribution in contributions for obj in list_objects(contribution)), *gang.objects]
    job_set = _build_job_set(layout, gang.spec, gang.annotations)
    return [canonicalize(own(obj, job)) for obj in (*beside, job_set)]


def render_job_set(job: TrainJob, runtime: Runtime) -> Json:
    """Return the JobSet that the job becomes. Raises `RenderError`."""
    return render(job, runtime)[-1]


def render_authority(job: TrainJob, pem: str) -> Json:
    """Return the ConfigMap with which the job's pods trust the progress server, as `render` makes it."""
    return canonicalize(own(build_authority(job, pem), job))  # type: ignore[no-any-return]


def _build_job_set(layout: JobLayout, spec: Json, gang_annotations: Mapping[str, str]) -> Json:
    metadata = build_json(layout.template.metadata) if layout.template.metadata else {}
    annotations = {
        **(metadata.get("annotations") or {}),
        **gang_annotations,
        TEMPLATE_HASH_ANNOTATION: build_template_hash(spec),
    }
    return {
        "apiVersion": JOBSET_API_VERSION,
        "kind": JOB_SET,
        "metadata": {**metadata, "annotations": annotations, "name": layout.job_name},
        "spec": spec,
    }


def _build_job_set_spec(job: TrainJob, layout: JobLayout, contributions: Sequence[Contribution]) -> Json:
    template = layout.template.spec or {}
    replicated_jobs = [
        _build_replicated_job(replicated_job, i, job, layout, contributions)
        for i, replicated_job in enumerate(list_replicated_jobs(template))
    ]
    suspend = job.spec.suspend if job.spec else None  # absent stays absent, whatever the template says
    ordered = order_by_dependency(replicated_jobs)
    return {**fill_lists(template), "replicatedJobs": ordered, "suspend": suspend}


def _build_replicated_job(
    replicated_job: Json,
    index: int,
    job: TrainJob,
    layout: JobLayout,
    contributions: Sequence[Contribution],
) -> Json:
    for contribution in contributions:
        replicated_job = add_dependencies(add_contribution(replicated_job, contribution), contribution)
    replicated_job = set_initializer(replicated_job, job.spec.initializer if job.spec else None)
    replicated_job = set_trainer(replicated_job, layout.trainer, layout.steps[index])
    for contribution in contributions:
        replicated_job = set_commands(replicated_job, contribution)
    return set_amounts(set_counts(replicated_job, layout.pod_sets[index]))
