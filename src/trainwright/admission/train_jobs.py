"""Rules of TrainJobs: what an object may say by itself, over its runtime, and compared with what it was.

Pure: the runtime, the JobSet and the old object are given. On an update the caller gives the runtime as the
job began with it, so that a job stays editable however its runtime changed. Source: spec 01 section 2.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from trainwright.admission.derived_names import find_name_error
from trainwright.admission.job_set_rules import (
    find_count_errors,
    find_job_set_errors,
    find_unmounted_claims,
)
from trainwright.admission.node_resources import find_node_resource_errors
from trainwright.admission.runtimes import JOB_SET_PATH, list_deprecation
from trainwright.admission.train_job_initializers import find_initializer_errors
from trainwright.admission.train_job_patches import find_patch_errors, find_target_errors, list_mount_warnings
from trainwright.admission.train_job_updates import (
    find_immutable_changes,
    find_untimely_changes,
    has_relevant_change,
)
from trainwright.admission.verdict import Verdict, forget_repeated, refuse
from trainwright.api.constants import ANCESTOR_TRAINER, CLUSTER_TRAINING_RUNTIME, GROUP, TRAINING_RUNTIME
from trainwright.api.encoding import build_object
from trainwright.api.jobset import JobSet
from trainwright.api.names import explain_strict_label
from trainwright.api.runtime import JobSetTemplate, Runtime, RuntimeSpec
from trainwright.api.schema import check_object
from trainwright.api.shapes import Findings
from trainwright.api.trainjob import RuntimeRef, TrainJob, TrainJobSpec
from trainwright.api.wording import suggest
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks import FRAMEWORKS, Framework, list_framework_warnings, validate_frameworks
from trainwright.gang import find_gang_errors, list_gang_warnings
from trainwright.template.layout import JobLayout, build_layout
from trainwright.template.shape import find_missing_containers, find_shape_errors

_KINDS: Final = (CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME)
_SHOWN_ERRORS: Final = 10  # of a runtime that cannot be used; its author sees them all
_GENERATED_SUFFIX: Final = "xxxxx"  # what an API server adds to `generateName`


def validate_train_job(
    job: TrainJob,
    runtime: Runtime | None,
    old: TrainJob | None = None,
    job_set: JobSet | None = None,
    known_runtimes: Sequence[str] = (),
    *,
    frameworks: Sequence[Framework] = FRAMEWORKS,
) -> Verdict:
    """Return everything that is wrong with a TrainJob that has its defaults, and what to warn about.

    `runtime` is the one that `runtimeRef` names, None where there is none; on an update, `old` is the stored
    object, `runtime` the runtime as the job began with it, and `job_set` the job's JobSet. `known_runtimes`
    are named to whoever asks for one that does not exist. `frameworks` are those that there are.
    """
    invalid, is_readable = _check_schema(job)
    if not is_readable:  # what follows relies on the shape of what it reads
        return Verdict(invalid=tuple(invalid))
    if job.spec is None:
        detail = "required; name the runtime: spec: {runtimeRef: {name: ...}}"
        return Verdict(invalid=tuple(invalid), denied=(refuse("spec.runtimeRef", Rule.REQUIRED, detail),))
    denied: list[FieldError] = []
    warnings: list[str] = []
    if job.metadata.deletion_timestamp is None:
        reference_errors = list(_check_runtime_ref(job.spec.runtime_ref))
        denied += reference_errors
        stored = (old.spec.runtime_patches if old and old.spec else None) or ()
        denied += find_patch_errors(job.spec.runtime_patches or (), stored)
        warnings += _list_own_warnings(job.spec)
        if runtime is not None:
            name = f'Referenced {runtime.kind} "{runtime.metadata.name}"'
            warnings += list_deprecation(runtime, name)
        is_relevant = old is None or old.spec is None or has_relevant_change(job.spec, old.spec)
        if is_relevant and not reference_errors:
            over = _check_over_runtime(job, runtime, old, known_runtimes, frameworks)
            denied += over.denied
            warnings += over.warnings
        if old is not None and old.spec is not None:
            invalid += find_immutable_changes(job.spec, old.spec)
            denied += find_untimely_changes(job, old, job_set)
    return Verdict(invalid=forget_repeated(invalid), denied=forget_repeated(denied), warnings=tuple(warnings))


def _check_schema(job: TrainJob) -> tuple[list[FieldError], bool]:
    """Return what the schema forbids, and whether the object can be read further."""
    findings = Findings()
    check_object(TrainJob, build_object(job), findings)
    errors = list(findings.errors)
    name = job.metadata.name
    if not name and not job.metadata.generate_name:
        errors.append(refuse("metadata.name", Rule.REQUIRED, "required; give the TrainJob a name"))
    elif problem := explain_strict_label(_get_name(job)):
        errors.append(refuse("metadata.name", Rule.INVALID, problem, name))
    return errors, not findings.errors


def _get_name(job: TrainJob) -> str:
    """Return the name of the job, or one as long as what the server will make of `generateName`."""
    return job.metadata.name or f"{job.metadata.generate_name or ''}{_GENERATED_SUFFIX}"


def _check_runtime_ref(ref: RuntimeRef) -> Iterator[FieldError]:
    if ref.api_group not in (None, GROUP):
        detail = f"{ref.api_group!r} has no runtimes that can be used here; leave it out, or write {GROUP}"
        yield refuse("spec.runtimeRef.apiGroup", Rule.NOT_SUPPORTED, detail, ref.api_group)
    if ref.kind is not None and ref.kind not in _KINDS:
        detail = f"{ref.kind!r} is no kind of runtime; use {' or '.join(_KINDS)}{suggest(ref.kind, _KINDS)}"
        yield refuse("spec.runtimeRef.kind", Rule.NOT_SUPPORTED, detail, ref.kind)


def _list_own_warnings(spec: TrainJobSpec) -> Iterator[str]:
    if spec.trainer and spec.trainer.num_nodes == 0:
        yield (
            "spec.trainer.numNodes is 0: only initializers and other steps run, no training node; "
            "leave it out for the runtime's own number"
        )


# -- over the runtime --------------------------------------------------------------------------------------


def _check_over_runtime(
    job: TrainJob,
    runtime: Runtime | None,
    old: TrainJob | None,
    known_runtimes: Sequence[str],
    frameworks: Sequence[Framework],
) -> Verdict:
    """Return what the job cannot be over this runtime."""
    assert job.spec is not None  # noqa: S101 (narrows the type)
    ref = job.spec.runtime_ref
    kind = ref.kind or CLUSTER_TRAINING_RUNTIME
    if runtime is None and old is not None:
        # The job began, or waits, with a runtime that is gone. Refusing would keep it from being suspended.
        return Verdict(warnings=(f"{kind} {ref.name!r} is gone; the change was not checked against it",))
    if runtime is None:
        return Verdict(denied=(_build_missing_runtime_error(ref, kind, known_runtimes),))
    if broken := _find_broken_runtime(runtime):
        return Verdict(denied=(broken,))
    spec = runtime.spec or RuntimeSpec()
    template = spec.template or JobSetTemplate()
    patches = job.spec.runtime_patches or ()
    named = job if job.metadata.name else _with_name(job)
    layout = build_layout(named, spec)
    denied = [
        *_check_trainer_target(job.spec, layout, runtime),
        *find_initializer_errors(job.spec.initializer, layout, runtime),
        *find_target_errors(template, patches),
        *find_node_resource_errors(layout),
        *validate_frameworks(layout, frameworks),
        *find_gang_errors(spec.pod_group_policy, layout.template.metadata, patches),
        *_move_to_reference(_find_job_set_errors(layout), runtime),
    ]
    if name_error := find_name_error(_get_name(job), layout.template.spec or {}, layout.pod_sets):
        denied.append(name_error)
    trainer = layout.trainer_pod_set.name if layout.trainer_pod_set else None
    warnings = [
        *list_framework_warnings(layout, frameworks),
        *list_gang_warnings(spec.pod_group_policy, layout.template.spec or {}, trainer),
        *list_mount_warnings(layout, patches),
    ]
    return Verdict(denied=tuple(denied), warnings=tuple(warnings))


def _find_job_set_errors(layout: JobLayout) -> list[FieldError]:
    spec = layout.template.spec or {}
    return [
        *find_job_set_errors(spec, JOB_SET_PATH),
        *find_count_errors(spec, layout.pod_sets, JOB_SET_PATH),
        *find_unmounted_claims(spec, JOB_SET_PATH),
    ]


def _with_name(job: TrainJob) -> TrainJob:
    metadata = msgspec.structs.replace(job.metadata, name=_get_name(job))
    return msgspec.structs.replace(job, metadata=metadata)


def _build_missing_runtime_error(ref: RuntimeRef, kind: str, known: Sequence[str]) -> FieldError:
    if known:
        remedy = f"known are {', '.join(sorted(known))}{suggest(ref.name, known)}"
    else:
        remedy = "make it before the TrainJob"
    if ref.kind is None or ref.kind == CLUSTER_TRAINING_RUNTIME:
        remedy += f" (for one of the job's own namespace, set spec.runtimeRef.kind: {TRAINING_RUNTIME})"
    detail = f"{kind} {ref.name!r} does not exist; {remedy}"
    return refuse("spec.runtimeRef", Rule.NOT_FOUND, detail, ref.name)


def _find_broken_runtime(runtime: Runtime) -> FieldError | None:
    """Return one error where the runtime is no such object as its own admission would let in."""
    template = runtime.spec.template if runtime.spec else None
    spec = template.spec if template else None
    errors = find_shape_errors(spec, JOB_SET_PATH) or find_missing_containers(
        spec, (ANCESTOR_TRAINER,), JOB_SET_PATH
    )
    if not errors:
        return None
    problems = [str(error) for error in errors[:_SHOWN_ERRORS]]
    if len(errors) > _SHOWN_ERRORS:
        problems.append(f"and {len(errors) - _SHOWN_ERRORS} more")
    detail = f"{runtime.kind} {runtime.metadata.name!r} cannot be used: {'; '.join(problems)}"
    return refuse("spec.runtimeRef", Rule.INVALID, detail, runtime.metadata.name)


def _check_trainer_target(spec: TrainJobSpec, layout: JobLayout, runtime: Runtime) -> Iterator[FieldError]:
    if spec.trainer is not None and layout.trainer_pod_set is None:
        subject = f"{runtime.kind} {runtime.metadata.name!r}"
        detail = f"{subject} has no trainer step, so this has no effect; remove it, or use another runtime"
        yield refuse("spec.trainer", Rule.FORBIDDEN, detail)


def _move_to_reference(errors: list[FieldError], runtime: Runtime) -> Iterator[FieldError]:
    """Yield errors of the runtime as errors of whoever refers to it."""
    for error in errors:
        detail = f"{runtime.kind} {runtime.metadata.name!r}: {error.path}: {error.detail}"
        yield refuse("spec.runtimeRef", error.rule, detail, error.value)
