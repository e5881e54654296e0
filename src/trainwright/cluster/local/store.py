"""The embedded store: the verbs of an API server over one SQLite file, for several processes at once.

Every command and every supervisor of a running job opens the same file. A write is one transaction that holds
the write lock from before it reads until after it wrote, so no two writers can lose each other's changes.

The verbs are coroutines because the port's are; what they do takes well under a millisecond and runs inline.
A thread would cost more than the call (a hand-over is about 50 us, a `get` about 20 us), and would let other
tasks see the store between the statements of a transaction. A store belongs to one event loop, and is not to
be used in a forked child.
"""

from __future__ import annotations

import random
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from trainwright.api.core import Event
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.local.events import build_event, build_event_key, build_repeated_event
from trainwright.cluster.local.field_managers import (
    FieldManagers,
    apply_configuration,
    decode_managers,
    encode_managers,
    record_update,
)
from trainwright.cluster.local.garbage import EVENT_LIFETIME_SECONDS, delete_expired, delete_record
from trainwright.cluster.local.merge_patch import merge_patch
from trainwright.cluster.local.objects import (
    build_new,
    build_update,
    check_precondition,
    get_metadata,
    normalise_key,
    parse_incoming,
    parse_precondition,
)
from trainwright.cluster.local.records import (
    Record,
    decode_objects,
    find_by_entry,
    find_record,
    get_record,
    insert_record,
    is_there,
    label_entry,
    list_bodies,
    read_changes,
    read_counter,
    replace_record,
)
from trainwright.cluster.local.schema import open_database, translate_errors
from trainwright.cluster.local.watch import ChangeSignal
from trainwright.cluster.port import Change, ChangeType, Expired, ObjectList
from trainwright.errors import AlreadyExists, InvalidObject
from trainwright.field_errors import FieldError, Rule

_CHANGES_AT_ONCE: Final = 256

# As an API server does: no vowels (no words), nothing that looks like another letter; the whole fits a label.
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_GENERATED_LIMIT: Final = 63
_GENERATE_ATTEMPTS: Final = 8


def _read_clock() -> datetime:
    return datetime.now(UTC)


