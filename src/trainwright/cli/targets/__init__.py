"""The places where jobs run, as the verbs see them. One module each; a new one is a module and a line here.

The objects of every target are behind the same port (`Cluster`). A target adds what differs between a machine
and a cluster: who works on a job, where output lies, how a job is killed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

import msgspec

from trainwright.api.core import Pod
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob
from trainwright.cli.target_names import TargetName
from trainwright.cluster.port import Cluster
from trainwright.errors import TargetUnreachable

if TYPE_CHECKING:
    from trainwright.runner.progress.history import HistoryEntry


class LogRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which output of a job. `rank` None means all; `tail` None means from the beginning."""

    rank: int | None = None
    tail: int | None = None
    follow: bool = False


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of output without its end. `source` names the rank, or the pod where there are no ranks."""

    source: str
    text: str


class Target(Protocol):
    """Where jobs run."""

    @property
    def name(self) -> TargetName:
        """Which target this is."""
        ...

    @property
    def cluster(self) -> Cluster:
        """The objects."""
        ...

    def build_annotations(self) -> dict[str, str]:
        """Return the annotations of a job that is made from here: what the target must know of the caller."""
        ...

    async def settle(self) -> None:
        """Bring the objects up to date with the world, where nobody else does: lost jobs, expired jobs."""
        ...

    async def engage(self, train_job: TrainJob) -> None:
        """See to it that somebody works on the job, now that it was created or changed."""
        ...

    async def preview(self, obj: Json, field_manager: str) -> Json:
        """Return what applying the object would store, without storing it."""
        ...

    def read_logs(self, train_job: TrainJob, request: LogRequest) -> AsyncIterator[LogLine]:
        """Yield output of the job; when following, wait for its pods and go on until the job ends."""
        ...

    def list_ranks(self, meta: ObjectMeta) -> list[int]:
        """Return the ranks that have printed something."""
        ...

    async def kill(self, train_job: TrainJob) -> None:
        """Let a job that is asked to stop give up its grace period: its processes are killed at once."""
        ...

    async def wait_until_idle(self, meta: ObjectMeta) -> None:
        """Wait until no process of the job is left."""
        ...

    async def clean_up(self, meta: ObjectMeta) -> None:
        """Wait until no process of a deleted job is left, and remove what it left behind."""
        ...

    def read_reports(self, meta: ObjectMeta) -> list[HistoryEntry]:
        """Return the history of reported metrics, oldest first; empty where none is kept."""
        ...

    def list_notices(self, train_job: TrainJob, runtime: Runtime) -> Sequence[str]:
        """Return what the caller should know about this job on this target, a line each."""
        ...

    def describe_node(self, train_job: TrainJob, pods: Sequence[Pod]) -> str:
        """Return a line about the machines that the job runs on, for `explain`."""
        ...


def open_target(name: TargetName) -> AbstractAsyncContextManager[Target]:
    """Return the target, to be entered. Raises TargetUnreachable for one that this version does not have."""
    if name is TargetName.LOCAL:
        from trainwright.cli.targets.local import open_local

        return open_local()
    raise TargetUnreachable(f"target {str(name)!r} is not available in this version; use `--on local`")
