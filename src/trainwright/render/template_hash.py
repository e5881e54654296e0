"""May a JobSet be kept when its TrainJob is resumed? The hash of all that JobSet holds immutable tells.

The hash stands in an annotation of the JobSet, so that the question needs neither the old template nor a
comparison with what the API server filled in. Source: spec 02 section 14.6.
"""

from __future__ import annotations

import hashlib
from typing import Final

from trainwright.api.constants import TEMPLATE_HASH_ANNOTATION
from trainwright.api.encoding import encode_canonical
from trainwright.api.meta import Json, ObjectMeta
from trainwright.template.replicated_jobs import get_part
from trainwright.template.rewrite import rewrite_pod_template

_MUTABLE_IN_SPEC: Final = frozenset({"suspend", "ttlSecondsAfterFinished", "coordinator"})
_MUTABLE_IN_POD_METADATA: Final = frozenset({"labels", "annotations"})
_MUTABLE_IN_POD_SPEC: Final = frozenset({"nodeSelector", "tolerations", "schedulingGates"})


def build_template_hash(spec: Json) -> str:
    """Return the hash of what cannot be changed in a rendered JobSet spec: 16 hexadecimal digits."""
    immutable = _without(spec, _MUTABLE_IN_SPEC)
    immutable["replicatedJobs"] = [
        rewrite_pod_template(replicated_job, _drop_mutable) for replicated_job in spec["replicatedJobs"]
    ]
    return hashlib.sha256(encode_canonical(immutable)).hexdigest()[:16]


def may_keep(existing: ObjectMeta, rendered: Json) -> bool:
    """Say whether an existing, suspended JobSet becomes the rendered one by an apply; else it is made anew.

    One without the annotation, which another program made, is not kept.
    """
    wanted = get_part(rendered, "metadata", "annotations").get(TEMPLATE_HASH_ANNOTATION)
    return wanted is not None and (existing.annotations or {}).get(TEMPLATE_HASH_ANNOTATION) == wanted


def _drop_mutable(pod_template: Json) -> Json:
    rest = _without(pod_template, frozenset({"metadata"}))
    metadata = _without(get_part(pod_template, "metadata"), _MUTABLE_IN_POD_METADATA)
    if metadata:
        rest["metadata"] = metadata
    rest["spec"] = _without(get_part(pod_template, "spec"), _MUTABLE_IN_POD_SPEC)
    return rest


def _without(value: Json, keys: frozenset[str]) -> Json:
    return {key: item for key, item in value.items() if key not in keys}
