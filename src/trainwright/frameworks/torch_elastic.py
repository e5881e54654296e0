"""Torch where torchrun numbers the nodes itself: its c10d rendezvous, for a range of nodes and for slices.

With a range, training goes on when nodes go or come back. The number of pods is that of the job, as ever. The
range says with how many of them training may begin, or go on, after nodes were lost; torchrun then starts all
processes anew, and scripts resume from a checkpoint. The store of the rendezvous is on the first node, so the
loss of that one ends a round. Lost pods are made again by Kubernetes as often as the runtime's `backoffLimit`
allows.

The agents' store is not shared with the processes, as torchrun would have it: it lives on while they are
started anew, and they would find in it the addresses of those that are gone. With torch 2.15 all ranks then
hang in `init_process_group`, whoever failed; with a store of their own, made for each start, they go on.

In slices no pod is told its rank. torchrun sorts the nodes by their host names, in which the slice stands
before the index, so the ranks of a slice follow each other and rank 0 leads the first one.
Source: PyTorch documentation, "torchrun (Elastic Launch)".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainwright.api.constants import (
    PET_MAX_RESTARTS,
    PET_RDZV_BACKEND,
    PET_RDZV_CONF,
    PET_RDZV_ENDPOINT,
    PET_RDZV_ID,
    TORCH_DISABLE_SHARE_RDZV_TCP_STORE,
    TRAINER_PORT,
)
from trainwright.api.meta import Json
from trainwright.api.runtime import ElasticPolicy
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.torchtune import has_torchtune_command
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet
from trainwright.template.replicated_jobs import find_named, get_job_spec, list_replicated_jobs

RENDEZVOUS_ENV: Final = frozenset(
    {PET_RDZV_BACKEND, PET_RDZV_ENDPOINT, PET_RDZV_ID, PET_RDZV_CONF, PET_MAX_RESTARTS}
)
# How long nodes wait for the first one, and for each other. By default nodes give up after a minute if the
# first is not there; slices are placed one by one, and pull images at different speeds.
_PATIENCE: Final = "join_timeout=900,read_timeout=900"


def get_elastic_policy(layout: JobLayout) -> ElasticPolicy | None:
    """Return the runtime's range of nodes, or None where the number is fixed."""
    return layout.policy.torch.elastic if layout.policy and layout.policy.torch else None


def has_slices(layout: JobLayout) -> bool:
    """Say whether the runtime's nodes come in slices."""
    return layout.policy is not None and layout.policy.nodes_per_slice is not None


def has_rendezvous(layout: JobLayout) -> bool:
    """Say whether torchrun numbers the nodes itself."""
    return get_elastic_policy(layout) is not None or has_slices(layout)


def build_rendezvous_env(layout: JobLayout, lead: PodSet) -> tuple[Json, ...]:
    """Return the variables of the rendezvous at the first pod of `lead`; none where pods know their rank."""
    if not has_rendezvous(layout):
        return ()
    elastic = get_elastic_policy(layout)
    restarts = elastic.max_restarts or 0 if elastic else None
    return (
        {"name": PET_RDZV_BACKEND, "value": "c10d"},
        {"name": PET_RDZV_ENDPOINT, "value": f"{layout.build_first_endpoint(lead)}:{TRAINER_PORT}"},
        {"name": PET_RDZV_ID, "value": layout.job_name},
        *(({"name": PET_RDZV_CONF, "value": _PATIENCE},) if has_slices(layout) else ()),
        *(() if restarts is None else ({"name": PET_MAX_RESTARTS, "value": str(restarts)},)),
        {"name": TORCH_DISABLE_SHARE_RDZV_TCP_STORE, "value": "1"},
    )


def find_rendezvous_errors(layout: JobLayout) -> Iterator[FieldError]:
    """Yield why the job cannot run with the runtime's range of nodes, or in its slices."""
    yield from _find_range_errors(layout)
    field = "torch.elastic" if get_elastic_policy(layout) else "nodesPerSlice"
    if has_rendezvous(layout) and has_torchtune_command(layout):
        detail = f"TorchTune must be told the rank of a node; use a runtime without spec.mlPolicy.{field}"
        value = list(layout.trainer.command or ())
        yield FieldError(path="spec.trainer.command", rule=Rule.INVALID, detail=detail, value=value)


def _find_range_errors(layout: JobLayout) -> Iterator[FieldError]:
    elastic, trainer = get_elastic_policy(layout), layout.trainer_pod_set
    if elastic is None:
        return
    bounds = f"from {elastic.min_nodes} to {elastic.max_nodes} nodes"
    if elastic.min_nodes > elastic.max_nodes:
        detail = f"spec.mlPolicy.torch.elastic of the runtime goes {bounds}; correct it"
        yield FieldError(path="spec.runtimeRef", rule=Rule.INVALID, detail=detail, value=elastic.min_nodes)
    elif trainer is not None and not elastic.min_nodes <= (nodes := trainer.num_nodes) <= elastic.max_nodes:
        detail = f"is {nodes}, but the runtime goes {bounds} (spec.mlPolicy.torch.elastic); set one of these"
        yield FieldError(path="spec.trainer.numNodes", rule=Rule.INVALID, detail=detail, value=nodes)


def list_elastic_warnings(layout: JobLayout) -> list[str]:
    """Return a warning where the first pod that is lost ends the job, range or not."""
    trainer = layout.trainer_pod_set
    if get_elastic_policy(layout) is None or trainer is None:
        return []
    replicated_job = find_named(list_replicated_jobs(layout.template.spec), trainer.name) or {}
    if get_job_spec(replicated_job).get("backoffLimit") != 0:
        return []
    return [
        f"backoffLimit of replicated job {trainer.name!r} is 0, so the first pod that is lost fails the job, "
        "although the runtime has a range of nodes (spec.mlPolicy.torch.elastic); set backoffLimit there"
    ]
