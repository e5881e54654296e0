"""Volume claim policies of a JobSet: which claims exist, and which pods mount them.

The claims are objects like any other here; the folders behind them are in `runner.pods.claim_folders`.
Source: spec 02, sections 14.1 and 14.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainwright.api import constants
from trainwright.api.encoding import build_json
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json, build_owner_reference
from trainwright.runner.controllers.names import build_claim_name

CLAIM_KIND: Final = "PersistentVolumeClaim"
DELETE: Final = "Delete"


def build_claims(job_set: JobSet) -> list[Json]:
    """Return the claims of all policies; those with retention Delete go with the JobSet, which owns them."""
    owner = build_json(
        build_owner_reference(constants.JOBSET_API_VERSION, constants.JOB_SET, job_set.metadata)
    )
    claims: list[Json] = []
    for template, retention in _iterate_templates(job_set):
        metadata: Json = template.get("metadata") or {}
        claims.append(
            {
                "apiVersion": "v1",
                "kind": CLAIM_KIND,
                "metadata": {
                    **metadata,
                    "name": build_claim_name(metadata.get("name", ""), job_set.metadata.name),
                    "namespace": job_set.metadata.namespace,
                    "labels": {
                        **(metadata.get("labels") or {}),
                        constants.JOBSET_NAME: job_set.metadata.name,
                    },
                    **({"ownerReferences": [owner]} if retention == DELETE else {}),
                },
                "spec": template.get("spec") or {},
            }
        )
    return claims


def add_claim_volumes(job_set: JobSet, pod_spec: Json) -> Json:
    """Return the pod spec with a volume for every claim that a container of it mounts by name."""
    mounted = {
        mount.get("name")
        for group in ("initContainers", "containers")
        for container in pod_spec.get(group) or ()
        for mount in container.get("volumeMounts") or ()
    }
    known = {volume.get("name") for volume in pod_spec.get("volumes") or ()}
    added = [
        {
            "name": name,
            "persistentVolumeClaim": {"claimName": build_claim_name(name, job_set.metadata.name)},
        }
        for name in (
            (template.get("metadata") or {}).get("name", "") for template, _ in _iterate_templates(job_set)
        )
        if name in mounted and name not in known
    ]
    return {**pod_spec, "volumes": [*(pod_spec.get("volumes") or ()), *added]} if added else pod_spec


def _iterate_templates(job_set: JobSet) -> Iterator[tuple[Json, str]]:
    for policy in job_set.spec.volume_claim_policies or ():
        retention = (policy.get("retentionPolicy") or {}).get("whenDeleted") or DELETE
        for template in policy.get("templates") or ():
            yield template, retention
