"""What must hold before anything is rendered, even for objects that admission has never seen.

A runtime is checked before its job: the errors of one object come together, with the paths of that object.
"""

from __future__ import annotations

from trainwright.api.constants import ANCESTOR_CONTAINERS, ANCESTOR_TRAINER
from trainwright.api.runtime import JobSetTemplate, Runtime
from trainwright.api.trainjob import TrainJob
from trainwright.field_errors import FieldError, Rule
from trainwright.render.errors import RenderError
from trainwright.render.initializers import get_initializer_source
from trainwright.template.patches import find_unknown_targets
from trainwright.template.shape import find_missing_containers, find_resource_errors, find_shape_errors


def check_runtime(runtime: Runtime, job: TrainJob) -> None:
    """Raise `RenderError` where the runtime's template cannot be read or lacks a container."""
    template = (runtime.spec.template if runtime.spec else None) or JobSetTemplate()
    initializer = job.spec.initializer if job.spec else None
    needed = {
        ancestor
        for ancestor in ANCESTOR_CONTAINERS
        if ancestor == ANCESTOR_TRAINER or get_initializer_source(initializer, ancestor) is not None
    }
    errors = find_shape_errors(template.spec) or find_missing_containers(template.spec, needed)
    if errors:
        raise RenderError(errors, f"{runtime.kind} {runtime.metadata.name!r}")


def check_job(job: TrainJob, runtime: Runtime) -> None:
    """Raise `RenderError` where the job cannot be read, or patches what its runtime does not have.

    Admission says more about a job; this much must hold even for one that it has not seen.
    """
    errors = []
    if not job.metadata.name:
        detail = "required: names of pods, and their addresses, are made from it"
        errors.append(FieldError(path="metadata.name", rule=Rule.REQUIRED, detail=detail))
    if job.spec is None:
        detail = "required: say which runtime, and what to run"
        errors.append(FieldError(path="spec", rule=Rule.REQUIRED, detail=detail))
    elif runtime.spec and runtime.spec.template:
        patches = job.spec.runtime_patches or ()
        unknown = find_unknown_targets(runtime.spec.template, patches)
        errors += [target.build_field_error() for target in unknown]
        resources = job.spec.trainer.resources_per_node if job.spec.trainer else None
        if resources:
            amounts = {"limits": resources.limits, "requests": resources.requests}
            errors += find_resource_errors(amounts, "spec.trainer.resourcesPerNode")
    raise_errors(errors, job)


def raise_errors(errors: list[FieldError], job: TrainJob) -> None:
    """Raise `RenderError` about the job where there are errors."""
    if errors:
        raise RenderError(errors, f"{job.kind} {job.metadata.name!r}")
