"""From where a job is to where it should be: what is done to its JobSet, for a job that has not ended.

    suspended, never run       nothing but the shared snapshot
    running, no JobSet         the JobSet is made from the snapshot
    suspended, JobSet runs     `spec.suspend` is patched, one field
    suspended, pods are gone   directives that were taken back are applied; then unfinished child Jobs are
                               deleted once (renewal), finished ones stay
    resumed                    after that: applied, or made anew where it differs in what is immutable

Each step looks only at what is seen, so doing a step again, or in another order, changes nothing. Where
the next step has to wait for the world, the plan says what it waits for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec

from trainwright.api.batch import Job
from trainwright.api.constants import (
    CLUSTER_TRAINING_RUNTIME,
    GROUP,
    JOB_SET,
    TEMPLATE_HASH_ANNOTATION,
    TRAIN_JOB,
    TRAINING_RUNTIME,
)
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json, ObjectKey, ObjectMeta
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob, TrainJobSpec
from trainwright.control.actions import Action, Apply, Delete, Patch
from trainwright.control.children import build_write
from trainwright.control.directives import are_applied, are_only_added, build_marked, is_clean
from trainwright.control.gang import build_gang_deletion
from trainwright.control.problem import (
    AUTHORITY_UNKNOWN,
    CLAIMS_WOULD_BE_DELETED,
    NAME_TAKEN,
    OWN_REASONS,
    RENDER_FAILED,
    RESOURCES_CREATED,
    SNAPSHOT_LOST,
    SNAPSHOT_UNUSABLE,
    Problem,
    build_missing_runtime_problem,
)
from trainwright.control.snapshot import build_snapshot, hash_runtime
from trainwright.control.view import (
    View,
    describe_owner,
    find_place,
    is_job_finished,
    is_of_current_attempt,
)
from trainwright.render import AuthorityUnknown, RenderError, may_keep

# On a JobSet: the generation at which its unfinished Jobs were deleted, `7`, or how often then, `7.2`. It is
# raised by suspending, so the value names one suspension; clean Jobs that JobSet makes again afterwards are
# left alone. (A Job itself does not tell: since Kubernetes 1.35 its startTime is cleared when it is
# suspended.)
RENEWED_ANNOTATION: Final = "trainer.kubeflow.org/jobs-renewed-at-generation"
# Where somebody adds to every Job that is made, making it once more does not help.
MOST_RENEWALS: Final = 4

Render = Callable[[TrainJob, Runtime], list[Json]]


class RenderChoice(msgspec.Struct, frozen=True):
    """A render, and others that a suspended JobSet may have been made with.

    A setting of the operator (a feature gate) changes what jobs become. A JobSet that waits is resumed as it
    was made: the setting is for those that are made after it.
    """

    render: Render
    others: tuple[Render, ...] = ()

    def __call__(self, job: TrainJob, runtime: Runtime) -> list[Json]:
        """Return what a job becomes that has no JobSet."""
        return self.render(job, runtime)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about the children.

    `first` is done before the status is written, `then` after it: what a later pass must remember (which
    runtime, since when the job runs) is written before the JobSet is. `runtime` is the runtime that the job
    is made from, None where it is not known. `wait` is what has to go away before the next step.
    """

    first: tuple[Action, ...] = ()
    then: tuple[Action, ...] = ()
    runtime: Runtime | None = None
    problem: Problem | None = None
    wait: Problem | None = None

    @property
    def has_actions(self) -> bool:
        """Whether anything is to be written about the children."""
        return bool(self.first or self.then)


