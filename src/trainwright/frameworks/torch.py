"""Torch: torchrun on every node, told by `PET_*` variables how to meet (spec 02 sections 5.1 to 5.4).

A job whose command is `tune run` starts TorchTune, which is torchrun with a recipe (`frameworks.torchtune`).
A runtime may give a range of nodes instead of a number, or have its nodes in slices: then torchrun numbers
the nodes itself (`frameworks.torch_elastic`).
"""

from __future__ import annotations

from typing import Final

from trainwright.api.constants import (
    ANCESTOR_TRAINER,
    NODE,
    PET_MASTER_ADDR,
    PET_MASTER_PORT,
    PET_NNODES,
    PET_NODE_RANK,
    PET_NPROC_PER_NODE,
    RANK_FIELD_PATH,
    TRAINER_PORT,
)
from trainwright.api.encoding import build_json
from trainwright.api.meta import Json
from trainwright.api.runtime import EnvInjectionTarget, MLPolicy
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.contract import (
    ContainerAddition,
    Contribution,
    PodAddition,
    find_reserved_env_errors,
)
from trainwright.frameworks.pod_index import find_unnumbered_errors
from trainwright.frameworks.processes import compute_processes_per_node, list_process_warnings
from trainwright.frameworks.torch_elastic import (
    RENDEZVOUS_ENV,
    build_rendezvous_env,
    find_rendezvous_errors,
    get_elastic_policy,
    has_rendezvous,
    has_slices,
    list_elastic_warnings,
)
from trainwright.frameworks.torchtune import (
    build_torchtune_command,
    has_torchtune_command,
    list_torchtune_warnings,
    validate_torchtune,
)
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet

RESERVED_ENV: Final = frozenset(
    {PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT}
)
# What TorchTune is told by `--rdzv_endpoint` instead.
_ADDRESS_ENV: Final = frozenset({PET_MASTER_ADDR, PET_MASTER_PORT})


class Torch:
    """Rendezvous of torchrun at the first training node."""

    name = "torch"

    def is_active(self, policy: MLPolicy | None) -> bool:
        """Say whether the runtime's policy has a torch block."""
        return policy is not None and policy.torch is not None

    def validate(self, layout: JobLayout) -> list[FieldError]:
        """Return what is wrong with injection targets, the command and the variables."""
        errors = [
            _build_target_error(target, container)
            for target in _list_targets(layout.policy)
            for container in target.container_names
            if not _has_container(layout, target.job_name, container)
        ]
        if has_torchtune_command(layout):
            errors += validate_torchtune(layout)
        errors += find_unnumbered_errors(layout.trainer_pod_set)
        errors += find_rendezvous_errors(layout)
        reserved = RESERVED_ENV | RENDEZVOUS_ENV if has_rendezvous(layout) else RESERVED_ENV
        return errors + find_reserved_env_errors(layout.trainer, reserved, self.name)

    def list_warnings(self, layout: JobLayout) -> list[str]:
        """Return where accelerators would stay idle or be shared, and what TorchTune does not have."""
        tuning = list_torchtune_warnings(layout) if has_torchtune_command(layout) else []
        return [*list_process_warnings(layout), *tuning, *list_elastic_warnings(layout)]

    def build_contribution(self, layout: JobLayout) -> Contribution:
        """Return variables and port of the trainer container, and the variables of injection targets."""
        containers: dict[str, dict[str, ContainerAddition]] = {}
        trainer = layout.trainer_pod_set
        if trainer is not None:
            containers[trainer.name] = {NODE: _build_trainer_addition(layout, trainer)}
        if has_torchtune_command(layout):
            # A TrainJob's command is that of every trainer step.
            others = [
                step for step in layout.pod_sets if step.ancestor == ANCESTOR_TRAINER and step != trainer
            ]
            command = build_torchtune_command(layout)
            containers |= {step.name: {NODE: ContainerAddition(command=command)} for step in others}
        for target in _list_targets(layout.policy):
            pod_set = layout.find_pod_set(target.job_name)
            if pod_set is not None:
                addition = ContainerAddition(env=_build_rendezvous_env(layout, trainer or pod_set))
                for name in target.container_names:
                    containers.setdefault(pod_set.name, {})[name] = addition
        return Contribution(pods={name: PodAddition(containers=found) for name, found in containers.items()})


def _build_trainer_addition(layout: JobLayout, trainer: PodSet) -> ContainerAddition:
    rendezvous = _build_rendezvous_env(layout, trainer)
    command: tuple[str, ...] = ()
    if has_torchtune_command(layout):
        rendezvous = tuple(entry for entry in rendezvous if entry["name"] not in _ADDRESS_ENV)
        command = build_torchtune_command(layout)
    return ContainerAddition(
        env=(*(layout.trainer.env or ()), *rendezvous),
        ports=({"containerPort": TRAINER_PORT},),
        command=command,
    )


def _build_rendezvous_env(layout: JobLayout, lead: PodSet) -> tuple[Json, ...]:
    """Return the five variables, in the order of the wire contract; the first pod of `lead` is the master.

    Those of torchrun's own rendezvous come after them. In slices there is no rank: the index of a pod is only
    its place in its slice, and torchrun does not need it then.
    """
    processes, elastic = compute_processes_per_node(layout), get_elastic_policy(layout)
    nodes = f"{elastic.min_nodes}:{elastic.max_nodes}" if elastic else str(lead.num_nodes)
    rank = {"name": PET_NODE_RANK, "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}}
    return (
        {"name": PET_NNODES, "value": nodes},
        {"name": PET_NPROC_PER_NODE, "value": "auto" if processes is None else str(processes)},
        *(() if has_slices(layout) else (rank,)),
        {"name": PET_MASTER_ADDR, "value": layout.build_first_endpoint(lead)},
        {"name": PET_MASTER_PORT, "value": str(TRAINER_PORT)},
        *build_rendezvous_env(layout, lead),
    )


def _list_targets(policy: MLPolicy | None) -> list[EnvInjectionTarget]:
    injection = policy.torch.env_injection if policy and policy.torch else None
    return (injection.targets if injection else None) or []


def _has_container(layout: JobLayout, job_name: str, container: str) -> bool:
    pod_set = layout.find_pod_set(job_name)
    return pod_set is not None and pod_set.find_container(container) is not None


def _build_target_error(target: EnvInjectionTarget, container: str) -> FieldError:
    return FieldError(
        path="spec.runtimeRef",
        rule=Rule.INVALID,
        detail=f"envInjection target: the runtime has no container {container!r} in a replicated job "
        f"{target.job_name!r}; correct the runtime's spec.mlPolicy.torch.envInjection",
        value=build_json(target),
    )
