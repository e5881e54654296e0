"""The places where jobs run, as the verbs see them. One module each; a new one is a module and a line here.

The objects of every target are behind the same port (`Cluster`). A target adds what differs between a machine
and a cluster: who works on a job, where output lies, how a job is killed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from trainwright.api.core import Pod
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime
from trainwright.api.trainjob import TrainJob
from trainwright.cli.build_train_job import Entry
from trainwright.cli.caller_python import CallerPython
from trainwright.cli.code_sources import CodeSource, RunWords
from trainwright.cli.target_names import TargetName
from trainwright.cluster.port import Cluster
from trainwright.errors import Conflict, TargetUnreachable, UsageError

if TYPE_CHECKING:
    from trainwright.runner.progress.history import HistoryEntry


DEFAULT_NAMESPACE = "default"


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command acts, as its options say it; None is what the settings say."""

    on: TargetName | None = None
    namespace: str | None = None
    context: str | None = None
    kubeconfig: Path | None = None


class LogRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which output of a job. `rank` None means all; `tail` None means from the beginning.

    `previous` is that of the containers that were there before the present ones, where they were restarted.
    """

    rank: int | None = None
    tail: int | None = None
    follow: bool = False
    previous: bool = False


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of output without its end. `source` names the rank, or the pod where there are no ranks."""

    source: str
    text: str


class FieldsOfOthers(Conflict):
    """Applying would change fields that other field managers set; nothing was changed."""

    def __init__(self, said: str, managers: frozenset[str]) -> None:
        super().__init__(said)
        self.managers = managers


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is ready to be created, and the objects that carry its code there."""

    train_job: TrainJob
    carriers: tuple[Json, ...] = ()


class AdmissionSource(Protocol):
    """What putting objects through admission needs of a target."""

    @property
    def cluster(self) -> Cluster:
        """The objects."""
        ...

    @property
    def namespace(self) -> str:
        """Of the objects that name none: the one of the command, else that of the settings."""
        ...

    @property
    def admits_writes(self) -> bool:
        """Whether the target itself checks what is written, so that nothing need be checked before it."""
        ...

    def list_shipped_runtimes(self) -> Mapping[str, ClusterTrainingRuntime]:
        """Return the runtimes that jobs may name without anybody having installed them."""
        ...

    def build_annotations(self) -> dict[str, str]:
        """Return the annotations of a job that is made from here: what the target must know of the caller."""
        ...

    async def preview(self, obj: Json, field_manager: str, *, force: bool = True) -> Json:
        """Return what applying the object would store, without storing it. Raises what applying would."""
        ...


class Target(AdmissionSource, Protocol):
    """Where jobs run."""

    @property
    def name(self) -> TargetName:
        """Which target this is."""
        ...

    def find_entry(self, words: RunWords, code: CodeSource) -> Entry:
        """Return what the words of `run` start there. Raises UsageError where that cannot be."""
        ...

    def find_python(self) -> CallerPython | None:
        """Return what scripts are started with there."""
        ...

    def pack(self, train_job: TrainJob, runtime: Runtime, entry: Entry, code: CodeSource) -> Packed:
        """Return the job with its code. Raises UsageError where the code cannot be brought there."""
        ...

    async def submit(self, packed: Packed) -> Json:
        """Create the job and what carries its code, or nothing; return the job as stored."""
        ...

    async def settle(self) -> None:
        """Bring the objects up to date with the world, where nobody else does: lost jobs, expired jobs."""
        ...

    async def engage(self, train_job: TrainJob) -> None:
        """See to it that somebody works on the job, now that it was created or changed."""
        ...

    def read_logs(
        self, train_job: TrainJob, request: LogRequest, tell: Callable[[str], None]
    ) -> AsyncIterator[LogLine]:
        """Yield output of the job; when following, wait for its pods and go on until the job ends.

        `tell` shows the caller what is waited for.
        """
        ...

    async def list_ranks(self, meta: ObjectMeta) -> list[int]:
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


def open_target(name: TargetName, where: Where) -> AbstractAsyncContextManager[Target]:
    """Return the target, to be entered. Raises TargetUnreachable for one that this version does not have."""
    if name is TargetName.KUBERNETES:
        from trainwright.cli.targets.kubernetes import open_kubernetes

        return open_kubernetes(where)
    _refuse_cluster_options(name, where)
    if name is TargetName.LOCAL:
        from trainwright.cli.targets.local import open_local

        return open_local(where.namespace or DEFAULT_NAMESPACE)
    raise TargetUnreachable(
        f"target {str(name)!r} is not available in this version; use `--on local` or `--on kubernetes`"
    )


def open_for_checking(name: TargetName, where: Where) -> AbstractAsyncContextManager[AdmissionSource]:
    """Return what files are checked against without asking anybody: this machine's store, or nothing."""
    if name is TargetName.KUBERNETES:
        from trainwright.cli.targets.offline import open_offline

        return open_offline(where.namespace or DEFAULT_NAMESPACE)
    return open_target(name, where)


def _refuse_cluster_options(name: TargetName, where: Where) -> None:
    given = [("--context", where.context), ("--kubeconfig", where.kubeconfig)]
    if wrong := [option for option, value in given if value is not None]:
        raise UsageError(
            f"{' and '.join(wrong)} choose a cluster, but jobs run {name}; add `--on kubernetes`"
        )
