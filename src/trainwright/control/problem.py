"""What keeps a job from making progress, as a value: where it stands, a reason, and words.

One that keeps child objects from being made becomes the condition ResourcesCreated; each may become the
cause.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

from trainwright.api.constants import JOBSET_GROUP
from trainwright.api.meta import ObjectKey
from trainwright.control.seen import KIND_NOT_SERVED, Refusal

# The condition; present only while it is False (design section 4).
RESOURCES_CREATED: Final = "ResourcesCreated"

# Reasons that we give ourselves. Such a problem goes away as soon as it is no longer seen; any other reason
# is an API server's and stays until the write went through.
RUNTIME_NOT_FOUND: Final = "RuntimeNotFound"
SNAPSHOT_UNUSABLE: Final = "SnapshotUnusable"
SNAPSHOT_LOST: Final = "SnapshotLost"
NAME_TAKEN: Final = "NameTaken"
RENDER_FAILED: Final = "RenderFailed"
CLAIMS_WOULD_BE_DELETED: Final = "ClaimsWouldBeDeleted"
AUTHORITY_UNKNOWN: Final = "ProgressAuthorityUnknown"
OWN_REASONS: Final = frozenset(
    {
        RUNTIME_NOT_FOUND,
        SNAPSHOT_UNUSABLE,
        SNAPSHOT_LOST,
        NAME_TAKEN,
        RENDER_FAILED,
        CLAIMS_WOULD_BE_DELETED,
        AUTHORITY_UNKNOWN,
    }
)

# Which program a cluster lacks that does not know the kind of an object, by the group of the kind.
COSCHEDULING_NOT_INSTALLED: Final = "CoschedulingNotInstalled"
VOLCANO_NOT_INSTALLED: Final = "VolcanoNotInstalled"
NATIVE_GANGS_NOT_SERVED: Final = "NativeGangsNotServed"
JOB_SET_NOT_INSTALLED: Final = "JobSetNotInstalled"
_NOT_INSTALLED: Final = {
    "scheduling.x-k8s.io": COSCHEDULING_NOT_INSTALLED,
    "scheduling.volcano.sh": VOLCANO_NOT_INSTALLED,
    "scheduling.k8s.io": NATIVE_GANGS_NOT_SERVED,
    JOBSET_GROUP: JOB_SET_NOT_INSTALLED,
}
# Webhooks quote whole objects; a status is no place for them.
_MAX_MESSAGE: Final = 1_000


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One trouble; `layer`, `kind` and `name` say in which object the evidence stands, `at` since when."""

    reason: str
    message: str
    layer: str
    kind: str
    name: str
    at: datetime | None = None


def build_refusal_problem(refusal: Refusal) -> Problem:
    """Return the problem that a refused write is, in the server's words.

    Condition reasons are CamelCase words; what a server sends otherwise becomes `Refused`. A kind that the
    server does not know is named by what is not installed.
    """
    key = refusal.key
    group = refusal.api_version.partition("/")[0]
    reason = (
        _NOT_INSTALLED.get(group, refusal.reason) if refusal.reason == KIND_NOT_SERVED else refusal.reason
    )
    named = refusal.message if key.name and key.name in refusal.message else f"{key}: {refusal.message}"
    if len(named) > _MAX_MESSAGE:
        named = named[:_MAX_MESSAGE] + " ..."
    return Problem(
        reason=reason if reason.isalnum() and reason[0].isalpha() else "Refused",
        message=named,
        layer=_LAYERS.get(key.kind, "JobSet"),
        kind=key.kind,
        name=key.name,
    )


def build_missing_runtime_problem(key: ObjectKey) -> Problem:
    """Return the problem of a runtime that does not exist."""
    where = f"in namespace {key.namespace!r}" if key.namespace else "in this cluster"
    return Problem(
        reason=RUNTIME_NOT_FOUND,
        message=f"{key.kind} {key.name!r} does not exist {where}",
        layer="Runtime",
        kind=key.kind,
        name=key.name,
    )


# What goes into a JobSet (ConfigMaps, Secrets, PodGroups) counts as part of it.
_LAYERS: Final = {"TrainJob": "TrainJob", "JobSet": "JobSet", "Job": "Job", "Pod": "Pod"}