def plan_children(view: View, render: Render) -> Plan:
    """Return what to do now so that the children become what the job, its runtime and `suspend` ask for."""
    runtime, problem = _choose_runtime(view)
    snapshot: tuple[Action, ...] = ()
    if runtime is not None and view.seen.snapshot is not runtime:
        snapshot = (Apply(object=build_snapshot(runtime, view.job.metadata.namespace or "")),)
    if view.foreign_job_set is not None:
        return Plan(first=snapshot, runtime=runtime, problem=_build_name_taken(view.foreign_job_set))
    if view.is_suspended:
        if view.job_set is None or view.job_set.metadata.deletion_timestamp is not None:
            return Plan(first=snapshot, runtime=runtime, problem=problem if view.job_set is None else None)
        return _plan_suspended(view, view.job_set, runtime, render, snapshot)
    if view.job_set is not None and not view.job_set.spec.suspend:
        return _plan_running(view.job_set, runtime, snapshot)
    if problem is not None or runtime is None:
        return Plan(problem=problem)
    if view.job_set is None:
        return _plan_creation(view, runtime, render, snapshot)
    return _plan_resume(view, view.job_set, runtime, render, snapshot)


def find_unsupported_kind(spec: TrainJobSpec) -> str | None:
    """Return `<kind>.<group>` of a runtimeRef that no runtime of ours can be, None for a supported one."""
    ref = spec.runtime_ref
    kind, group = ref.kind or CLUSTER_TRAINING_RUNTIME, ref.api_group or GROUP
    if group == GROUP and kind in (TRAINING_RUNTIME, CLUSTER_TRAINING_RUNTIME):
        return None
    return f"{kind}.{group}"


def build_job_set_deletion(job_set: JobSet) -> tuple[Action, ...]:
    """Return the deletion of the JobSet; nothing where it is being deleted already."""
    if job_set.metadata.deletion_timestamp is not None:
        return ()
    return (Delete(key=_job_set_key(job_set.metadata), uid=job_set.metadata.uid),)


def _plan_suspended(
    view: View, job_set: JobSet, runtime: Runtime | None, render: Render, snapshot: tuple[Action, ...]
) -> Plan:
    """End the pods of a job that should not run, and make its JobSet ready to start clean."""
    if not job_set.spec.suspend:
        # Nothing else goes into this write: JobSet refuses the whole of it for one immutable field, and a
        # rendering difference must never keep a job running (cases B016, R01).
        stop = Patch(key=_job_set_key(job_set.metadata), merge={"spec": {"suspend": True}})
        return Plan(first=(stop, *snapshot), runtime=runtime)
    if runtime is None or not _is_at_rest(view, job_set):
        return Plan(first=snapshot, runtime=runtime)
    first = (*snapshot, *build_gang_deletion(view, runtime))
    rendered = render_again(view, job_set, runtime, render)
    if isinstance(rendered, Problem):
        return Plan(first=first, runtime=runtime, problem=rendered)
    fresh = rendered[-1]
    if not may_keep(job_set.metadata, fresh):
        return Plan(first=first, runtime=runtime)  # it is made anew on resume
    upkeep = _build_cleaning(job_set, fresh) or _build_renewal(view, job_set)
    return Plan(first=(*first, *upkeep), runtime=runtime)


def _plan_running(job_set: JobSet, runtime: Runtime | None, snapshot: tuple[Action, ...]) -> Plan:
    """Leave a running JobSet alone: nothing is rendered and no drift is corrected (spec 01, section 3.4)."""
    wait = _build_deletion_wait(job_set) if job_set.metadata.deletion_timestamp is not None else None
    return Plan(first=snapshot, runtime=runtime, wait=wait)


def _plan_creation(view: View, runtime: Runtime, render: Render, snapshot: tuple[Action, ...]) -> Plan:
    """Make the JobSet, once nothing of an earlier one is left: two sets of pods would be one run twice."""
    leftovers = [
        *(("Job", job.metadata.name) for job in view.leftover_jobs),
        *(("Pod", pod.metadata.name) for pod in view.leftover_pods),
    ]
    if leftovers:
        kind, name = min(leftovers)
        wait = Problem(
            reason="WaitingForCleanup",
            message=f"{kind} {name!r} of the deleted JobSet is still there",
            layer=kind,
            kind=kind,
            name=name,
        )
        return Plan(first=snapshot, runtime=runtime, wait=wait)
    rendered = _render(view, runtime, render)
    if isinstance(rendered, Problem):
        return Plan(first=snapshot, runtime=runtime, problem=rendered)
    *others, job_set = rendered
    return Plan(
        first=snapshot,
        then=(*(build_write(other) for other in others), Apply(object=job_set)),
        runtime=runtime,
    )


