"""Why a job does what it does, in words: the cause, what to do, and what each layer says. Pure.

The cause itself is found by whoever works on the job (`status.cause`); here it is put beside what the objects
of every layer say, so that a reader sees where the chain breaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from trainwright.api.batch import Job
from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME, JOB_SET
from trainwright.api.core import ContainerStatus, Event, Pod
from trainwright.api.jobset import JobSet
from trainwright.api.kueue import Workload
from trainwright.api.meta import Condition
from trainwright.api.trainjob import TrainJob
from trainwright.cli.durations import format_age
from trainwright.cli.job_rows import explain_untouched, get_phase, is_finished
from trainwright.cli.tables import escape_controls, measure_width
from trainwright.cli.verdict import indent_message

_EVENTS_SHOWN = 5
_PODS_SHOWN = 16


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """All that belongs to one job. `node` is a line about the machines that it runs on.

    `hidden` are the kinds that the caller may not read.
    """

    train_job: TrainJob
    job_set: JobSet | None = None
    jobs: tuple[Job, ...] = ()
    pods: tuple[Pod, ...] = ()
    workload: Workload | None = None
    events: tuple[Event, ...] = ()
    node: str = ""
    hidden: tuple[str, ...] = ()


class Finding(msgspec.Struct, frozen=True):
    """What one object says: `layer` is TrainJob, Runtime, Workload, JobSet, Job, Pod, Container, Node."""

    layer: str
    name: str
    says: str


def format_explanation(chain: Chain, now: datetime) -> str:
    """Return the whole answer."""
    return "\n\n".join(
        part for part in (_format_head(chain, now), _format_layers(chain), _format_events(chain)) if part
    )


def list_findings(chain: Chain) -> list[Finding]:
    """Return what each object says, from the TrainJob down; of many pods those that are worst."""
    findings = [_find_train_job(chain.train_job), _find_runtime(chain.train_job)]
    findings += [Finding(kind, "-", "you have no right to see it") for kind in chain.hidden]
    if chain.workload is not None:
        says = _describe_workload(chain.workload)
        findings.append(Finding("Workload", chain.workload.metadata.name, says))
    if chain.job_set is not None:
        findings.append(Finding("JobSet", chain.job_set.metadata.name, _describe_job_set(chain.job_set)))
    elif JOB_SET not in chain.hidden:
        findings.append(Finding("JobSet", "-", _explain_missing_job_set(chain.train_job)))
        return findings
    jobs = sorted(chain.jobs, key=lambda job: job.metadata.name)
    findings += [Finding("Job", job.metadata.name, _describe_job(job)) for job in jobs]
    findings += _find_pods(chain.pods)
    if chain.node:
        findings.append(Finding("Node", "-", chain.node))
    return findings


def _format_head(chain: Chain, now: datetime) -> str:
    train_job = chain.train_job
    status = train_job.status
    cause = status.cause if status else None
    phase = get_phase(train_job)
    since = _last_change(train_job)
    lines = [f"{train_job.metadata.name}: {phase}" + (f", {format_age(since, now)} ago" if since else "")]
    if cause is not None:
        lines.append(f"cause:  {cause.kind} {cause.name}: {cause.reason}")
        if cause.message:
            message = indent_message(cause.message).replace("\n  ", "\n        ")
            lines.append(f"        {message}")
        if cause.hint:
            lines.append(f"to do:  {escape_controls(cause.hint)}")
    else:
        lines.append(f"cause:  {explain_untouched(train_job, now) or _explain_phase(train_job)}")
    return "\n".join(lines)


def _explain_phase(train_job: TrainJob) -> str:
    name = train_job.metadata.name
    return {
        "Complete": "none; the job did what it should",
        "Running": "none; the job runs",
        "Suspended": f"the job is suspended: `trainwright resume {name}` lets it run",
        "Queued": "the job waits for its turn",
        "Failed": "not known; see the layers and the output below",
    }.get(get_phase(train_job), "none known; the job has just been made, or is starting")


def _format_layers(chain: Chain) -> str:
    findings = list_findings(chain)
    widths = [
        max(measure_width(value) for value in column) for column in zip(*map(_cells, findings), strict=True)
    ]
    lines = []
    for layer, name, says in map(_cells, findings):
        padded = name + " " * (widths[1] - measure_width(name))
        lines.append(f"{layer:<{widths[0]}}  {padded}  {says}".rstrip())
    return "\n".join(lines)


def _cells(finding: Finding) -> tuple[str, str, str]:
    return finding.layer, escape_controls(finding.name), escape_controls(finding.says)


def _format_events(chain: Chain) -> str:
    status = chain.train_job.status
    told = {status.cause.reason} if status and status.cause else set()
    told |= {condition.reason for condition in (status.conditions if status else None) or ()}
    warnings = [event for event in chain.events if event.type == "Warning" and event.reason not in told]
    warnings.sort(
        key=lambda event: str(event.last_timestamp or event.event_time or event.first_timestamp or "")
    )
    lines = [
        escape_controls(
            f"{event.involved_object.kind} {event.involved_object.name}: {event.reason}: {event.message}"
            + (f" ({event.count} times)" if event.count and event.count > 1 else "")
        )
        for event in warnings[-_EVENTS_SHOWN:]
    ]
    return "\n".join(["warnings:", *(f"  {line}" for line in lines)]) if lines else ""


def _find_train_job(train_job: TrainJob) -> Finding:
    conditions = (train_job.status.conditions if train_job.status else None) or []
    words = _describe_conditions(conditions) or get_phase(train_job)
    return Finding("TrainJob", train_job.metadata.name, words)


def _find_runtime(train_job: TrainJob) -> Finding:
    ref = train_job.spec.runtime_ref if train_job.spec else None
    snapshot = train_job.status.runtime_snapshot if train_job.status else None
    kind = (ref.kind if ref else None) or CLUSTER_TRAINING_RUNTIME
    words = "as it was when the job began" if snapshot else "as it is; the job has not begun"
    return Finding("Runtime", ref.name if ref else "-", f"{kind}, {words}")


def _explain_missing_job_set(train_job: TrainJob) -> str:
    if is_finished(train_job):
        return "none is left"
    if train_job.spec is not None and train_job.spec.suspend:
        return "not made yet: the job is suspended"
    return "not made yet"


def _describe_workload(workload: Workload) -> str:
    """Return what is true of a Workload, and what is not yet; its messages are in the cause."""
    held = {c.type: c for c in workload.status.conditions or ()}
    words = [
        c.type if c.reason in ("", c.type) else f"{c.type}: {c.reason}"
        for c in held.values()
        if c.status == "True" and c.type in {"Evicted", "Finished", "Admitted", "PodsReady"}
    ]
    reserved = held.get("QuotaReserved")
    if reserved is None or reserved.status != "True":
        words.append(f"no quota reserved{f': {reserved.reason}' if reserved and reserved.reason else ''}")
    queue = f"in LocalQueue {workload.spec.queue_name}" if workload.spec.queue_name else "in no queue"
    return ", ".join([queue, *words])


def _describe_job_set(job_set: JobSet) -> str:
    status = job_set.status
    words = [_describe_conditions((status.conditions if status else None) or [])]
    if status is not None and status.restarts:
        words.append(f"restarted {status.restarts} times")
    return ", ".join(part for part in words if part) or "active"


def _describe_job(job: Job) -> str:
    status = job.status
    if status is None:
        return "just made"
    held = [
        f"{condition.type}: {condition.reason}" if condition.reason else condition.type
        for condition in status.conditions or ()
        if condition.status == "True" and condition.type not in {"FailureTarget", "SuccessCriteriaMet"}
    ]
    counts = (("active", status.active), ("succeeded", status.succeeded), ("failed", status.failed))
    numbers = [f"{number} {word}" for word, number in counts if number]
    return ", ".join([*held, *numbers]) or "no pod yet"


def _find_pods(pods: Sequence[Pod]) -> list[Finding]:
    ordered = sorted(pods, key=lambda pod: (_rank_of_badness(pod), pod.metadata.name))
    findings = []
    for pod in ordered[:_PODS_SHOWN]:
        findings.append(Finding("Pod", pod.metadata.name, _describe_pod(pod)))
        containers = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
        said = ((container.name, _describe_container(container)) for container in containers)
        findings += [Finding("Container", name, words) for name, words in said if words]
    if len(ordered) > _PODS_SHOWN:
        findings.append(Finding("Pod", "...", f"and {len(ordered) - _PODS_SHOWN} more"))
    return findings


def _rank_of_badness(pod: Pod) -> int:
    return {"Failed": 0, "Pending": 1, "Unknown": 1, "Running": 2}.get(pod.status.phase, 3)


def _describe_pod(pod: Pod) -> str:
    words = [pod.status.phase]
    if pod.status.reason:
        words.append(pod.status.reason)
    if pod.status.message:
        words.append(" ".join(pod.status.message.split()))
    bad = [c for c in pod.status.conditions or () if c.type == "PodScheduled" and c.status == "False"]
    words += [f"{condition.reason}: {condition.message}" for condition in bad]
    return ": ".join(words)


def _describe_container(container: ContainerStatus) -> str:
    """Return what a container says; nothing for one that runs, or ended well."""
    ended, waiting = container.state.terminated, container.state.waiting
    restarts = f", restarted {container.restart_count} times" if container.restart_count else ""
    if ended is not None and ended.exit_code != 0:
        return f"{ended.reason or 'Error'}, exit code {ended.exit_code}{restarts}"
    if waiting is not None and waiting.reason:
        return f"waiting: {waiting.reason}" + (f": {waiting.message}" if waiting.message else "") + restarts
    return restarts.removeprefix(", ")


def _describe_conditions(conditions: Sequence[Condition]) -> str:
    return ", ".join(
        f"{condition.type}: {condition.reason}"
        if condition.reason and condition.reason != condition.type
        else condition.type
        for condition in conditions
        if condition.status == "True"
    )


def _last_change(train_job: TrainJob) -> datetime | None:
    conditions = (train_job.status.conditions if train_job.status else None) or []
    moments = [condition.last_transition_time for condition in conditions if condition.status == "True"]
    started = train_job.status.start_time if train_job.status else None
    return max(moments, default=None) or started or train_job.metadata.creation_timestamp
