"""A cluster that nobody asks: files are checked against the program's own rules and runtimes alone.

What `validate` and `render` do for a cluster unless they are told to look: the same answer on a laptop, in a
pull request and without any rights.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NoReturn

from trainwright.api.core import Event
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.runtime import ClusterTrainingRuntime
from trainwright.cluster.port import Change, Cluster, ObjectList
from trainwright.errors import NotFound, TargetUnreachable
from trainwright.runtimes import load_shipped_runtimes


class NoObjects:
    """`cluster.port.Cluster` without any object; nothing can be written."""

    async def get(self, key: ObjectKey) -> Json:
        """Raise NotFound."""
        raise NotFound(key.kind, key.name)

    async def list(
        self,
        kind: str,  # noqa: ARG002
        namespace: str | None = None,  # noqa: ARG002
        labels: dict[str, str] | None = None,  # noqa: ARG002
    ) -> ObjectList:
        """Return nothing."""
        return ObjectList([], "0")

    async def list_events(self, namespace: str, about: Sequence[str]) -> Sequence[Json]:  # noqa: ARG002
        """Return nothing."""
        return ()

    def watch(
        self,
        kinds: Sequence[str],  # noqa: ARG002
        namespace: str | None,  # noqa: ARG002
        resource_version: str,  # noqa: ARG002
    ) -> AsyncIterator[Change]:
        """Refuse."""
        _refuse()

    async def create(self, obj: Json) -> Json:  # noqa: ARG002
        """Refuse."""
        _refuse()

    async def apply(self, obj: Json, field_manager: str, *, force: bool = True) -> Json:  # noqa: ARG002
        """Refuse."""
        _refuse()

    async def patch(self, key: ObjectKey, merge: Json) -> Json:  # noqa: ARG002
        """Refuse."""
        _refuse()

    async def patch_status(self, key: ObjectKey, merge: Json) -> Json:  # noqa: ARG002
        """Refuse."""
        _refuse()

    async def delete(self, key: ObjectKey, uid: str | None = None) -> None:  # noqa: ARG002
        """Refuse."""
        _refuse()

    async def record_event(self, event: Event) -> None:  # noqa: ARG002
        """Refuse."""
        _refuse()


class OfflineSource:
    """What admission needs, from the program alone."""

    admits_writes = False

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._cluster = NoObjects()

    @property
    def cluster(self) -> Cluster:
        """No objects."""
        return self._cluster

    def list_shipped_runtimes(self) -> Mapping[str, ClusterTrainingRuntime]:
        """Return them all: an installation has them."""
        return load_shipped_runtimes()

    def build_annotations(self) -> dict[str, str]:
        """Return none: a cluster need not know of the caller."""
        return {}

    async def preview(self, obj: Json, field_manager: str, *, force: bool = True) -> Json:  # noqa: ARG002
        """Return the object: there is none that it would change."""
        return obj


@asynccontextmanager
async def open_offline(namespace: str) -> AsyncIterator[OfflineSource]:
    """Return the source; nothing is opened."""
    yield OfflineSource(namespace)


def _refuse() -> NoReturn:
    raise TargetUnreachable("nothing is written offline")