def _plan_resume(
    view: View, job_set: JobSet, runtime: Runtime, render: Render, snapshot: tuple[Action, ...]
) -> Plan:
    """Let a suspended JobSet run, as the job is now."""
    if job_set.metadata.deletion_timestamp is not None:
        return Plan(first=snapshot, runtime=runtime, wait=_build_deletion_wait(job_set))
    rendered = render_again(view, job_set, runtime, render)
    if isinstance(rendered, Problem):
        return Plan(first=snapshot, runtime=runtime, problem=rendered)
    *others, fresh = rendered
    loses_claims = _deletes_claims(job_set)
    # One that another controller made has no hash: it is made anew, but rather applied than its claims lost.
    if not may_keep(job_set.metadata, fresh) and (_is_made_by_us(job_set) or not loses_claims):
        if loses_claims:
            return Plan(first=snapshot, runtime=runtime, problem=_build_claims_problem(job_set))
        return Plan(first=snapshot, then=build_job_set_deletion(job_set), runtime=runtime)
    if not _is_at_rest(view, job_set):
        wait = Problem(
            reason="WaitingForPods",
            message="pods of the time before the suspension have not ended yet",
            layer=JOB_SET,
            kind=JOB_SET,
            name=job_set.metadata.name,
        )
        return Plan(first=snapshot, runtime=runtime, wait=wait)
    if cleaning := _build_cleaning(job_set, fresh):
        return Plan(first=snapshot, then=cleaning, runtime=runtime)
    renewal = _build_renewal(view, job_set)
    missing = None if renewal else _find_missing_job(view, job_set)
    if renewal or missing is not None:
        wait = Problem(
            reason="WaitingForJobs",
            message=f"JobSet is making the Jobs of {missing!r} anew" if missing else "the Jobs are made anew",
            layer=JOB_SET,
            kind=JOB_SET,
            name=job_set.metadata.name,
        )
        return Plan(first=snapshot, then=renewal, runtime=runtime, wait=wait)
    return Plan(
        first=snapshot,
        then=(
            *(build_write(other) for other in others),
            Apply(object=_build_update(fresh, job_set, suspend=False)),
        ),
        runtime=runtime,
    )


def _is_at_rest(view: View, job_set: JobSet) -> bool:
    """Say whether the suspended JobSet has come to rest: its controller says so and no pod is left.

    Before, the controller might make a deleted Job again unsuspended, and pods have their grace period.
    """
    return not view.live_pods and _is_suspension_observed(job_set)


def _build_cleaning(job_set: JobSet, fresh: Json) -> tuple[Action, ...]:
    """Return the apply, still suspended, that takes directives away; nothing where none was taken back.

    It has to come before the renewal, which makes Jobs from what the JobSet holds. What is only added waits
    for the resume: JobSet merges it (case B019, and Kueue's flavors).
    """
    if are_applied(job_set, fresh) or are_only_added(job_set, fresh):
        return ()
    return (Apply(object=_build_update(fresh, job_set, suspend=True)),)


def _build_renewal(view: View, job_set: JobSet) -> tuple[Action, ...]:
    """Return the deletion of the unfinished Jobs of a JobSet at rest; nothing where it was done.

    JobSet merges directives into a Job on resume and takes none away, and a pod that answers SIGTERM with
    exit code 0 counts as finished work: only a new Job starts clean (clients, section 2.4). JobSet may hear
    of the deletion before it hears of the directives that were taken away, and make Jobs that have them
    still: those are deleted again.
    """
    generation = str(job_set.metadata.generation or 0)
    renewed, _, count = (job_set.metadata.annotations or {}).get(RENEWED_ANNOTATION, "").partition(".")
    unfinished = [job for job in view.jobs if not is_job_finished(job)]
    if renewed != generation:
        stale, mark = unfinished, generation
    else:
        stale = [job for job in unfinished if not _is_going(job) and not is_clean(job, job_set)]
        times = int(count) if count.isdigit() else 1
        if times >= MOST_RENEWALS:
            return ()
        mark = f"{generation}.{times + 1}"
    if not stale:
        return ()
    return (
        *(
            Delete(
                key=ObjectKey("Job", job.metadata.namespace or "", job.metadata.name), uid=job.metadata.uid
            )
            for job in sorted(stale, key=lambda job: job.metadata.name)
            if not _is_going(job)
        ),
        Patch(
            key=_job_set_key(job_set.metadata),
            merge={"metadata": {"annotations": {RENEWED_ANNOTATION: mark}}},
        ),
    )


