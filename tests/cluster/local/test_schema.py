"""Opening the database: who may read it, which layouts are known, what is said about other files."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.cluster.local.schema import APPLICATION_ID, MIGRATIONS, open_database, translate_errors
from trainwright.errors import StateDirectoryError

LATER = (*MIGRATIONS, ("CREATE TABLE later (x)", "INSERT INTO later VALUES (1)"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "store.db"


def read_version(path):
    with open_database(path) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return version


def test_the_folder_and_the_file_are_for_the_user_alone(path):
    old = os.umask(0)
    try:
        connection = open_database(path)
        connection.execute("UPDATE counter SET resource_version = 1")
        modes = {p.name: p.stat().st_mode & 0o777 for p in [path.parent, *path.parent.iterdir()]}
    finally:
        os.umask(old)
    connection.close()
    assert modes.pop("state") == 0o700
    assert modes == dict.fromkeys(["store.db", "store.db-wal", "store.db-shm", "store.lock"], 0o600)


def test_a_folder_that_was_there_keeps_its_mode(path):
    path.parent.mkdir(mode=0o755)
    path.parent.chmod(0o755)
    open_database(path).close()
    assert path.parent.stat().st_mode & 0o777 == 0o755


def test_an_older_layout_is_brought_forward_once(path):
    open_database(path).close()
    for _ in range(2):
        connection = open_database(path, LATER)
        assert connection.execute("SELECT x FROM later").fetchall() == [(1,)]
        assert connection.execute("PRAGMA user_version").fetchone() == (len(LATER),)
        connection.close()


def test_a_migration_that_fails_leaves_the_layout_as_it_was(path):
    open_database(path).close()
    with pytest.raises(sqlite3.OperationalError):
        open_database(path, (*MIGRATIONS, ("CREATE TABLE later (x)", "no SQL")))
    assert read_version(path) == len(MIGRATIONS)
    open_database(path, LATER).close()


def test_a_newer_layout_is_refused_with_the_remedy(path):
    open_database(path, LATER).close()
    with pytest.raises(StateDirectoryError, match=r"newer version of trainwright .* upgrade trainwright"):
        open_database(path)


def test_the_database_of_another_program_is_refused(path):
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StateDirectoryError, match="database of another program"):
        open_database(path)


def test_a_file_that_is_no_database_is_refused_with_the_remedy(path):
    path.parent.mkdir()
    path.write_bytes(b"this is no database" * 1000)
    with pytest.raises(StateDirectoryError, match=r"damaged or no database .* move it away"):
        open_database(path)
    assert path.read_bytes().startswith(b"this is no database")


def test_a_damaged_database_is_refused_with_the_remedy(path):
    connection = open_database(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = bytearray(path.read_bytes())
    content[100:4096] = b"\xff" * 3996  # the root page of the schema, behind a good header
    path.write_bytes(content)
    with pytest.raises(StateDirectoryError, match="damaged"):
        open_database(path)


def test_a_folder_that_cannot_be_made_is_said_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StateDirectoryError, match=r"cannot be made .*; set TRAINWRIGHT_STATE"):
        open_database(tmp_path / "file" / "state" / "store.db")


def test_a_path_that_is_a_folder_is_said_with_the_remedy(path):
    path.mkdir(parents=True)
    with pytest.raises(StateDirectoryError, match="TRAINWRIGHT_STATE"):
        open_database(path)


def test_an_interrupted_creation_is_finished_by_the_next(path):
    """A process that died between making the file and filling it leaves an empty one."""
    path.parent.mkdir()
    path.write_bytes(b"")
    assert read_version(path) == len(MIGRATIONS)


def test_a_lock_that_is_held_too_long_is_said_with_the_remedy(path):
    holder = open_database(path)
    holder.execute("BEGIN IMMEDIATE")
    other = open_database(path, busy_timeout_seconds=0.05)
    with (
        pytest.raises(StateDirectoryError, match=r"held by another process .* `fuser"),
        translate_errors(path),
    ):
        other.execute("BEGIN IMMEDIATE")
    holder.close()
    other.close()


OPENER = """
import sys
from pathlib import Path
from trainwright.cluster.local.schema import open_database
sys.stdin.readline()
print(open_database(Path(sys.argv[1])).execute("PRAGMA journal_mode").fetchone()[0])
"""


def test_processes_that_open_a_new_store_at_once_all_succeed(path):
    children = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    assert [child.communicate(timeout=100)[0].strip() for child in children] == ["wal"] * 4
    assert read_version(path) == len(MIGRATIONS)


def test_our_files_are_told_from_those_of_others(path):
    connection = open_database(path)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    connection.close()


READ_ONLY = """
import sys
from pathlib import Path
from trainwright.cluster.local.schema import open_database
from trainwright.errors import StateDirectoryError
try:
    open_database(Path(sys.argv[1]))
