"""Plain: processes that find each other by themselves, or are one. The fallback (spec 02 section 4).

Brings in the TrainJob's variables and nothing else. It also takes part where xgboost or flux does.
"""

from __future__ import annotations

from trainwright.api.constants import NODE
from trainwright.api.runtime import MLPolicy
from trainwright.field_errors import FieldError
from trainwright.frameworks.choice import list_shipped_choices
from trainwright.frameworks.contract import ContainerAddition, Contribution, PodAddition
from trainwright.template.layout import JobLayout


class Plain:
    """No rendezvous at all."""

    name = "plain"

    def is_active(self, policy: MLPolicy | None) -> bool:
        """Say whether none of torch, mpi and jax is chosen."""
        return policy is None or (policy.torch is None and policy.mpi is None and policy.jax is None)

    def validate(self, layout: JobLayout) -> list[FieldError]:  # noqa: ARG002 (there is nothing to be wrong)
        """Return no errors."""
        return []

    def list_warnings(self, layout: JobLayout) -> list[str]:
        """Return a warning where the job asks for a number of processes and nobody starts them."""
        wanted = layout.trainer.num_proc_per_node
        others = list_shipped_choices(layout.policy) or (layout.policy and layout.policy.custom)
        if wanted in (None, 1) or others:
            return []
        return [
            f"spec.trainer.numProcPerNode is {wanted}, which has no effect: a runtime without a framework "
            "runs the command once on each node; leave it out"
        ]

    def build_contribution(self, layout: JobLayout) -> Contribution:
        """Return the variables of `trainer.env` for the trainer container."""
        trainer = layout.trainer_pod_set
        if trainer is None or not layout.trainer.env:
            return Contribution()
        node = ContainerAddition(env=tuple(layout.trainer.env))
        return Contribution(pods={trainer.name: PodAddition(containers={NODE: node})})
