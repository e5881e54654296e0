"""Defaults and rules of TrainingRuntime and ClusterTrainingRuntime. Both kinds are treated alike.

Source: spec 01 sections 1.5, 2.5 and 2.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from trainwright.admission.derived_names import list_derived_names
from trainwright.admission.job_set_rules import (
    find_job_set_errors,
    find_job_set_schema_errors,
    find_unmounted_claims,
)
from trainwright.admission.schema_defaults import fill_schema_defaults
from trainwright.admission.verdict import Verdict, forget_repeated, refuse
from trainwright.api.constants import (
    ANCESTOR_CONTAINERS,
    ANCESTOR_LABEL,
    ANCESTOR_TRAINER,
    NODE,
    SUPPORT_DEPRECATED,
    SUPPORT_LABEL,
)
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.names import explain_subdomain
from trainwright.api.runtime import MLPolicy, Runtime, RuntimeSpec
from trainwright.api.schema import check_object
from trainwright.api.shapes import Findings
from trainwright.api.trainjob import RuntimeRef, TrainJob, TrainJobSpec
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks import FRAMEWORKS, Framework, find_unsupported, select_frameworks
from trainwright.frameworks.choice import list_shipped_choices
from trainwright.frameworks.slices import list_numbering_frameworks
from trainwright.gang import list_placement_warnings, list_queue_warnings
from trainwright.template.layout import build_layout
from trainwright.template.pod_sets import count_pods
from trainwright.template.replicated_jobs import (
    find_named,
    get_ancestor,
    get_job_spec,
    get_part,
    get_pod_spec,
    list_replicated_jobs,
)
from trainwright.template.shape import find_excess
from trainwright.template.steps import list_steps

JOB_SET_PATH: Final = "spec.template.spec"
DEPRECATION_POLICY: Final = (
    "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"
)

RuntimeT = TypeVar("RuntimeT", bound=Runtime)


def default_runtime(runtime: RuntimeT) -> RuntimeT:
    """Return the runtime with the defaults of its schema, those inside the JobSet template included."""
    return fill_schema_defaults(runtime)


def validate_runtime(runtime: Runtime, *, frameworks: Sequence[Framework] = FRAMEWORKS) -> Verdict:
    """Return what is wrong with a runtime, and what its author should know.

    What it was before an update plays no part: nothing of it is immutable, since jobs that began hold a copy.
    `frameworks` are those that there are.
    """
    findings = Findings()
    body = check_object(type(runtime), build_object(runtime), findings)
    invalid = [*findings.errors, *_check_name(runtime)]
    if findings.errors:  # what follows relies on the shape of what it reads
        return Verdict(invalid=tuple(invalid), warnings=tuple(map(str, findings.warnings)))
    spec = runtime.spec or RuntimeSpec()
    job_set: Json = get_part(body, "spec", "template", "spec")
    policy = spec.ml_policy
    if excess := find_excess(job_set, JOB_SET_PATH):
        return Verdict(invalid=tuple(invalid), denied=(excess,))
    invalid += _check_injection(policy)
    invalid += find_job_set_schema_errors(job_set, JOB_SET_PATH)
    denied = [
        *_check_policy(policy),
        *_check_slices(policy),
        *_check_steps(job_set, policy),
        *find_job_set_errors(job_set, JOB_SET_PATH),
        *_check_job_templates(job_set),
    ]
    warnings = [
        *list_deprecation(runtime, f'{runtime.kind} "{runtime.metadata.name}"'),
        *(str(warning) for warning in findings.warnings),
        *(str(error) for error in find_unsupported(policy, "spec.mlPolicy", frameworks)),
        *list_queue_warnings(spec.pod_group_policy, spec.template.metadata if spec.template else None),
        *list_placement_warnings(spec.pod_group_policy, spec.template),
        *(str(error) for error in find_unmounted_claims(job_set, JOB_SET_PATH)),
        *_list_warnings(job_set),
        *_list_network_warnings(job_set, policy),
        *_list_name_warnings(job_set, policy),
    ]
    if not invalid and not denied:
        warnings += _list_framework_warnings(spec, frameworks)
    return Verdict(invalid=forget_repeated(invalid), denied=forget_repeated(denied), warnings=tuple(warnings))


def list_deprecation(runtime: Runtime, subject: str) -> list[str]:
    """Return the warning that a runtime is deprecated, where its label says so."""
    if (runtime.metadata.labels or {}).get(SUPPORT_LABEL) != SUPPORT_DEPRECATED:
        return []
    return [
        f"{subject} is deprecated and will be removed in a future release. "
        f"See the runtime deprecation policy: {DEPRECATION_POLICY}"
    ]


def _check_name(runtime: Runtime) -> Iterator[FieldError]:
    name = runtime.metadata.name
    if not name:
        if not runtime.metadata.generate_name:
            yield refuse("metadata.name", Rule.REQUIRED, "required; give the runtime a name")
    elif problem := explain_subdomain(name):
        yield refuse("metadata.name", Rule.INVALID, problem, name)


def _check_injection(policy: MLPolicy | None) -> Iterator[FieldError]:
    injection = policy.torch.env_injection if policy and policy.torch else None
    for i, target in enumerate((injection.targets if injection else None) or ()):
        if NODE in target.container_names:
            path = f"spec.mlPolicy.torch.envInjection.targets[{i}].containerNames"
            detail = f"must not contain {NODE!r}, which always gets the variables; remove it"
            yield refuse(path, Rule.INVALID, detail, target.container_names)


def _check_policy(policy: MLPolicy | None) -> Iterator[FieldError]:
    if policy and policy.num_nodes is not None and policy.num_nodes < 1:
        yield refuse(
            "spec.mlPolicy.numNodes",
            Rule.INVALID,
            f"must be at least 1, is {policy.num_nodes}",
            policy.num_nodes,
        )


def _check_slices(policy: MLPolicy | None) -> Iterator[FieldError]:
    """Check what TrainJobs that set no number of nodes would have, and that slices can be had at all."""
    size = policy.nodes_per_slice if policy else None
    if policy is None or size is None:
        return
    for value, detail in list_numbering_frameworks(policy):
        yield refuse("spec.mlPolicy.nodesPerSlice", Rule.NOT_SUPPORTED, detail, value)
    nodes = policy.num_nodes or 1
    if nodes % size:
        detail = f"must be a multiple of nodesPerSlice, {size}, is {nodes}"
        yield refuse("spec.mlPolicy.numNodes", Rule.INVALID, detail, nodes)


def _check_steps(job_set: Json, policy: MLPolicy | None) -> Iterator[FieldError]:
    """Check the replicated jobs that carry the settings of TrainJobs."""
    replicated_jobs = list_replicated_jobs(job_set)
    if not replicated_jobs:
        detail = f"a runtime needs a replicated job with the label {ANCESTOR_LABEL}: {ANCESTOR_TRAINER}"
        yield refuse(f"{JOB_SET_PATH}.replicatedJobs", Rule.REQUIRED, detail)
        return
    steps = list_steps(job_set, policy)
    for i, (replicated_job, step) in enumerate(zip(replicated_jobs, steps, strict=True)):
        known = ANCESTOR_CONTAINERS.get(get_ancestor(replicated_job) or "")
        container = NODE if step.trains else known
        if container is None:
            continue
        place = f"{JOB_SET_PATH}.replicatedJobs[{i}]"
        replicas = replicated_job.get("replicas", 1)
        if replicas != 1 and (known is not None or step.runs_command):
            detail = (
                "must be 1 for a step of a TrainJob; mlPolicy.numNodes says how many pods it has, and "
                "mlPolicy.nodesPerSlice how many of them make a Job"
            )
            yield refuse(f"{place}.replicas", Rule.INVALID, detail, replicas)
        if find_named(get_pod_spec(replicated_job).get("containers"), container) is None:
            detail = f"must have a container {container!r}, which a TrainJob's settings go to"
            yield refuse(f"{place}.template.spec.template.spec.containers", Rule.INVALID, detail)
    if not any(step.runs_command for step in steps):
        detail = (
            f"no replicated job has the label {ANCESTOR_LABEL}: {ANCESTOR_TRAINER} in its "
            "template.metadata.labels, so spec.trainer of a TrainJob would have no effect"
        )
        yield refuse(f"{JOB_SET_PATH}.replicatedJobs", Rule.INVALID, detail)


def _check_job_templates(job_set: Json) -> Iterator[FieldError]:
    for i, replicated_job in enumerate(list_replicated_jobs(job_set)):
        if "ttlSecondsAfterFinished" in get_job_spec(replicated_job):
            path = f"{JOB_SET_PATH}.replicatedJobs[{i}].template.spec.ttlSecondsAfterFinished"
            detail = (
                "JobSet makes a Job that is gone anew, so finished work would run again; remove it, and set "
                "spec.ttlSecondsAfterFinished of the runtime or of the TrainJob"
            )
            yield refuse(path, Rule.FORBIDDEN, detail)


def _list_warnings(job_set: Json) -> Iterator[str]:
    if "ttlSecondsAfterFinished" in job_set:
        yield (
            f"{JOB_SET_PATH}.ttlSecondsAfterFinished deletes the JobSet and its logs but not the TrainJob; "
            "use spec.ttlSecondsAfterFinished instead"
        )
    for i, replicated_job in enumerate(list_replicated_jobs(job_set)):
        place = f"{JOB_SET_PATH}.replicatedJobs[{i}]"
        name = replicated_job["name"]
        for parent in ("template.spec", "template.spec.template.spec"):
            if "activeDeadlineSeconds" in get_part(replicated_job, *parent.split(".")):
                yield (
                    f"{place}.{parent}.activeDeadlineSeconds fails the TrainJob without saying why; "
                    "use spec.activeDeadlineSeconds of the TrainJob"
                )
        pod_labels = get_part(replicated_job, "template", "spec", "template", "metadata", "labels")
        is_step = name in ANCESTOR_CONTAINERS or ANCESTOR_LABEL in pod_labels
        if is_step and get_ancestor(replicated_job) is None:
            where = " (it is on the pod template)" if ANCESTOR_LABEL in pod_labels else ""
            step = name if name in ANCESTOR_CONTAINERS else pod_labels[ANCESTOR_LABEL]
            yield (
                f"{place}.template.metadata.labels lacks {ANCESTOR_LABEL}: {step}{where}; without it on the "
                f"Job template a TrainJob's settings do not reach {name}"
            )


def _list_network_warnings(job_set: Json, policy: MLPolicy | None) -> Iterator[str]:
    """Yield a warning where pods have no names by which they find each other, or share them with others."""
    choices, network = list_shipped_choices(policy), get_part(job_set, "network")
    if network.get("subdomain") and network.get("enableDNSHostnames") is not False:
        yield (
            f"{JOB_SET_PATH}.network.subdomain is the same for all jobs of the runtime: JobSet makes one "
            "Service for it, which finds the pods of the first of them in a namespace, so no other one's "
            "find each other; leave it out for one of each job's own"
        )
    if choices and network.get("enableDNSHostnames") is False:
        yield (
            f"{JOB_SET_PATH}.network.enableDNSHostnames is false, so pods have no names by which those of "
            f"{choices[0]} find each other: a job of several nodes waits for ever; remove it"
        )


def _list_framework_warnings(spec: RuntimeSpec, frameworks: Sequence[Framework]) -> Iterator[str]:
    """Yield why every TrainJob will be refused: what even one that asks for nothing cannot have.

    No more than a warning: runtimes with such a mistake are there already, and harm nobody.
    """
    job = TrainJob(metadata=ObjectMeta(name="x"), spec=TrainJobSpec(runtime_ref=RuntimeRef(name="x")))
    layout = build_layout(job, spec)
    for framework in select_frameworks(spec.ml_policy, frameworks):
        for error in framework.validate(layout):
            if error.path == "spec.runtimeRef":
                yield f"TrainJobs of this runtime will be refused: {error.detail}"


def _list_name_warnings(job_set: Json, policy: MLPolicy | None) -> Iterator[str]:
    names = list(list_derived_names(job_set, count_pods(job_set, policy, None)))
    longest = min((name.longest_job_name for name in names), default=None)
    if longest is not None and longest < 1:
        yield f"{JOB_SET_PATH}: names of replicated jobs are so long that no TrainJob can use the runtime"