def _find_missing_job(view: View, job_set: JobSet) -> str | None:
    """Return a replicated job of which JobSet is about to make Jobs again, suspended; None where it has.

    Those that wait for another to be ready are made when it is.
    """
    present: Counter[str] = Counter()
    finished: Counter[str] = Counter()
    for job in view.jobs:
        if not _is_going(job) and is_of_current_attempt(job.metadata, job_set):
            name = find_place(job.metadata).replicated_job
            present[name] += 1
            finished[name] += is_job_finished(job)
    replicas = {entry.name: entry.replicas for entry in job_set.spec.replicated_jobs}
    for entry in job_set.spec.replicated_jobs:
        waits = any(
            needed.status != "Complete" or finished[needed.name] < replicas.get(needed.name, 0)
            for needed in entry.depends_on or ()
        )
        if not waits and present[entry.name] < entry.replicas:
            return entry.name
    return None


def _is_going(job: Job) -> bool:
    return job.metadata.deletion_timestamp is not None


def _is_suspension_observed(job_set: JobSet) -> bool:
    conditions = (job_set.status.conditions if job_set.status else None) or ()
    return any(c.type == "Suspended" and c.status == "True" for c in conditions)


def _choose_runtime(view: View) -> tuple[Runtime | None, Problem | None]:
    """Return the runtime that the job is made from, or why there is none.

    That is the snapshot. A job that names one which is gone takes the live runtime where its content is the
    same; a different one only if nothing of the job ever ran. While the API server refuses what came out
    of a snapshot, and nothing ever ran, the live runtime replaces it: whoever repairs a broken runtime
    expects waiting jobs to start (spec 01, section 4.2).
    """
    seen, live = view.seen, view.seen.runtime
    named = view.status.runtime_snapshot
    if seen.snapshot_problem is not None:
        return None, Problem(
            reason=SNAPSHOT_UNUSABLE,
            message=seen.snapshot_problem,
            layer="Runtime",
            kind=view.spec.runtime_ref.kind or CLUSTER_TRAINING_RUNTIME,
            name=view.spec.runtime_ref.name,
        )
    if seen.snapshot is not None:
        is_stuck = view.job_set is None and not view.has_begun and _is_refused(view)
        if is_stuck and live is not None and hash_runtime(live) != hash_runtime(seen.snapshot):
            return live, None
        return seen.snapshot, None
    if live is None:
        return None, build_missing_runtime_problem(_runtime_key(view))
    if named is not None and named.hash and view.has_begun and hash_runtime(live) != named.hash:
        return None, Problem(
            reason=SNAPSHOT_LOST,
            message=(
                f"the snapshot {named.hash} that the job began with is gone, and the runtime was edited since"
            ),
            layer="Runtime",
            kind=live.kind,
            name=live.metadata.name,
        )
    return live, None


def _is_refused(view: View) -> bool:
    """Say whether the API server, or render, refused what the job was last made into."""
    return any(
        c.type == RESOURCES_CREATED and (c.reason == RENDER_FAILED or c.reason not in OWN_REASONS)
        for c in view.status.conditions or ()
    )


def _runtime_key(view: View) -> ObjectKey:
    ref = view.spec.runtime_ref
    kind = ref.kind or CLUSTER_TRAINING_RUNTIME
    namespace = view.job.metadata.namespace or "" if kind == TRAINING_RUNTIME else ""
    return ObjectKey(kind, namespace, ref.name)


