"""The database file: opening, creating and migrating it, and what its errors mean to a user.

One file, `store.db`, in write-ahead-log mode: readers never wait, writers wait for each other (transactions
take a fraction of a millisecond). The layout has a version (`user_version`); older files are brought forward
when they are opened, newer ones are refused. docs/design/local-store.md has the reasons.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from trainwright.errors import StateDirectoryError

# "TrWr": tells our file from the SQLite file of another program.
APPLICATION_ID: Final = 0x54725772

# How long a writer waits for the writers before it. A transaction holds the lock for about 0.2 ms; only a
# process that was stopped in the middle of one makes others wait this long.
BUSY_TIMEOUT_SECONDS: Final = 10.0

# Migration i brings a file of version i to version i + 1; a new file runs through all of them. They may only
# add: the supervisor of a running job goes on using the layout that it started with.
#
# objects: `body` is canonical JSON with everything but the record of field managers, which no reader sees;
#     `created_version` is the resource version of its creation; `expires` (Unix seconds) is set for events
#     whose object is gone.
# entries: the field indexes: owner -> uid, about -> uid (events), label:<key> -> value.
# tombstones: the last state of deleted objects, for watches.
# counter: one row: the last resource version, how many objects were deleted, and the resource version up to
#     which tombstones are gone.
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE objects (
            id INTEGER PRIMARY KEY,
            kind TEXT NOT NULL,
            namespace TEXT NOT NULL,
            name TEXT NOT NULL,
            uid TEXT NOT NULL UNIQUE,
            resource_version INTEGER NOT NULL,
            created_version INTEGER NOT NULL,
            expires REAL,
            managers BLOB,
            body BLOB NOT NULL,
            UNIQUE (kind, namespace, name)
        )""",
        "CREATE INDEX objects_by_version ON objects (resource_version)",
        "CREATE INDEX objects_by_expiry ON objects (expires) WHERE expires IS NOT NULL",
        """CREATE TABLE entries (
            field TEXT NOT NULL,
            value TEXT NOT NULL,
            id INTEGER NOT NULL REFERENCES objects (id) ON DELETE CASCADE,
            PRIMARY KEY (field, value, id)
        ) WITHOUT ROWID""",
        "CREATE INDEX entries_by_object ON entries (id)",
        """CREATE TABLE tombstones (
            resource_version INTEGER PRIMARY KEY,
            created_version INTEGER NOT NULL,
            kind TEXT NOT NULL,
            namespace TEXT NOT NULL,
            body BLOB NOT NULL
        )""",
        """CREATE TABLE counter (
            resource_version INTEGER NOT NULL,
            deletions INTEGER NOT NULL,
            forgotten INTEGER NOT NULL
        )""",
        "INSERT INTO counter VALUES (0, 0, 0)",
    ),
)


def open_database(
    path: Path,
    migrations: Sequence[Sequence[str]] = MIGRATIONS,
    busy_timeout_seconds: float = BUSY_TIMEOUT_SECONDS,
) -> sqlite3.Connection:
    """Return a connection in autocommit mode to the database, made or brought forward where necessary.

    Missing folders are made for the user alone (0700), the file too (0600). Raises StateDirectoryError.
    """
    _make_folder(path.parent)
    with translate_errors(path):
        _make_file(path)
        connection = sqlite3.connect(path, timeout=busy_timeout_seconds, isolation_level=None)
        try:
            _prepare(connection, path, migrations)
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite says about the file into a StateDirectoryError that says what to do.

    Everything else (a wrong statement, a broken constraint) is a bug and passes.
    """
    try:
        yield
    except (sqlite3.DatabaseError, OSError, msgspec.DecodeError) as error:
        if (message := _explain(error, path)) is None:
            raise
        raise StateDirectoryError(message) from error


def _explain(error: sqlite3.DatabaseError | OSError | msgspec.DecodeError, path: Path) -> str | None:
    if isinstance(error, msgspec.DecodeError):
        # SQLite has no checksums: a flipped bit within an object shows only when it is read.
        return f"{path} {_DAMAGED.format(path=path, error=error)}"
    if isinstance(error, OSError):
        return f"{path} cannot be used: {error.strerror}; {_ELSEWHERE}"
    primary = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    remedy = _REMEDIES.get(primary)
    return None if remedy is None else f"{path} {remedy.format(path=path, error=error)}"


_ELSEWHERE = "set TRAINWRIGHT_STATE to a folder on a local disk that you may write"
_DAMAGED = (
    "is damaged or no database ({error}): move it away (`mv {path} {path}.damaged`, with {path}-wal and -shm "
    "if they are there) and start afresh; `sqlite3 {path}.damaged .recover` may save its objects"
)
_REMEDIES: Final[dict[int, str]] = {
    sqlite3.SQLITE_FULL: "cannot grow, the disk is full: free some space and repeat; nothing was changed",
    sqlite3.SQLITE_IOERR: (
        "cannot be read or written ({error}): is the disk full, over quota or gone? Nothing was changed; "
        + _ELSEWHERE
    ),
    sqlite3.SQLITE_READONLY: "cannot be written ({error}): make it yours, or " + _ELSEWHERE,
    sqlite3.SQLITE_CANTOPEN: "cannot be opened ({error}): make it and its folder yours, or " + _ELSEWHERE,
    sqlite3.SQLITE_PERM: "may not be used ({error}): make it yours, or " + _ELSEWHERE,
    sqlite3.SQLITE_PROTOCOL: "is on a file system without working locks ({error}): " + _ELSEWHERE,
    sqlite3.SQLITE_BUSY: (
        "is held by another process for longer than the time to wait: find it with `fuser {path}` "
        "(it may be stopped, as by ctrl-Z) and let it go on or end it; nothing was changed"
    ),
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        where = error.filename or folder
        raise StateDirectoryError(
            f"the state directory {folder} cannot be made ({where}: {error.strerror}); {_ELSEWHERE}"
        ) from error


def _make_file(path: Path) -> None:
    # SQLite gives the log and the shared memory file the mode of the database.
    if not path.exists():
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _prepare(connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]]) -> None:
    # A commit survives the end of any process at once. It survives a crash of the machine when the log was
    # synchronised, which NORMAL does at checkpoints only: then the last moments may be missing, never half
    # there.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    with _lock(path, fcntl.LOCK_SH):
        version = _read_version(connection, path, migrations)
    if version == len(migrations):
        return
    with _lock(path, fcntl.LOCK_EX):
        if _read_version(connection, path, migrations) == 0:
            connection.execute("PRAGMA journal_mode = WAL")
        _migrate(connection, path, migrations)


def _read_version(connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]]) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    application: int = connection.execute("PRAGMA application_id").fetchone()[0]
    tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION_ID and (application or version or tables):
        raise StateDirectoryError(
            f"{path} is the database of another program; set TRAINWRIGHT_STATE to a folder of its own"
        )
    if version > len(migrations):
        raise StateDirectoryError(
            f"{path} was written by a newer version of trainwright (layout {version}, this one knows "
            f"{len(migrations)}): upgrade trainwright, or set TRAINWRIGHT_STATE to another folder"
        )
    return version


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Sequence[str]]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statements in migrations[_read_version(connection, path, migrations) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _lock(path: Path, operation: int) -> Iterator[None]:
    """Let one process at a time make or migrate the database, and nobody look at it meanwhile.

    SQLite does not wait when a connection switches to write-ahead logging while another one reads: the switch
    fails. The lock is on a file of its own, for on NFS it would get in the way of SQLite's; the kernel lets
    go of it when the process ends.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(path.with_suffix(".lock"), flags, 0o600)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)
