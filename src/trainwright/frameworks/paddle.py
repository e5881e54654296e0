"""Paddle: `PADDLE_*` variables for `python -m paddle.distributed.launch`, which reads them as its options.

A node is told its rank and its own address, by name. The launcher of the node whose address is that of the
master starts the key-value server at which all of them meet; left to itself it takes an IP address for its
own, which no name equals, and all nodes wait for each other. With parameter servers apart, both lists of
addresses are written out, and each launcher finds itself in one of them.
Source: spec 06 section 5.5; paddle.distributed.launch, `context/args_envs.py` (2.3 and later).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trainwright.api.constants import (
    NODE,
    PADDLE_JOB_ID,
    PADDLE_MASTER,
    PADDLE_NNODES,
    PADDLE_NPROC_PER_NODE,
    PADDLE_RANK,
    PADDLE_SERVERS_ENDPOINTS,
    PADDLE_TRAINERS_ENDPOINTS,
    POD_IP,
    TRAINER_PORT,
)
from trainwright.api.meta import Json
from trainwright.api.runtime import MLPolicy
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.contract import (
    ContainerAddition,
    Contribution,
    PodAddition,
    find_reserved_env_errors,
)
from trainwright.frameworks.pod_index import build_index_env, find_index_errors, refer_to, refuse_runtime
from trainwright.frameworks.processes import compute_processes_per_node, list_process_warnings
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet

RESERVED_ENV: Final = frozenset(
    {
        PADDLE_JOB_ID,
        PADDLE_MASTER,
        PADDLE_NNODES,
        PADDLE_NPROC_PER_NODE,
        PADDLE_RANK,
        PADDLE_SERVERS_ENDPOINTS,
        PADDLE_TRAINERS_ENDPOINTS,
        POD_IP,
    }
)


class Paddle:
    """Master at the first training node, or parameter servers in a replicated job of their own."""

    name = "paddle"

    def is_active(self, policy: MLPolicy | None) -> bool:
        """Say whether the runtime's policy has a paddle block."""
        return policy is not None and policy.paddle is not None

    def validate(self, layout: JobLayout) -> list[FieldError]:
        """Return what keeps the pods from being told who they are."""
        return [
            *_check_servers(layout),
            *find_index_errors(_list_pod_sets(layout), RESERVED_ENV, self.name),
            *find_reserved_env_errors(layout.trainer, RESERVED_ENV, self.name),
        ]

    def list_warnings(self, layout: JobLayout) -> list[str]:
        """Return where accelerators would stay idle or be shared."""
        return list_process_warnings(layout) if _get_server_name(layout) is None else []

    def build_contribution(self, layout: JobLayout) -> Contribution:
        """Return variables and port of the pods that take part."""
        trainer = layout.trainer_pod_set
        if trainer is None:
            return Contribution()
        return Contribution(
            pods={
                pod_set.name: PodAddition(
                    containers={
                        NODE: ContainerAddition(
                            env=_build_env(layout, pod_set, trainer), ports=({"containerPort": TRAINER_PORT},)
                        )
                    }
                )
                for pod_set in _list_pod_sets(layout)
            }
        )


def _build_env(layout: JobLayout, pod_set: PodSet, trainer: PodSet) -> tuple[Json, ...]:
    servers = _find_servers(layout)
    own_name = layout.build_own_endpoint(pod_set, refer_to(PADDLE_RANK))
    identity = (build_index_env(PADDLE_RANK), {"name": POD_IP, "value": own_name})
    job = {"name": PADDLE_JOB_ID, "value": layout.job_name}
    if servers is not None:
        return (
            job,
            *identity,
            {"name": PADDLE_SERVERS_ENDPOINTS, "value": _list_addresses(layout, servers)},
            {"name": PADDLE_TRAINERS_ENDPOINTS, "value": _list_addresses(layout, trainer)},
        )
    processes = compute_processes_per_node(layout)
    number = () if processes is None else ({"name": PADDLE_NPROC_PER_NODE, "value": str(processes)},)
    return (
        job,
        {"name": PADDLE_NNODES, "value": str(trainer.count)},
        *number,
        *identity,
        {"name": PADDLE_MASTER, "value": f"{layout.build_first_endpoint(trainer)}:{TRAINER_PORT}"},
    )


def _list_addresses(layout: JobLayout, pod_set: PodSet) -> str:
    return ",".join(f"{host}:{TRAINER_PORT}" for host in layout.iterate_endpoints(pod_set))


def _list_pod_sets(layout: JobLayout) -> list[PodSet]:
    candidates = (layout.trainer_pod_set, _find_servers(layout))
    return [pod_set for pod_set in candidates if pod_set is not None]


def _get_server_name(layout: JobLayout) -> str | None:
    return layout.policy.paddle.server_job_name if layout.policy and layout.policy.paddle else None


def _find_servers(layout: JobLayout) -> PodSet | None:
    name = _get_server_name(layout)
    return layout.find_pod_set(name) if name else None


def _check_servers(layout: JobLayout) -> Iterator[FieldError]:
    name, trainer = _get_server_name(layout), layout.trainer_pod_set
    if name is None:
        return
    place = "spec.mlPolicy.paddle.serverJobName of the runtime"
    if layout.find_pod_set(name) is None:
        known = ", ".join(repr(pod_set.name) for pod_set in layout.pod_sets)
        yield refuse_runtime(f"{place} is {name!r}, which is not there; use one of {known}", name)
    elif trainer is not None and trainer.name == name:
        yield refuse_runtime(f"{place} is {name!r}, which is the trainer step; name another one", name)
    elif (wanted := layout.trainer.num_proc_per_node) not in (None, 1):
        detail = "must be 1, or absent: with parameter servers each node has one trainer"
        yield FieldError(path="spec.trainer.numProcPerNode", rule=Rule.INVALID, detail=detail, value=wanted)
