"""Slices: the nodes of a job in groups of equal size, each with a leader, as racks and pods of accelerators
are built.

A slice is one Job of the trainer's replicated job, and its leader the pod with index 0. So what JobSet does
per Job it does per slice: placement (`exclusive-topology`), restarts (`RestartJob`), counters. Nodes are told
which slice they are in and where its leader is; how the slices find each other is the business of the
framework beside this one.

Only frameworks that do not number nodes by the index in their Job may be beside it: that index repeats in
each slice, and Kubernetes cannot add numbers in a variable. Why it is so: docs/design/slices.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainwright.api.constants import (
    JOB_INDEX,
    NODE,
    SLICE_COUNT,
    SLICE_INDEX,
    SLICE_LEADER,
    SLICE_NODES,
)
from trainwright.api.runtime import MLPolicy
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.choice import list_shipped_choices
from trainwright.frameworks.contract import (
    ContainerAddition,
    Contribution,
    PodAddition,
    find_reserved_env_errors,
)
from trainwright.frameworks.pod_index import refer_to, refuse_runtime
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet

SLICE_ENV: Final = (SLICE_INDEX, SLICE_COUNT, SLICE_NODES, SLICE_LEADER)
_UNNUMBERED: Final = frozenset({"torch"})  # choices of a policy whose nodes are numbered by a rendezvous


class Slices:
    """Which slice a node is in, how many there are, and who leads it."""

    name = "slices"

    def is_active(self, policy: MLPolicy | None) -> bool:
        """Say whether the runtime's nodes come in slices."""
        return policy is not None and policy.nodes_per_slice is not None

    def validate(self, layout: JobLayout) -> list[FieldError]:
        """Return why the job's nodes cannot come in the runtime's slices."""
        assert layout.policy is not None  # noqa: S101 (narrows the type)
        errors = [
            FieldError(path="spec.runtimeRef", rule=Rule.NOT_SUPPORTED, detail=detail, value=value)
            for value, detail in list_numbering_frameworks(layout.policy)
        ]
        return [
            *errors,
            *_find_uneven_nodes(layout),
            *_find_taken_variables(layout.trainer_pod_set),
            *find_reserved_env_errors(layout.trainer, SLICE_ENV, self.name),
        ]

    def list_warnings(self, layout: JobLayout) -> list[str]:  # noqa: ARG002 (there is nothing to warn about)
        """Return no warnings."""
        return []

    def build_contribution(self, layout: JobLayout) -> Contribution:
        """Return the variables of the trainer container."""
        trainer = layout.trainer_pod_set
        if trainer is None:
            return Contribution()
        leader = layout.build_slice_leader(trainer, refer_to(SLICE_INDEX))
        env = (
            {
                "name": SLICE_INDEX,
                "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{JOB_INDEX}']"}},
            },
            {"name": SLICE_COUNT, "value": str(trainer.replicas)},
            {"name": SLICE_NODES, "value": str(trainer.count)},
            {"name": SLICE_LEADER, "value": leader},
        )
        return Contribution(pods={trainer.name: PodAddition(containers={NODE: ContainerAddition(env=env)})})


def list_numbering_frameworks(policy: MLPolicy) -> Iterator[tuple[str, str]]:
    """Yield each framework that the policy chooses and that slices cannot be for, and why, in words."""
    names = list_shipped_choices(policy)
    if policy.custom is not None:
        names.append(policy.custom.framework)
    for name in names:
        if name not in _UNNUMBERED:
            yield (
                name,
                f"framework {name} numbers nodes by their index in one Job, which repeats in each slice; "
                "remove mlPolicy.nodesPerSlice, or use a runtime for torch, or for no framework",
            )


def _find_uneven_nodes(layout: JobLayout) -> Iterator[FieldError]:
    size = layout.policy.nodes_per_slice if layout.policy else None
    nodes = next((step.count for step in layout.steps if step.runs_command), None)
    if size is None or nodes is None or nodes % size == 0:
        return
    below, above = nodes // size * size, (nodes // size + 1) * size
    detail = (
        f"is {nodes}, but the runtime has {size} nodes per slice (spec.mlPolicy.nodesPerSlice); "
        f"use {f'{below} or {above}' if below else above}"
    )
    yield FieldError(path="spec.trainer.numNodes", rule=Rule.INVALID, detail=detail, value=nodes)


def _find_taken_variables(trainer: PodSet | None) -> Iterator[FieldError]:
    """Yield an error where the runtime sets what only the job can know."""
    node = trainer.find_container(NODE) if trainer else None
    taken = sorted({entry["name"] for entry in (node or {}).get("env") or () if entry["name"] in SLICE_ENV})
    if trainer is not None and taken:
        yield refuse_runtime(
            f"replicated job {trainer.name!r} of the runtime sets {', '.join(taken)}, which slices do from "
            "the job itself; remove it from the runtime",
            trainer.name,
        )
