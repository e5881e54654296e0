"""Reading the JobSet spec of a runtime, which is plain JSON: its replicated jobs, pods, containers.

The functions expect the shape that `template.shape` checks, and treat everything that is absent as empty.
What they return belongs to the template: it is read, never changed.
"""

from __future__ import annotations

from typing import Any

from trainwright.api.constants import ANCESTOR_LABEL
from trainwright.api.meta import Json

# The path of a pod spec below the JobSet spec, as `template.merge` writes paths.
POD_TEMPLATE_PATH = "replicatedJobs.template.spec.template"
POD_SPEC_PATH = f"{POD_TEMPLATE_PATH}.spec"


def list_replicated_jobs(spec: Json | None) -> list[Json]:
    """Return the replicated jobs of a JobSet spec, in order."""
    return (spec or {}).get("replicatedJobs") or []


def get_part(value: Json | None, *path: str) -> Json:
    """Return the map at the path, or an empty one."""
    for key in path:
        value = (value or {}).get(key)
    return value or {}


def get_job_spec(replicated_job: Json) -> Json:
    """Return the batch/v1 JobSpec of a replicated job."""
    return get_part(replicated_job, "template", "spec")


def get_pod_spec(replicated_job: Json) -> Json:
    """Return the core/v1 PodSpec of a replicated job."""
    return get_part(replicated_job, "template", "spec", "template", "spec")


def get_ancestor(replicated_job: Json) -> str | None:
    """Return which step of a TrainJob the replicated job is: the ancestor label of its Job template."""
    label: Any = get_part(replicated_job, "template", "metadata", "labels").get(ANCESTOR_LABEL)
    return label if isinstance(label, str) else None


def find_named(elements: list[Json] | None, name: str) -> Json | None:
    """Return the first element of that name."""
    return next((element for element in elements or () if element.get("name") == name), None)


def find_container(pod_spec: Json, name: str) -> Json | None:
    """Return the container of that name; containers are searched before init containers."""
    return find_named(pod_spec.get("containers"), name) or find_named(pod_spec.get("initContainers"), name)
