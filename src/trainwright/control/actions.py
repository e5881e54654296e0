"""What `decide` can ask for. Plain values: a dry run prints them, a test compares them."""

from __future__ import annotations

import msgspec

from trainwright.api.meta import Json, ObjectKey, ObjectMeta
from trainwright.api.trainjob import TrainJobStatus


class Apply(msgspec.Struct, frozen=True, kw_only=True):
    """Server-side apply of a whole object with field manager `trainer`, forced."""

    object: Json


class EnsureSecret(msgspec.Struct, frozen=True, kw_only=True):
    """Create a Secret with data of the named generator, unless it exists; one that does is never changed.

    The object has no data: what is decided can be printed.
    """

    object: Json
    generator: str


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """JSON merge patch of an object; only for single fields such as `spec.suspend`."""

    key: ObjectKey
    merge: Json


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete an object (background propagation). `uid` guards against a newer object of the same name."""

    key: ObjectKey
    uid: str | None = None


class PatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Write the whole status that the control part owns: everything but `trainerStatus`.

    The shell sends a merge patch in which fields that are gone are null. A `trainer_status` is not sent: the
    progress endpoint writes it. One that was observed and is absent here goes.
    """

    key: ObjectKey
    status: TrainJobStatus


class Emit(msgspec.Struct, frozen=True, kw_only=True):
    """Record a core/v1 event about an object. `type` is Normal or Warning."""

    about: ObjectMeta
    kind: str
    type: str
    reason: str
    message: str


class RequeueAfter(msgspec.Struct, frozen=True, kw_only=True):
    """Look again after so many seconds, even if nothing changes."""

    seconds: float


Action = Apply | EnsureSecret | Patch | Delete | PatchStatus | Emit | RequeueAfter
