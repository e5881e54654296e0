"""Makes one child Job of a JobSet: name, labels, annotations, subdomain, claims.

Source: spec 02, sections 14.3 and 14.4.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from trainwright.api import constants
from trainwright.api.encoding import build_json
from trainwright.api.jobset import JobSet, ReplicatedJob
from trainwright.api.meta import Json, build_owner_reference
from trainwright.runner.controllers.names import build_job_name, get_subdomain
from trainwright.runner.controllers.volume_claims import add_claim_volumes

GLOBAL_REPLICAS: Final = "jobset.sigs.k8s.io/global-replicas"
JOB_KEY: Final = "jobset.sigs.k8s.io/job-key"
GROUP_NAME: Final = "jobset.sigs.k8s.io/group-name"
GROUP_REPLICAS: Final = "jobset.sigs.k8s.io/group-replicas"
JOB_GROUP_INDEX: Final = "jobset.sigs.k8s.io/job-group-index"
JOB_RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/job-restart-attempt"
COORDINATOR: Final = "jobset.sigs.k8s.io/coordinator"
EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR_STRATEGY: Final = "alpha.jobset.sigs.k8s.io/node-selector"


def build_child_job(job_set: JobSet, replicated_job: ReplicatedJob, index: int) -> Json:
    """Return the Job with this index, as the JobSet's current attempt makes it.

    A Job of a suspended JobSet is suspended. Unknown fields of the template survive.
    """
    name = build_job_name(job_set.metadata.name, replicated_job.name, index)
    template = replicated_job.template
    labels = build_labels(job_set, replicated_job, index)
    placement = _placement_annotations(job_set, replicated_job)
    spec: Json = dict(template.get("spec") or {})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": job_set.metadata.namespace,
            **_extend(template.get("metadata"), labels, {**labels, **placement}),
            "ownerReferences": [
                build_json(
                    build_owner_reference(constants.JOBSET_API_VERSION, constants.JOB_SET, job_set.metadata)
                )
            ],
        },
        "spec": {
            **spec,
            "completionMode": spec.get("completionMode") or "Indexed",
            "suspend": bool(job_set.spec.suspend),
            "template": _build_pod_template(job_set, spec.get("template") or {}, labels, placement),
        },
    }


def build_labels(job_set: JobSet, replicated_job: ReplicatedJob, index: int) -> dict[str, str]:
    """Return what is set on the Job and its pods, as labels and again as annotations."""
    before = _replicas_before(job_set, replicated_job, None)
    before_in_group = _replicas_before(job_set, replicated_job, replicated_job.group_name)
    name = build_job_name(job_set.metadata.name, replicated_job.name, index)
    labels = {
        constants.JOBSET_NAME: job_set.metadata.name,
        constants.JOBSET_UID: job_set.metadata.uid or "",
        constants.REPLICATED_JOB_NAME: replicated_job.name,
        constants.REPLICATED_JOB_REPLICAS: str(replicated_job.replicas),
        GLOBAL_REPLICAS: str(sum(job.replicas for job in job_set.spec.replicated_jobs)),
        constants.JOB_INDEX: str(index),
        constants.JOB_GLOBAL_INDEX: str(before + index),
        JOB_KEY: _hash_job_key(f"{job_set.metadata.namespace}/{name}"),
        GROUP_NAME: replicated_job.group_name,
        GROUP_REPLICAS: str(
            sum(j.replicas for j in job_set.spec.replicated_jobs if j.group_name == replicated_job.group_name)
        ),
        JOB_GROUP_INDEX: str(before_in_group + index),
        constants.RESTART_ATTEMPT: str(job_set.status.restarts if job_set.status else 0),
    }
    if attempt := get_job_restarts(job_set, replicated_job.name, index):
        labels[JOB_RESTART_ATTEMPT] = str(attempt)
    if coordinator := job_set.spec.coordinator:
        host = build_job_name(job_set.metadata.name, coordinator.replicated_job, coordinator.job_index)
        labels[COORDINATOR] = f"{host}-{coordinator.pod_index}.{get_subdomain(job_set)}"
    return labels


def get_job_restarts(job_set: JobSet, replicated_job: str, index: int) -> int:
    """Return how often this one Job was restarted by a `RestartJob` rule."""
    for status in (job_set.status.replicated_jobs_status if job_set.status else None) or ():
        if status.name == replicated_job and status.job_restarts and index < len(status.job_restarts):
            return status.job_restarts[index]
    return 0


def _build_pod_template(
    job_set: JobSet, template: Json, labels: dict[str, str], placement: dict[str, str]
) -> Json:
    spec: Json = add_claim_volumes(job_set, template.get("spec") or {})
    network = job_set.spec.network
    if network is None or network.enable_dns_hostnames is not False:
        spec = {**spec, "subdomain": get_subdomain(job_set)}
    return {
        **template,
        "metadata": _extend(template.get("metadata"), labels, {**labels, **placement}),
        "spec": {**spec, "restartPolicy": spec.get("restartPolicy") or "OnFailure"},
    }


def _extend(metadata: Any, labels: dict[str, str], annotations: dict[str, str]) -> Json:
    known: Json = metadata or {}
    return {
        **known,
        "labels": {**(known.get("labels") or {}), **labels},
        "annotations": {**(known.get("annotations") or {}), **annotations},
    }


def _placement_annotations(job_set: JobSet, replicated_job: ReplicatedJob) -> dict[str, str]:
    own = (replicated_job.template.get("metadata") or {}).get("annotations") or {}
    result: dict[str, str] = {}
    for given in (job_set.metadata.annotations or {}, own):
        if EXCLUSIVE_TOPOLOGY in given:
            result |= {
                key: given[key] for key in (EXCLUSIVE_TOPOLOGY, NODE_SELECTOR_STRATEGY) if key in given
            }
    return result


def _replicas_before(job_set: JobSet, replicated_job: ReplicatedJob, group: str | None) -> int:
    total = 0
    for job in job_set.spec.replicated_jobs:
        if job.name == replicated_job.name:
            break
        if group is None or job.group_name == group:
            total += job.replicas
    return total


def _hash_job_key(key: str) -> str:
    # The label's value is defined as a SHA-1; nothing secret depends on it.
    return hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()
