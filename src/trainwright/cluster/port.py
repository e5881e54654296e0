"""The port: the verbs of an API server. `decide` never sees which adapter is behind it.

Objects go in and out as plain JSON with `apiVersion` and `kind`. Every write returns the object as stored.
Errors are those of `trainwright.errors`: NotFound, AlreadyExists, Conflict (stale resourceVersion or uid),
InvalidObject, Forbidden, TargetUnreachable.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from trainwright.api.core import Event
from trainwright.api.meta import Json, ObjectKey


class ChangeType(StrEnum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Change(msgspec.Struct, frozen=True):
    """One change of one object; for DELETED, `object` is its last state."""

    type: ChangeType
    object: Json


class ObjectList(msgspec.Struct, frozen=True):
    """Objects, and the resource version at which they were all seen at once."""

    items: list[Json]
    resource_version: str


class Writer(Protocol):
    """The verbs that `perform` needs."""

    async def get(self, key: ObjectKey) -> Json:
        """Return the object. Raises NotFound."""
        ...

    async def create(self, obj: Json) -> Json:
        """Store a new object (`generateName` is honoured) without its status. Raises AlreadyExists."""
        ...

    async def apply(self, obj: Json, field_manager: str, *, force: bool = True) -> Json:
        """Server-side apply: own the fields in `obj`, drop fields owned before and now absent."""
        ...

    async def patch(self, key: ObjectKey, merge: Json) -> Json:
        """JSON merge patch of everything but the status; a resourceVersion or uid in it is a precondition."""
        ...

    async def patch_status(self, key: ObjectKey, merge: Json) -> Json:
        """JSON merge patch of `status` alone, `{"status": {...}}`; preconditions as for `patch`."""
        ...

    async def delete(self, key: ObjectKey, uid: str | None = None) -> None:
        """Delete the object and what it owns. Raises NotFound, or Conflict if its uid is another."""
        ...

    async def record_event(self, event: Event) -> None:
        """Record an event; equal ones are counted in one object."""
        ...


class Cluster(Writer, Protocol):
    """The verbs of an API server."""

    async def list(
        self, kind: str, namespace: str | None = None, labels: dict[str, str] | None = None
    ) -> ObjectList:
        """Return the objects of a kind, of all namespaces where none is given, that have all the labels."""
        ...

    def watch(
        self, kinds: Sequence[str], namespace: str | None, resource_version: str
    ) -> AsyncIterator[Change]:
        """Yield changes after the resource version, in order, until the caller stops. Raises Expired.

        The last state of every object comes; states in between may be left out, as may objects that came
        and went: what is yielded ends in what a list returns. So ADDED or MODIFIED is a hint, and a DELETED
        may be of an object that was never yielded.
        """
        ...

    async def list_events(self, namespace: str, about: Sequence[str]) -> Sequence[Json]:
        """Return the core/v1 events of a namespace about the objects with these uids, in any order."""
        ...


class Expired(Exception):
    """The history no longer reaches back to that resource version: list again."""
