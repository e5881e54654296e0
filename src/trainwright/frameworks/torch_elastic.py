"""Torch with a range of nodes: torchrun meets by its c10d rendezvous, and goes on when nodes go or come back.

The number of pods is that of the job, as ever. The range says with how many of them training may begin, or
go on, after nodes were lost; torchrun then starts all processes anew, and scripts resume from a checkpoint.
The store of the rendezvous is on the first node, so the loss of that one ends a round. Lost pods are made
again by Kubernetes as often as the runtime's `backoffLimit` allows.
Source: PyTorch documentation, "torchrun (Elastic Launch)".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainwright.api.constants import (
    PET_MAX_RESTARTS,
    PET_RDZV_BACKEND,
    PET_RDZV_ENDPOINT,
    PET_RDZV_ID,
    TRAINER_PORT,
)
from trainwright.api.meta import Json
from trainwright.api.runtime import ElasticPolicy
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.torchtune import has_torchtune_command
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet
from trainwright.template.replicated_jobs import find_named, get_job_spec, list_replicated_jobs

ELASTIC_ENV: Final = frozenset({PET_RDZV_BACKEND, PET_RDZV_ENDPOINT, PET_RDZV_ID, PET_MAX_RESTARTS})


def get_elastic_policy(layout: JobLayout) -> ElasticPolicy | None:
    """Return the runtime's range of nodes, or None where the number is fixed."""
    return layout.policy.torch.elastic if layout.policy and layout.policy.torch else None


def build_elastic_env(layout: JobLayout, lead: PodSet) -> tuple[Json, ...]:
    """Return the variables of the rendezvous at the first pod of `lead`; none where the number is fixed."""
    elastic = get_elastic_policy(layout)
    if elastic is None:
        return ()
    return (
        {"name": PET_RDZV_BACKEND, "value": "c10d"},
        {"name": PET_RDZV_ENDPOINT, "value": f"{layout.build_first_endpoint(lead)}:{TRAINER_PORT}"},
        {"name": PET_RDZV_ID, "value": layout.job_name},
        {"name": PET_MAX_RESTARTS, "value": str(elastic.max_restarts or 0)},
    )


def find_elastic_errors(layout: JobLayout) -> Iterator[FieldError]:
    """Yield why the job cannot run with the runtime's range of nodes."""
    elastic, trainer = get_elastic_policy(layout), layout.trainer_pod_set
    if elastic is None:
        return
    bounds = f"from {elastic.min_nodes} to {elastic.max_nodes} nodes"
    if elastic.min_nodes > elastic.max_nodes:
        detail = f"spec.mlPolicy.torch.elastic of the runtime goes {bounds}; correct it"
        yield FieldError(path="spec.runtimeRef", rule=Rule.INVALID, detail=detail, value=elastic.min_nodes)
    elif trainer is not None and not elastic.min_nodes <= trainer.count <= elastic.max_nodes:
        detail = f"is {trainer.count}, but the runtime is for jobs of {bounds} (spec.mlPolicy.torch.elastic)"
        yield FieldError(path="spec.trainer.numNodes", rule=Rule.INVALID, detail=detail, value=trainer.count)
    if has_torchtune_command(layout):
        detail = "TorchTune has no range of nodes; use a runtime without spec.mlPolicy.torch.elastic"
        value = list(layout.trainer.command or ())
        yield FieldError(path="spec.trainer.command", rule=Rule.INVALID, detail=detail, value=value)


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
