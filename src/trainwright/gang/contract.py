"""What a gang scheduler is: a value that says how the pods of a gang are told to it.

It sees a `Gang` and returns a `Membership`. It never touches the JobSet; `render` folds in what it returns. A
new one is one module and one line in `registry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from trainwright.api.meta import Json
from trainwright.api.runtime import PodGroupPolicy
from trainwright.gang.members import Members


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of one TrainJob that are placed together.

    `annotations` are those that the JobSet has from its runtime and patches; `trainer` is the replicated job
    that runs the TrainJob's command, None where there is none; `has_stages` says that not all pods of the job
    start together.
    """

    job_name: str
    annotations: Mapping[str, str]
    members: Members
    trainer: str | None
    has_stages: bool


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """How a gang is told to its scheduler.

    `objects` are applied before the JobSet; render sets their namespace and owner. `labels`, `annotations`
    and `pod_fields` go to pods of the gang; `outsider_annotations` to the others, `common_labels` to all.
    `scheduler_name` is for pods whose template names none. `job_set_annotations` go to the JobSet.
    """

    objects: tuple[Json, ...] = ()
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    pod_fields: Json = msgspec.field(default_factory=dict)
    outsider_annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    common_labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    job_set_annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    scheduler_name: str | None = None


class GangScheduler(Protocol):
    """One scheduler that places gangs. Pure: no I/O, no clock, no random numbers."""

    @property
    def name(self) -> str:
        """The field of PodGroupPolicy that chooses it."""
        ...

    @property
    def scheduler_name(self) -> str | None:
        """The `schedulerName` of pods whose template names none; None to leave it to the cluster."""
        ...

    def build_membership(self, policy: PodGroupPolicy, gang: Gang) -> Membership:
        """Return how the gang, which has at least one pod, is told to the scheduler."""
        ...
