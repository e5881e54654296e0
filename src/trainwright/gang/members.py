"""Which pods of a JobSet are the gang: those that run at the same time as the trainer.

A gang scheduler holds pods back until all of the gang are there. A replicated job that waits for another
(`dependsOn`, startup order) has no pods while that one runs, so counting both in one gang is a deadlock: the
first waits for pods that are made only after it ran.

    phase     how many times something must be Complete before the replicated job starts
    members   the replicated jobs of the trainer's phase: they run at the same time
    first     members that wait for no other member: their pods are made together, and counted
    later     members that wait until others are Ready: they join a gang that is already placed

Without `dependsOn` and order everything is of one phase, and every pod is counted, as by the peer. Of a
trainer that may begin with fewer nodes than it has, only so many are counted: the others are placed when
there is room.
Source: spec 02 sections 11.1 and 11.4.
"""

from __future__ import annotations

import msgspec

from trainwright.api.meta import Json
from trainwright.template.replicated_jobs import (
    get_job_spec,
    get_part,
    get_pod_spec,
    list_replicated_jobs,
)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A replicated job of the gang, and how many of its pods are needed at a time."""

    name: str
    pods: int
    pod_spec: Json


class Members(msgspec.Struct, frozen=True, kw_only=True):
    """The replicated jobs of the gang, in the order of the JobSet; one without pods is none."""

    first: tuple[Member, ...] = ()
    later: tuple[Member, ...] = ()

    @property
    def all(self) -> tuple[Member, ...]:
        """Those that start together, then those that join them."""
        return (*self.first, *self.later)

    @property
    def names(self) -> frozenset[str]:
        """The names of all replicated jobs of the gang."""
        return frozenset(member.name for member in self.all)

    @property
    def count(self) -> int:
        """The number of pods that start together."""
        return sum(member.pods for member in self.first)


def find_members(spec: Json, trainer: str | None, enough: int | None = None) -> Members:
    """Return the gang of a JobSet spec in which all pods are counted.

    `trainer` is the replicated job that runs the TrainJob's command; without one, the last phase is the gang.
    `enough` is the number of its pods with which training may begin, None for all of them.
    """
    awaited = _list_awaited(spec)
    phases: dict[str, int] = {}
    for name, others in awaited.items():
        phases[name] = max(
            (phases[other] + (status == "Complete") for other, status in others if other in phases), default=0
        )
    if not phases:
        return Members()
    chosen = phases[trainer] if trainer in phases else max(phases.values())
    found = {
        member.name: member
        for member in (
            _build_member(replicated_job, enough if replicated_job["name"] == trainer else None)
            for replicated_job in list_replicated_jobs(spec)
        )
        if phases[member.name] == chosen and member.pods
    }
    later = {name for name in found if any(other in found for other, _ in awaited[name])}
    return Members(
        first=tuple(member for member in found.values() if member.name not in later),
        later=tuple(member for member in found.values() if member.name in later),
    )


def _list_awaited(spec: Json) -> dict[str, list[tuple[str, str]]]:
    """Return for each replicated job, in order, what it waits for: a name, and Ready or Complete.

    The order "InOrder" is the same as waiting for the one before to be ready.
    """
    is_in_order = get_part(spec, "startupPolicy").get("startupPolicyOrder") == "InOrder"
    awaited: dict[str, list[tuple[str, str]]] = {}
    previous: str | None = None
    for replicated_job in list_replicated_jobs(spec):
        name = replicated_job["name"]
        others = [(entry["name"], entry["status"]) for entry in replicated_job.get("dependsOn") or ()]
        if is_in_order and previous is not None:
            others.append((previous, "Ready"))
        awaited[name] = others
        previous = name
    return awaited


def _build_member(replicated_job: Json, enough: int | None) -> Member:
    job_spec = get_job_spec(replicated_job)
    parallelism = job_spec.get("parallelism")
    completions = job_spec.get("completions")
    at_a_time: int = 1 if parallelism is None else parallelism
    if completions is not None:
        at_a_time = min(at_a_time, completions)
    replicas = replicated_job.get("replicas")
    pods = at_a_time * (1 if replicas is None else replicas)
    return Member(
        name=replicated_job["name"],
        pods=pods if enough is None else min(pods, enough),
        pod_spec=get_pod_spec(replicated_job),
    )