def render_again(view: View, job_set: JobSet, runtime: Runtime, render: Render) -> list[Json] | Problem:
    """Return what `_render` does, by the choice that the suspended JobSet was made with where one fits it."""

    def fits(rendered: list[Json] | Problem) -> bool:
        return not isinstance(rendered, Problem) and may_keep(job_set.metadata, rendered[-1])

    rendered = _render(view, runtime, render)
    if fits(rendered) or not isinstance(render, RenderChoice):
        return rendered
    others = (_render(view, runtime, other) for other in render.others)
    return next(filter(fits, others), rendered)


def _render(view: View, runtime: Runtime, render: Render) -> list[Json] | Problem:
    """Return the rendered objects, the JobSet last, or the field errors as a problem."""
    try:
        return render(view.job, runtime)
    except RenderError as error:
        is_runtimes_fault = error.source.startswith(runtime.kind)
        return Problem(
            reason=AUTHORITY_UNKNOWN if isinstance(error, AuthorityUnknown) else RENDER_FAILED,
            message=f"{error.source}: " + "; ".join(str(field_error) for field_error in error.errors),
            layer="Runtime" if is_runtimes_fault else TRAIN_JOB,
            kind=runtime.kind if is_runtimes_fault else TRAIN_JOB,
            name=runtime.metadata.name if is_runtimes_fault else view.job.metadata.name,
        )


def _build_update(fresh: Json, job_set: JobSet, *, suspend: bool) -> Json:
    """Return the rendered JobSet as it has to be sent to one that exists and is suspended.

    `suspend` is always sent: where the job leaves it out, an absent field would keep the stored true. The
    volume claim policies go as they are stored: the API server fills fields in there, the list is immutable
    and atomic, and sending less is refused (case R01); the template hash says that ours are the same.
    """
    spec = {**fresh["spec"], "suspend": suspend}
    stored = job_set.spec.volume_claim_policies
    if stored and "volumeClaimPolicies" in spec:
        spec["volumeClaimPolicies"] = stored
    return build_marked({**fresh, "spec": spec})


def _is_made_by_us(job_set: JobSet) -> bool:
    return TEMPLATE_HASH_ANNOTATION in (job_set.metadata.annotations or {})


def _deletes_claims(job_set: JobSet) -> bool:
    """Say whether deleting the JobSet deletes volume claims; Delete is the default."""
    return any(
        (policy.get("retentionPolicy") or {}).get("whenDeleted", "Delete") == "Delete"
        for policy in job_set.spec.volume_claim_policies or ()
    )


def _build_name_taken(job_set: JobSet) -> Problem:
    name = job_set.metadata.name
    return Problem(
        reason=NAME_TAKEN,
        message=f"JobSet {name!r} exists and belongs to {describe_owner(job_set.metadata)}",
        layer=JOB_SET,
        kind=JOB_SET,
        name=name,
    )


def _build_claims_problem(job_set: JobSet) -> Problem:
    return Problem(
        reason=CLAIMS_WOULD_BE_DELETED,
        message=(
            "the job differs from its JobSet in what cannot change, and deleting the JobSet would delete "
            "its volume claims (volumeClaimPolicies with whenDeleted: Delete)"
        ),
        layer=JOB_SET,
        kind=JOB_SET,
        name=job_set.metadata.name,
    )


def _build_deletion_wait(job_set: JobSet) -> Problem:
    return Problem(
        reason="WaitingForCleanup",
        layer=JOB_SET,
        message=f"JobSet {job_set.metadata.name!r} is being deleted",
        kind=JOB_SET,
        name=job_set.metadata.name,
    )


def _job_set_key(meta: ObjectMeta) -> ObjectKey:
    return ObjectKey(JOB_SET, meta.namespace or "", meta.name)


def build_train_job_key(job: TrainJob) -> ObjectKey:
    """Return the key of the TrainJob."""
    return ObjectKey(TRAIN_JOB, job.metadata.namespace or "", job.metadata.name)
