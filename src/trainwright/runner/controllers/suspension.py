"""How child Jobs follow the JobSet's `suspend` (spec 02, section 14.7, "Suspend")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainwright.api.batch import Job
from trainwright.api.jobset import ReplicatedJob
from trainwright.api.meta import Json, ObjectKey
from trainwright.control.actions import Patch


def build_suspend(job: Job) -> Patch:
    """Return the patch that suspends a Job."""
    return Patch(key=_get_key(job), merge={"spec": {"suspend": True}})


def build_resume(job: Job, replicated_job: ReplicatedJob) -> Patch:
    """Return the patch that resumes a Job with what may have changed in the JobSet meanwhile.

    Labels, annotations, node selector, tolerations and scheduling gates of the pod template are merged in:
    keys that are gone from the JobSet stay, as JobSet has it.
    """
    wanted = (replicated_job.template.get("spec") or {}).get("template") or {}
    metadata, spec = wanted.get("metadata") or {}, wanted.get("spec") or {}
    current = job.spec.template.get("spec") or {}
    template_metadata = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    template_spec: Json = {}
    if selector := spec.get("nodeSelector"):
        template_spec["nodeSelector"] = selector
    for key in ("tolerations", "schedulingGates"):
        if spec.get(key):
            template_spec[key] = _join(current.get(key) or (), spec[key])
    template: Json = {}
    if template_metadata:
        template["metadata"] = template_metadata
    if template_spec:
        template["spec"] = template_spec
    return Patch(
        key=_get_key(job),
        merge={"spec": {"suspend": False, **({"template": template} if template else {})}},
    )


def _join(old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
    return [*old, *(item for item in new if item not in old)]


def _get_key(job: Job) -> ObjectKey:
    return ObjectKey("Job", job.metadata.namespace or "", job.metadata.name)
