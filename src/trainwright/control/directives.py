"""What of its pods a suspended JobSet lets change: where they may run, and their labels.

On resume JobSet *merges* these into the Jobs that exist and takes nothing away, so a selector that was taken
back would survive in a Job made before. Two questions follow, answered here for a stored and a rendered
JobSet: are they the same, and is what is rendered only more than what is stored?
Source: spec 02, sections 14.6 and 14.7; clients, section 2.4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from trainwright.api.batch import Job
from trainwright.api.encoding import encode_canonical
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json
from trainwright.control.view import find_place

# On a JobSet that was applied while suspended: the hash of the directives in that apply. Where somebody else
# adds labels of their own, stored and rendered never are the same; this says that ours have arrived.
DIRECTIVES_ANNOTATION: Final = "trainer.kubeflow.org/directives-hash"

Directives = dict[str, dict[str, Any]]

JOBSET_DOMAIN: Final = "jobset.sigs.k8s.io"
_IN_METADATA: Final = ("labels", "annotations")
_IN_SPEC: Final = ("nodeSelector", "tolerations", "schedulingGates")


def are_applied(job_set: JobSet, rendered: Json) -> bool:
    """Say whether the JobSet holds the rendered directives, as they are now."""
    stored, wanted = _get_stored(job_set), _get_rendered(rendered)
    if stored == wanted:
        return True
    return (job_set.metadata.annotations or {}).get(DIRECTIVES_ANNOTATION) == _hash(wanted)


def are_only_added(job_set: JobSet, rendered: Json) -> bool:
    """Say whether a merge of the rendered directives into the stored ones gives the rendered ones."""
    stored, wanted = _get_stored(job_set), _get_rendered(rendered)
    return all(
        all(item in wanted.get(name, {}).get(field, ()) for item in value)
        for name, fields in stored.items()
        for field, value in fields.items()
    )


def is_clean(job: Job, job_set: JobSet) -> bool:
    """Say whether a Job keeps its pods from no place that its JobSet does not keep them from.

    JobSet's own entries, for exclusive placement, count as its. Labels tell nothing: others add theirs.
    """
    role = find_place(job.metadata).replicated_job
    template = next((entry.template for entry in job_set.spec.replicated_jobs if entry.name == role), {})
    wanted = ((template.get("spec") or {}).get("template") or {}).get("spec") or {}
    held = job.spec.template.get("spec") or {}
    selector = (wanted.get("nodeSelector") or {}).items()
    return all(
        item in selector or _is_of_job_set(item[0]) for item in (held.get("nodeSelector") or {}).items()
    ) and all(
        item in (wanted.get(field) or ()) or _is_of_job_set(item.get("key") or "")
        for field in ("tolerations", "schedulingGates")
        for item in held.get(field) or ()
    )


def build_marked(rendered: Json) -> Json:
    """Return the rendered JobSet with the hash of its directives as an annotation."""
    metadata = rendered["metadata"]
    annotations = {
        **(metadata.get("annotations") or {}),
        DIRECTIVES_ANNOTATION: _hash(_get_rendered(rendered)),
    }
    return {**rendered, "metadata": {**metadata, "annotations": annotations}}


def _get_stored(job_set: JobSet) -> Directives:
    return _collect((entry.name, entry.template) for entry in job_set.spec.replicated_jobs)


def _get_rendered(rendered: Json) -> Directives:
    return _collect((entry["name"], entry["template"]) for entry in rendered["spec"]["replicatedJobs"])


def _collect(templates: Iterable[tuple[str, Json]]) -> Directives:
    """Return the directives by replicated job; an empty one is the same as none."""
    collected: Directives = {}
    for name, job_template in templates:
        pod_template = (job_template.get("spec") or {}).get("template") or {}
        metadata, spec = pod_template.get("metadata") or {}, pod_template.get("spec") or {}
        collected[name] = {
            **{field: metadata[field] for field in _IN_METADATA if metadata.get(field)},
            **{field: spec[field] for field in _IN_SPEC if spec.get(field)},
        }
    return collected


def _is_of_job_set(key: str) -> bool:
    return key.partition("/")[0].endswith(JOBSET_DOMAIN)


def _hash(directives: Directives) -> str:
    return hashlib.sha256(encode_canonical(directives)).hexdigest()[:16]
