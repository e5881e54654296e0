"""Where things lie in the state directory. Names only: nothing is read or written here.

<root>/        $TRAINWRIGHT_STATE, else $XDG_STATE_HOME/trainwright, else ~/.local/state/trainwright
  store.db                       all objects (SQLite, WAL)
  store.lock                     held (flock) while the database is made or migrated
  jobs/<TrainJob uid>/
    lock                         held (flock) by the supervisor as long as it lives
    supervisor.json              {pid, startTime}: who holds the lock
    supervisor.log
    progress.jsonl               reported metrics, one report a line
    token                        the job's progress token, mode 0600
    pods/<pod name>/<container>.log    plus .1 ... after rotation
    pods/<pod name>/ranks/<rank>.log   one per rank, where the framework tells them apart
    shared/<host name>.socket    by which mpirun starts programs in that pod, mode 0600
  jobs/.removed.<uid>...         the folder of a deleted job on its way out
  mount-points/<hash>            held (flock) by the pods that mount something at one path of the host
  python/<hash>/                 what jobs may import of trainwright (`progress`), on their PYTHONPATH
  volumes/<namespace>/<claim>/   what a PersistentVolumeClaim holds
  volumes/.owned/                whose end is the end of a claim's folder, and a lock to take turns by
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec


class StatePaths(msgspec.Struct, frozen=True):
    """The layout below one root."""

    root: Path

    @property
    def store(self) -> Path:
        """The database."""
        return self.root / "store.db"

    @property
    def jobs(self) -> Path:
        """One folder per TrainJob uid."""
        return self.root / "jobs"

    @property
    def mount_points(self) -> Path:
        """One lock file per path of the host that was made for pods to mount something there."""
        return self.root / "mount-points"

    @property
    def python(self) -> Path:
        """What jobs may import of trainwright, one folder per content."""
        return self.root / "python"

    def job(self, uid: str) -> JobPaths:
        """The folder of one TrainJob."""
        return JobPaths(self.jobs / uid)

    def volume(self, namespace: str, claim: str) -> Path:
        """What a claim holds."""
        return self.root / "volumes" / namespace / claim


class JobPaths(msgspec.Struct, frozen=True):
    """The layout below one TrainJob's folder."""

    root: Path

    @property
    def lock(self) -> Path:
        """Held by the supervisor as long as it lives."""
        return self.root / "lock"

    @property
    def supervisor(self) -> Path:
        """Who holds the lock: pid and start time."""
        return self.root / "supervisor.json"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor has to say."""
        return self.root / "supervisor.log"

    @property
    def progress(self) -> Path:
        """Reported metrics, one JSON object a line."""
        return self.root / "progress.jsonl"

    @property
    def token(self) -> Path:
        """The job's progress token."""
        return self.root / "token"

    @property
    def pods(self) -> Path:
        """One folder per pod."""
        return self.root / "pods"

    def pod(self, name: str) -> Path:
        """The folder of one pod."""
        return self.pods / name

    @property
    def shared(self) -> Path:
        """Where pods of the job reach each other."""
        return self.root / "shared"


def build_state_paths(environment: Mapping[str, str], home: Path) -> StatePaths:
    """Return the layout for this user: TRAINWRIGHT_STATE, else XDG_STATE_HOME, else ~/.local/state."""
    if chosen := environment.get("TRAINWRIGHT_STATE"):
        return StatePaths(Path(chosen).expanduser().absolute())
    base = environment.get("XDG_STATE_HOME")
    return StatePaths((Path(base) if base else home / ".local" / "state") / "trainwright")
