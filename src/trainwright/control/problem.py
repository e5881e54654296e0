"""What keeps a job from making progress, as a value: where it stands, a reason, and words.

One that keeps child objects from being made becomes the condition ResourcesCreated; each may become the
cause.
"""

from __future__ import annotations

from typing import Final

import msgspec

from trainwright.api.meta import ObjectKey
from trainwright.control.seen import Refusal

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
OWN_REASONS: Final = frozenset(
    {
        RUNTIME_NOT_FOUND,
        SNAPSHOT_UNUSABLE,
        SNAPSHOT_LOST,
        NAME_TAKEN,
        RENDER_FAILED,
        CLAIMS_WOULD_BE_DELETED,
    }
)

# Webhooks quote whole objects; a status is no place for them.
_MAX_MESSAGE: Final = 1_000


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One trouble; `layer`, `kind` and `name` say in which object the evidence stands."""

    reason: str
    message: str
    layer: str
    kind: str
    name: str


def build_refusal_problem(refusal: Refusal) -> Problem:
    """Return the problem that a refused write is, in the server's words.

    Condition reasons are CamelCase words; what a server sends otherwise becomes `Refused`.
    """
    key = refusal.key
    named = refusal.message if key.name and key.name in refusal.message else f"{key}: {refusal.message}"
    if len(named) > _MAX_MESSAGE:
        named = named[:_MAX_MESSAGE] + " ..."
    return Problem(
        reason=refusal.reason if refusal.reason.isalnum() and refusal.reason[0].isalpha() else "Refused",
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
