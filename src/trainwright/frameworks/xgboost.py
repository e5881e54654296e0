"""XGBoost: `DMLC_*` variables for its tracker and its workers (spec 02 section 8).

The tracker is started by the training script, in the pod of index 0. A node with accelerators has one worker
for each of them, which the script starts; the number of the worker is then

    DMLC_TASK_ID * DMLC_WORKERS_PER_NODE + its place on the node

because Kubernetes tells a pod its own index and nothing else. Plain takes part beside it, and brings the
variables of the TrainJob.
"""

from __future__ import annotations

from typing import Final

from trainwright.api.constants import (
    DMLC_NUM_WORKER,
    DMLC_TASK_ID,
    DMLC_TRACKER_PORT,
    DMLC_TRACKER_URI,
    DMLC_WORKERS_PER_NODE,
    NODE,
    RANK_FIELD_PATH,
    TRAINER_PORT,
)
from trainwright.api.runtime import MLPolicy
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks.contract import ContainerAddition, Contribution, PodAddition
from trainwright.frameworks.pod_index import find_unnumbered_errors
from trainwright.template.layout import JobLayout
from trainwright.template.resources import count_accelerators

RESERVED_ENV: Final = frozenset(
    {DMLC_TRACKER_URI, DMLC_TRACKER_PORT, DMLC_TASK_ID, DMLC_NUM_WORKER, DMLC_WORKERS_PER_NODE}
)


class XGBoost:
    """Tracker at the first training node."""

    name = "xgboost"

    def is_active(self, policy: MLPolicy | None) -> bool:
        """Say whether the runtime's policy has an xgboost block."""
        return policy is not None and policy.xgboost is not None

    def validate(self, layout: JobLayout) -> list[FieldError]:
        """Return an error where pods have no number, and for each variable of the job that is set here."""
        reserved = [
            FieldError(
                path=f"spec.trainer.env[{i}]",
                rule=Rule.FORBIDDEN,
                detail=f"{entry['name']}: set by the {self.name} framework from the job itself; "
                "remove from the list",
                value=entry["name"],
            )
            for i, entry in enumerate(layout.trainer.env or ())
            if entry.get("name") in RESERVED_ENV
        ]
        return [*find_unnumbered_errors(layout.trainer_pod_set), *reserved]

    def list_warnings(self, layout: JobLayout) -> list[str]:
        """Return a warning where the job asks for a number of processes that is not the one of workers."""
        wanted, workers = layout.trainer.num_proc_per_node, count_workers_per_node(layout)
        if wanted in (None, workers):
            return []
        return [
            f"spec.trainer.numProcPerNode is {wanted}, which has no effect: XGBoost has {workers} worker(s) "
            "on each node, one for each accelerator, or one where there are none; leave it out"
        ]

    def build_contribution(self, layout: JobLayout) -> Contribution:
        """Return variables and port of the trainer container."""
        trainer = layout.trainer_pod_set
        if trainer is None:
            return Contribution()
        workers = count_workers_per_node(layout)
        node = ContainerAddition(
            env=(
                {"name": DMLC_TRACKER_URI, "value": layout.build_first_endpoint(trainer)},
                {"name": DMLC_TRACKER_PORT, "value": str(TRAINER_PORT)},
                {"name": DMLC_TASK_ID, "valueFrom": {"fieldRef": {"fieldPath": RANK_FIELD_PATH}}},
                {"name": DMLC_NUM_WORKER, "value": str(trainer.count * workers)},
                {"name": DMLC_WORKERS_PER_NODE, "value": str(workers)},
            ),
            ports=({"containerPort": TRAINER_PORT},),
        )
        return Contribution(pods={trainer.name: PodAddition(containers={NODE: node})})


def count_workers_per_node(layout: JobLayout) -> int:
    """Return the number of workers on each node: one for each accelerator, or one."""
    return count_accelerators(layout.trainer_resources, layout.accelerators) or 1
