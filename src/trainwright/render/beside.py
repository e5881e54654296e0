"""The objects beside the JobSet that frameworks ask for: Secrets and ConfigMaps that pods mount."""

from __future__ import annotations

from trainwright.api.constants import GENERATED_DATA_ANNOTATION
from trainwright.api.encoding import build_json
from trainwright.api.meta import Json, build_owner_reference
from trainwright.api.trainjob import TrainJob
from trainwright.frameworks.contract import Contribution, GeneratedSecret


def list_objects(contribution: Contribution) -> list[Json]:
    """Return the objects in the order in which to write them."""
    return [*map(_build_secret, contribution.secrets), *contribution.objects]


def own(obj: Json, job: TrainJob) -> Json:
    """Return the object in the job's namespace and, where the job has a uid, owned by it."""
    metadata = {**(obj.get("metadata") or {}), "namespace": job.metadata.namespace}
    if job.metadata.uid is not None:
        owner = build_owner_reference(job.api_version, job.kind, job.metadata)
        metadata["ownerReferences"] = [build_json(owner)]
    return {**obj, "metadata": metadata}


def _build_secret(secret: GeneratedSecret) -> Json:
    """Return the Secret as it is created, but for its data."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret.name, "annotations": {GENERATED_DATA_ANNOTATION: secret.generator}},
        "type": secret.type,
        "immutable": True,
    }
