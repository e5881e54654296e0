"""Building a replicated job that differs from another in its pod.

Every level above what differs is made anew, the rest is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trainwright.api.meta import Json
from trainwright.template.replicated_jobs import get_part

Rewrite = Callable[[Json], Json]


def rewrite_job_spec(replicated_job: Json, rewrite: Rewrite) -> Json:
    """Return the replicated job with another batch/v1 JobSpec."""
    template = get_part(replicated_job, "template")
    return {**replicated_job, "template": {**template, "spec": rewrite(get_part(template, "spec"))}}


def rewrite_pod_template(replicated_job: Json, rewrite: Rewrite) -> Json:
    """Return the replicated job with another core/v1 PodTemplateSpec."""
    return rewrite_job_spec(
        replicated_job, lambda job_spec: {**job_spec, "template": rewrite(get_part(job_spec, "template"))}
    )


def rewrite_pod_spec(replicated_job: Json, rewrite: Rewrite) -> Json:
    """Return the replicated job with another core/v1 PodSpec."""
    return rewrite_pod_template(
        replicated_job, lambda template: {**template, "spec": rewrite(get_part(template, "spec"))}
    )


def rewrite_containers(replicated_job: Json, rewrites: Mapping[str, Rewrite]) -> Json:
    """Return the replicated job with other containers where a rewrite has the container's name.

    Containers come before init containers: a name that is among both means the container.
    """
    return rewrite_pod_spec(replicated_job, lambda pod_spec: rewrite_containers_of(pod_spec, rewrites))


def rewrite_containers_of(pod_spec: Json, rewrites: Mapping[str, Rewrite]) -> Json:
    """Return the pod spec with other containers where a rewrite has the container's name."""
    rewritten = dict(pod_spec)
    left = dict(rewrites)
    for field in ("containers", "initContainers"):
        containers = pod_spec.get(field)
        if containers:
            rewritten[field] = [
                left[container["name"]](container) if container["name"] in left else container
                for container in containers
            ]
            for container in containers:
                left.pop(container["name"], None)
    return rewritten