class LocalCluster:
    """A `Cluster` in a file. Close it, or use it as a context manager."""

    def __init__(self, path: Path, clock: Callable[[], datetime] = _read_clock) -> None:
        """Open the store, made where it is not there yet. Raises StateDirectoryError."""
        self._path = path
        self._clock = clock
        self._connection = open_database(path)
        self._closed = False
        self._signal = ChangeSignal(self._read_data_version)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store; watches of this process end."""
        if self._closed:
            return
        self._closed = True
        self._signal.notify()
        with translate_errors(self._path):
            self._connection.close()

    async def get(self, key: ObjectKey) -> Json:
        """Return the object. Raises NotFound."""
        with self._reading() as connection:
            return get_record(connection, normalise_key(key)).object

    async def list(
        self, kind: str, namespace: str | None = None, labels: dict[str, str] | None = None
    ) -> ObjectList:
        """Return the objects of a kind that have all the labels, ordered by namespace and name."""
        entries = [label_entry(name, value) for name, value in (labels or {}).items()]
        with self._reading() as connection:
            version, _ = read_counter(connection)
            items = decode_objects(list_bodies(connection, kind, namespace, entries))
        return ObjectList(items=items, resource_version=str(version))

    async def list_events(self, namespace: str, about: Sequence[str]) -> Sequence[Json]:
        """Return the events of a namespace about the objects with these uids, of each object oldest first."""
        with self._reading() as connection:
            records = [record for uid in about for record in find_by_entry(connection, "about", uid)]
        return [record.object for record in records if record.key.namespace == namespace]

    async def watch(
        self, kinds: Sequence[str], namespace: str | None, resource_version: str
    ) -> AsyncIterator[Change]:
        """Yield what changes after the resource version, until the caller stops or the store is closed.

        States that were overwritten before they were read are left out, and so are objects that came and
        went; what is yielded is in order and ends in what a list returns. Raises Expired.
        """
        after = int(resource_version)
        while not self._closed:
            with self._reading() as connection:
                seen = self._read_data_version()
                last, forgotten = read_counter(connection)
                if not forgotten <= after <= last:
                    raise Expired(f"resource version {after} is not one of {forgotten} to {last}: list again")
                rows = list(read_changes(connection, kinds, namespace, after, _CHANGES_AT_ONCE))
                objects = decode_objects([row.body for row in rows])
            begin, after = after, rows[-1].resource_version if len(rows) == _CHANGES_AT_ONCE else last
            for row, obj in zip(rows, objects, strict=True):
                is_new = row.created_version > begin
                if not row.deleted:
                    yield Change(ChangeType.ADDED if is_new else ChangeType.MODIFIED, obj)
                elif not is_new:
                    yield Change(ChangeType.DELETED, obj)
            if not rows:
                await self._signal.wait(seen)

    async def create(self, obj: Json) -> Json:
        """Store a new object, without its status (`patch_status` writes that). Raises AlreadyExists."""
        key, body = parse_incoming(obj)
        with self._writing() as connection:
            if key.name:
                if find_record(connection, key) is not None:
                    raise AlreadyExists(key.kind, key.name, "change it, delete it first, or use another name")
            else:
                key = _generate_key(connection, key, body["metadata"]["generateName"])
            return self._insert(connection, key, body, None)

    async def apply(self, obj: Json, field_manager: str, *, force: bool = True) -> Json:
        """Server-side apply: own the fields in `obj`, drop fields owned before and now absent."""
        key, configuration = parse_incoming(obj)
        if not key.name:
            detail = "is missing: what is applied needs a name, generateName does not do"
            raise InvalidObject([FieldError(path="metadata.name", rule=Rule.REQUIRED, detail=detail)])
        with self._writing() as connection:
            record = find_record(connection, key)
            live = record.object if record else None
            if live is not None:
                check_precondition(parse_precondition(obj), key, live["metadata"])
            managers = decode_managers(record.managers) if record else None
            applied = apply_configuration(live, managers, configuration, field_manager, force)
            if record is None or live is None:
                return self._insert(connection, key, applied.object, applied.managers)
            updated = build_update(live, applied.object)
            return replace_record(connection, record, updated, encode_managers(applied.managers))

    async def preview_apply(self, obj: Json, field_manager: str) -> Json:
        """Return what a forced `apply` of the object would store, without storing it."""
        key, configuration = parse_incoming(obj)
        with self._reading() as connection:
            record = find_record(connection, key)
            live = record.object if record else None
            managers = decode_managers(record.managers) if record else None
            applied = apply_configuration(live, managers, configuration, field_manager, force=True)
            return applied.object if live is None else build_update(live, applied.object)

    async def patch(self, key: ObjectKey, merge: Json) -> Json:
        """JSON merge patch of everything but the status."""
        with self._writing() as connection:
            record, live = self._read_for_patch(connection, key, merge)
            body = merge_patch(live, {name: value for name, value in merge.items() if name != "status"})
            _check_identity(live, body)
            _, accepted = parse_incoming(body)
            if "status" in live:
                accepted["status"] = live["status"]
            updated = build_update(live, accepted)
            managers = record.managers
            if managers is not None:
                managers = encode_managers(record_update(decode_managers(managers), live, updated))
            return replace_record(connection, record, updated, managers)

    async def patch_status(self, key: ObjectKey, merge: Json) -> Json:
        """JSON merge patch of `status` alone; a resourceVersion or uid in `metadata` is a precondition."""
        with self._writing() as connection:
            record, live = self._read_for_patch(connection, key, merge)
            updated = merge_patch(live, {"status": _get_status(merge)})
            return replace_record(connection, record, updated, record.managers)

    async def delete(self, key: ObjectKey, uid: str | None = None) -> None:
        """Delete the object and what it owns. Raises NotFound, or Conflict if its uid is another."""
        with self._writing() as connection:
            record, _ = self._read_for_patch(connection, key, {"metadata": {"uid": uid}})
            delete_record(connection, record, self._clock().timestamp())

    async def record_event(self, event: Event) -> None:
        """Record an event; equal ones are counted in one object."""
        key = build_event_key(event)
        with self._writing() as connection:
            now = self._clock()
            delete_expired(connection, now.timestamp())
            expires = now.timestamp() + EVENT_LIFETIME_SECONDS
            if (record := find_record(connection, key)) is not None:
                repeated = build_repeated_event(record.object, event, now)
                replace_record(connection, record, repeated, record.managers)
                connection.execute(
                    "UPDATE objects SET expires = ? WHERE id = ? AND expires IS NOT NULL",
                    (expires, record.id),
                )
                return
            obj = build_new(build_event(event, key, now), key, str(uuid.uuid4()), now)
            known = is_there(connection, event.involved_object.uid)
            insert_record(connection, key, obj, None, None if known else expires)

    def _insert(
        self, connection: sqlite3.Connection, key: ObjectKey, body: Json, managers: FieldManagers | None
    ) -> Json:
        obj = build_new(body, key, str(uuid.uuid4()), self._clock())
        return insert_record(connection, key, obj, encode_managers(managers))

    def _read_for_patch(
        self, connection: sqlite3.Connection, key: ObjectKey, merge: Json
    ) -> tuple[Record, Json]:
        """Return what a write is about to change, after its preconditions hold."""
        record = get_record(connection, normalise_key(key))
        live = record.object
        check_precondition(parse_precondition(merge), record.key, live["metadata"])
        return record, live

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Give one state of the store to several statements."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Hold the write lock; commit all of it or nothing."""
        # IMMEDIATE: a transaction that reads first and writes then could find that somebody wrote in between.
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection
        self._signal.notify()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        connection = self._connection
        with translate_errors(self._path):
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                # SQLite has rolled back by itself when the disk was full.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _read_data_version(self) -> int:
        """Return a number that changes whenever another connection commits."""
        with translate_errors(self._path):
            version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
            return version


def _generate_key(connection: sqlite3.Connection, key: ObjectKey, prefix: str) -> ObjectKey:
    base = prefix[: _GENERATED_LIMIT - _SUFFIX_LENGTH]
    for _ in range(_GENERATE_ATTEMPTS):
        suffix = "".join(random.choices(_SUFFIX_LETTERS, k=_SUFFIX_LENGTH))  # noqa: S311 (a name, not a secret)
        candidate = ObjectKey(key.kind, key.namespace, base + suffix)
        if find_record(connection, candidate) is None:
            return candidate
    raise AlreadyExists(key.kind, f"{base}*", "no free name was found; use another generateName")


def _get_status(merge: Json) -> Json | None:
    status = merge.get("status", {})
    if status is None or isinstance(status, dict):
        return status
    raise InvalidObject([FieldError(path="status", rule=Rule.TYPE, detail="must be a map", value=status)])


def _check_identity(live: Json, patched: Json) -> None:
    metadata = get_metadata(patched)
    errors = [
        FieldError(path=path, rule=Rule.FORBIDDEN, detail="cannot change", value=new)
        for path, old, new in (
            ("kind", live["kind"], patched.get("kind")),
            ("metadata.name", live["metadata"]["name"], metadata.get("name")),
            ("metadata.namespace", live["metadata"].get("namespace"), metadata.get("namespace")),
        )
        if old != new
    ]
    if errors:
        raise InvalidObject(errors, source=f"{live['kind']} {live['metadata']['name']!r}")
