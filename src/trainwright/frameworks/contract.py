"""What a framework is: a value that checks a TrainJob, and says what its pods need to find each other.

A framework sees a `JobLayout` and returns values. It never touches the JobSet; `render` folds in what it
returns, by the upsert rules of `template.upsert`. How to write one: docs/how-to/add-a-framework.md.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from trainwright.api.meta import Json
from trainwright.api.runtime import MLPolicy
from trainwright.api.trainjob import Trainer
from trainwright.field_errors import FieldError, Rule
from trainwright.template.layout import JobLayout


class ContainerAddition(msgspec.Struct, frozen=True, kw_only=True):
    """What one container gets; `command` replaces the runtime's, and the TrainJob's that the layout shows."""

    env: tuple[Json, ...] = ()  # core/v1 EnvVar, by name
    ports: tuple[Json, ...] = ()  # core/v1 ContainerPort, by number and protocol
    volume_mounts: tuple[Json, ...] = ()  # core/v1 VolumeMount, by path
    command: tuple[str, ...] = ()


class PodAddition(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods of one replicated job get; `containers` names containers and init containers.

    `starts_after` names replicated jobs whose pods must be ready before these are made.
    """

    containers: Mapping[str, ContainerAddition] = msgspec.field(default_factory=dict)
    volumes: tuple[Json, ...] = ()  # core/v1 Volume, by name
    init_containers: tuple[Json, ...] = ()  # core/v1 Container, by name; new ones come last
    starts_after: tuple[str, ...] = ()


class GeneratedSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A Secret with data that nobody may foresee, such as keys; it is beside the JobSet before the pods are.

    It is rendered without data. The named generator (`cluster.generators`) makes the data when the Secret
    is created, which happens once in the life of a job.
    """

    name: str
    generator: str
    type: str = "Opaque"


class Contribution(msgspec.Struct, frozen=True, kw_only=True):
    """What a framework adds to a job.

    `pods` is by name of the replicated job. `secrets` and `objects` (ConfigMaps) stand beside the JobSet and
    are written before it; render sets their namespace and owner.
    """

    pods: Mapping[str, PodAddition] = msgspec.field(default_factory=dict)
    secrets: tuple[GeneratedSecret, ...] = ()
    objects: tuple[Json, ...] = ()


class Framework(Protocol):
    """One way in which the processes of a job find each other. Pure: no I/O, no clock, no random numbers."""

    @property
    def name(self) -> str:
        """The field of MLPolicy that chooses it, or a name of its own where none does."""
        ...

    def is_active(self, policy: MLPolicy | None) -> bool:
        """Say whether the framework takes part in jobs of a runtime with this policy."""
        ...

    def validate(self, layout: JobLayout) -> list[FieldError]:
        """Return what keeps the job from being rendered, by path in the TrainJob."""
        ...

    def list_warnings(self, layout: JobLayout) -> list[str]:
        """Return what the user should know about a job that can be rendered."""
        ...

    def build_contribution(self, layout: JobLayout) -> Contribution:
        """Return what the framework adds; called only where `validate` has nothing to say."""
        ...


def find_reserved_env_errors(trainer: Trainer, reserved: Collection[str], framework: str) -> list[FieldError]:
    """Return one error for all variables of `trainer.env` that the framework sets itself, or none."""
    taken = sorted({entry["name"] for entry in trainer.env or () if entry.get("name") in reserved})
    if not taken:
        return []
    detail = f"{', '.join(taken)}: set by the {framework} framework from the job itself; remove from the list"
    return [FieldError(path="spec.trainer.env", rule=Rule.INVALID, detail=detail, value=taken)]
