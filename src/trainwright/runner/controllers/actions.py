"""What the JobSet and Job controllers ask for. Plain values: a test compares them, a log prints them.

They are apart from `control.actions` because these controllers stand where Kubernetes' own stand: they create
children, write other kinds' status and delete in the foreground (the object stays, marked, until what it owns
has ended), none of which the TrainJob controller may do.
"""

from __future__ import annotations

import msgspec

from trainwright.api.meta import Json, ObjectKey
from trainwright.control.actions import Emit, Patch, RequeueAfter

__all__ = ["Action", "Create", "Emit", "MarkDeleted", "Patch", "Remove", "RequeueAfter", "WriteStatus"]


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Store a new object. One of that name which is already there is left alone."""

    object: Json


class MarkDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Begin a foreground deletion: set `metadata.deletionTimestamp`, once.

    The Job controller then ends the pods of a Job, the kubelet part the processes of a pod; whoever sees that
    nothing is left asks for `Remove`.
    """

    key: ObjectKey


class Remove(msgspec.Struct, frozen=True, kw_only=True):
    """Delete an object for good, together with what it owns. `uid` guards against a newer one."""

    key: ObjectKey
    uid: str | None = None


class WriteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the whole status of an object; `before` is the status it was computed from."""

    key: ObjectKey
    status: Json
    before: Json


Action = Create | Patch | MarkDeleted | Remove | WriteStatus | Emit | RequeueAfter
