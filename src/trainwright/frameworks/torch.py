"""Torch: torchrun on every node, told by `PET_*` variables how to meet (spec 02 sections 5.1 to 5.4).

TorchTune, where the command is `tune run` and is completed from the runtime, is refused rather than half
done.
"""

from __future__ import annotations

from typing import Final

from trainwright.api.constants import (
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
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet
from trainwright.template.resources import count_accelerators, count_cpus

RESERVED_ENV: Final = frozenset(
    {PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR, PET_MASTER_PORT}
)
_TORCHTUNE_COMMAND: Final = ["tune", "run"]


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
        if layout.trainer.command == _TORCHTUNE_COMMAND:
            errors.append(
                FieldError(
                    path="spec.trainer.command",
                    rule=Rule.NOT_SUPPORTED,
                    detail="TorchTune recipes are not supported by this version; "
                    "give the whole command: [tune, run, full_finetune_single_device, --config, ...]",
                    value=layout.trainer.command,
                )
            )
        return errors + find_reserved_env_errors(layout.trainer, RESERVED_ENV, self.name)

    def list_warnings(self, layout: JobLayout) -> list[str]:
        """Return where accelerators would stay idle, or could not be counted."""
        if layout.trainer_pod_set is None:
            return []
        chosen = layout.trainer.num_proc_per_node
        accelerators = count_accelerators(layout.trainer_resources, layout.accelerators)
        if chosen is not None and accelerators > chosen:
            return [
                f"spec.trainer.numProcPerNode is {chosen}, but each node asks for {accelerators} "
                f"accelerators: {accelerators - chosen} of them may stay idle"
            ]
        if chosen is None and not accelerators and not count_cpus(layout.trainer_resources):
            return [
                "neither the runtime nor spec.trainer.resourcesPerNode asks for CPUs or accelerators: "
                "each node runs one process; set spec.trainer.numProcPerNode or resourcesPerNode for more"
            ]
        return []

    def build_contribution(self, layout: JobLayout) -> Contribution:
        """Return variables and port of the trainer container, and the variables of injection targets."""
        containers: dict[str, dict[str, ContainerAddition]] = {}
        trainer = layout.trainer_pod_set
        if trainer is not None:
            containers[trainer.name] = {
                NODE: ContainerAddition(
                    env=(*(layout.trainer.env or ()), *_build_rendezvous_env(layout, trainer)),
                    ports=({"containerPort": TRAINER_PORT},),
                )
            }
        for target in _list_targets(layout.policy):
            pod_set = layout.find_pod_set(target.job_name)
            if pod_set is not None:
                addition = ContainerAddition(env=_build_rendezvous_env(layout, trainer or pod_set))
                for name in target.container_names:
                    containers.setdefault(pod_set.name, {})[name] = addition
        return Contribution(pods={name: PodAddition(containers=found) for name, found in containers.items()})


def compute_processes_per_node(layout: JobLayout) -> int | None:
    """Return the number of processes on each node, or None where torchrun is to count accelerators itself.

    The TrainJob's own number, else None where nodes have accelerators, else one for each CPU, else 1.
    """
    if layout.trainer.num_proc_per_node is not None:
        return layout.trainer.num_proc_per_node
    if count_accelerators(layout.trainer_resources, layout.accelerators):
        return None
    return count_cpus(layout.trainer_resources) or 1


def _build_rendezvous_env(layout: JobLayout, lead: PodSet) -> tuple[Json, ...]:
    """Return the five variables, in the order of the wire contract; the first pod of `lead` is the master."""
    processes = compute_processes_per_node(layout)
    return (
        {"name": PET_NNODES, "value": str(lead.count)},
        {"name": PET_NPROC_PER_NODE, "value": "auto" if processes is None else str(processes)},
        {"name": PET_NODE_RANK, "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}},
        {"name": PET_MASTER_ADDR, "value": layout.build_first_endpoint(lead)},
        {"name": PET_MASTER_PORT, "value": str(TRAINER_PORT)},
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
