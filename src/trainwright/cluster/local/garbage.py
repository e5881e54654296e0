"""Deleting what nobody owns any more.

An object goes when its last owner goes, all in the transaction that deletes the owner. Owners are told by
uid, so an object of the same name made later owns nothing of the old one's. Finalizers are ignored: nobody on
this machine would ever remove them.

Source: Kubernetes documentation, "Garbage Collection" (background deletion).
"""

from __future__ import annotations

import sqlite3
from collections import deque
from typing import Final

from trainwright.cluster.local.objects import list_owner_uids
from trainwright.cluster.local.records import (
    Record,
    find_by_entry,
    find_expired,
    is_there,
    remove_record,
    replace_record,
)

# An event outlives its object by this long, which is how long an API server keeps any event. As long as the
# object is there its events are too: a job that failed at night is explained in the morning.
EVENT_LIFETIME_SECONDS: Final = 3600.0


def delete_record(connection: sqlite3.Connection, record: Record, now: float) -> None:
    """Delete an object and, transitively, everything that has no other owner; `now` is in Unix seconds.

    What has another owner that still exists only loses its references to the deleted ones.
    """
    remove_record(connection, record)
    deleted = deque([record.uid])
    while deleted:
        uid = deleted.popleft()
        connection.execute(
            "UPDATE objects SET expires = ? WHERE expires IS NULL AND id IN "
            "(SELECT id FROM entries WHERE field = 'about' AND value = ?)",
            (now + EVENT_LIFETIME_SECONDS, uid),
        )
        for dependent in find_by_entry(connection, "owner", uid):
            if _drop_dead_owners(connection, dependent):
                remove_record(connection, dependent)
                deleted.append(dependent.uid)


def delete_expired(connection: sqlite3.Connection, now: float) -> None:
    """Delete the events whose time is over."""
    for record in find_expired(connection, now):
        remove_record(connection, record)


def _drop_dead_owners(connection: sqlite3.Connection, dependent: Record) -> bool:
    """Remove the references to owners that are gone; say whether no owner is left."""
    obj = dependent.object
    alive = {uid for uid in list_owner_uids(obj["metadata"]) if is_there(connection, uid)}
    if not alive:
        return True
    references = [ref for ref in obj["metadata"]["ownerReferences"] if ref["uid"] in alive]
    changed = {**obj, "metadata": {**obj["metadata"], "ownerReferences": references}}
    replace_record(connection, dependent, changed, dependent.managers, owners_known=True)
    return False
