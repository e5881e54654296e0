"""JAX: one process per node, told by `JAX_*` variables where the coordinator is (spec 02 section 7).

A JAX process drives all accelerators of its node, so their number does not matter here.
"""

from __future__ import annotations

from typing import Final

from trainwright.api.constants import (
    JAX_COORDINATOR_ADDRESS,
    JAX_NUM_PROCESSES,
    JAX_PROCESS_ID,
    NODE,
    RANK_FIELD_PATH,
    TRAINER_PORT,
)
from trainwright.api.runtime import MLPolicy
from trainwright.field_errors import FieldError
from trainwright.frameworks.contract import (
    ContainerAddition,
    Contribution,
    PodAddition,
    find_reserved_env_errors,
)
from trainwright.frameworks.pod_index import find_unnumbered_errors
from trainwright.template.layout import JobLayout

RESERVED_ENV: Final = frozenset({JAX_NUM_PROCESSES, JAX_PROCESS_ID, JAX_COORDINATOR_ADDRESS})


class JAX:
    """Coordinator at the first training node."""

    name = "jax"

    def is_active(self, policy: MLPolicy | None) -> bool:
        """Say whether the runtime's policy has a jax block."""
        return policy is not None and policy.jax is not None

    def validate(self, layout: JobLayout) -> list[FieldError]:
        """Return an error where a process cannot be told who it is, or the job tells it."""
        return [
            *find_unnumbered_errors(layout.trainer_pod_set),
            *find_reserved_env_errors(layout.trainer, RESERVED_ENV, self.name),
        ]

    def list_warnings(self, layout: JobLayout) -> list[str]:
        """Return a warning where the job asks for a number of processes, which nobody would start."""
        wanted = layout.trainer.num_proc_per_node
        if wanted in (None, 1):
            return []
        return [
            f"spec.trainer.numProcPerNode is {wanted}, which has no effect: JAX runs one process on each "
            "node and gives it all accelerators; leave it out, or ask for more nodes"
        ]

    def build_contribution(self, layout: JobLayout) -> Contribution:
        """Return variables and port of the trainer container."""
        trainer = layout.trainer_pod_set
        if trainer is None:
            return Contribution()
        coordinator = f"{layout.build_first_endpoint(trainer)}:{TRAINER_PORT}"
        node = ContainerAddition(
            env=(
                *(layout.trainer.env or ()),
                {"name": JAX_NUM_PROCESSES, "value": str(trainer.count)},
                {"name": JAX_PROCESS_ID, "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}},
                {"name": JAX_COORDINATOR_ADDRESS, "value": coordinator},
            ),
            ports=({"containerPort": TRAINER_PORT},),
        )
        return Contribution(pods={trainer.name: PodAddition(containers={NODE: node})})