except StateDirectoryError as error:
    print(error)
"""


def run_mounted(mount, script, *arguments):
    """Run a script in a mount namespace of its own after the shell line `mount`; skip where there is none."""
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("NOT TESTED: mount namespaces cannot be had here")
    line = f'{mount} && exec "$@"'
    return subprocess.run(
        [*unshare, "sh", "-c", line, "sh", sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def test_a_read_only_home_is_said_with_the_remedy(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    said = run_mounted(f"mount -t tmpfs -o ro tmpfs {home}", READ_ONLY, home / "state" / "store.db")
    assert "Read-only file system" in said
    assert "TRAINWRIGHT_STATE" in said


def test_a_store_on_a_disk_that_became_read_only_is_said_with_the_remedy(tmp_path):
    path = tmp_path / "home" / "store.db"
    open_database(path).close()
    mount = f"mount --bind {path.parent} {path.parent} && mount -o remount,ro,bind {path.parent}"
    said = run_mounted(mount, READ_ONLY_WRITE, path)
    assert "TRAINWRIGHT_STATE" in said


READ_ONLY_WRITE = """
import sys
from pathlib import Path
from trainwright.cluster.local.schema import open_database, translate_errors
from trainwright.errors import StateDirectoryError
path = Path(sys.argv[1])
try:
    with translate_errors(path):
        open_database(path).execute("UPDATE counter SET resource_version = 1")
except StateDirectoryError as error:
    print(error)
"""

FULL = """
import asyncio, resource, sys
from pathlib import Path
from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.store import LocalCluster
from trainwright.errors import StateDirectoryError

def config_map(name, size):
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "y" * size}}

async def main(path, limit):
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    with LocalCluster(path) as cluster:
        stored = []
        try:
            for number in range(1000):
                await cluster.create(config_map(f"c{number}", 20_000))
                stored.append(f"c{number}")
        except StateDirectoryError as error:
            print(str(error).replace(str(path), "STORE"))
        assert stored, "nothing fitted"
        assert [o["metadata"]["name"] for o in (await cluster.list("ConfigMap")).items] == sorted(stored)
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        else:
            (path.parent / "ballast").unlink()
        await cluster.create(config_map("after", 20_000))
    with LocalCluster(path) as cluster:
        assert len((await cluster.list("ConfigMap")).items) == len(stored) + 1
    print("works again")

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


def test_a_full_disk_is_said_and_leaves_nothing_half_made(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=1m tmpfs {disk} && head -c 400000 /dev/zero > {disk}/ballast"
    said = run_mounted(mount, FULL, disk / "store.db", "0")
    assert said.splitlines() == [
        "STORE cannot grow, the disk is full: free some space and repeat; nothing was changed",
        "works again",
    ]


def test_a_file_that_may_not_grow_is_said_and_leaves_nothing_half_made(path):
    said = subprocess.run(
        [sys.executable, "-c", FULL, path, "400000"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    first, last = said.splitlines()
    assert first.startswith("STORE cannot be read or written (disk I/O error)") or "disk is full" in first
    assert last == "works again"


def test_opening_and_closing_leaves_no_file_and_no_descriptor(path):
    descriptors = Path("/proc/self/fd")
    open_database(path).close()
    before = len(list(descriptors.iterdir())) if descriptors.is_dir() else 0
    for _ in range(20):
        open_database(path).close()
    after = len(list(descriptors.iterdir())) if descriptors.is_dir() else 0
    assert after == before
    assert sorted(p.name for p in path.parent.iterdir()) == ["store.db", "store.lock"]
