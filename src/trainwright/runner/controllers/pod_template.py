"""Makes one pod of a Job, as the Job controller of Kubernetes does."""

from __future__ import annotations

from typing import Final

from trainwright.api.batch import Job
from trainwright.api.constants import BATCH_JOB_NAME, COMPLETION_INDEX, RANK_FIELD_PATH
from trainwright.api.encoding import build_json
from trainwright.api.meta import Json, build_owner_reference

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
LEGACY_JOB_NAME: Final = "job-name"
LEGACY_CONTROLLER_UID: Final = "controller-uid"
INDEX_ENV: Final = "JOB_COMPLETION_INDEX"


def build_pod(job: Job, index: int | None, suffix: str) -> Json:
    """Return a pod of this Job; `index` is its completion index, None in a Job that is not Indexed.

    The index is a label, an annotation, and `JOB_COMPLETION_INDEX` in every container that does not set it.
    """
    template = job.spec.template
    metadata: Json = template.get("metadata") or {}
    spec: Json = template.get("spec") or {}
    uid = job.metadata.uid or ""
    labels = {
        **(metadata.get("labels") or {}),
        BATCH_JOB_NAME: job.metadata.name,
        LEGACY_JOB_NAME: job.metadata.name,
        CONTROLLER_UID: uid,
        LEGACY_CONTROLLER_UID: uid,
    }
    annotations = dict(metadata.get("annotations") or {})
    name = job.metadata.name
    if index is not None:
        name = f"{name}-{index}"
        labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(index)
        spec = {"hostname": name, **_add_index_env(spec)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **metadata,
            "name": f"{name}-{suffix}",
            "namespace": job.metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [build_json(build_owner_reference("batch/v1", "Job", job.metadata))],
        },
        "spec": spec,
    }


def _add_index_env(spec: Json) -> Json:
    entry = {"name": INDEX_ENV, "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}}

    def add(container: Json) -> Json:
        env = container.get("env") or []
        if any(known.get("name") == INDEX_ENV for known in env):
            return container
        return {**container, "env": [*env, entry]}

    groups = {
        group: [add(container) for container in spec[group]]
        for group in ("initContainers", "containers")
        if spec.get(group)
    }
    return {**spec, **groups}
