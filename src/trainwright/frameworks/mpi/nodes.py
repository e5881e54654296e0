"""Which pods of an MPI job train, and how many ranks each of them has (spec 02 sections 6.1 and 6.4)."""

from __future__ import annotations

from trainwright.api.constants import LAUNCHER, NODE
from trainwright.api.runtime import MPIPolicy
from trainwright.template.layout import JobLayout
from trainwright.template.pod_sets import PodSet
from trainwright.template.resources import count_accelerators
from trainwright.template.steps import trains_in_launcher

NO_POLICY = MPIPolicy()


def get_policy(layout: JobLayout) -> MPIPolicy:
    """Return the MPI block of the runtime."""
    return (layout.policy.mpi if layout.policy else None) or NO_POLICY


def is_launcher_a_node(layout: JobLayout) -> bool:
    """Say whether the launcher trains as well."""
    return trains_in_launcher(layout.template.spec, get_policy(layout))


def list_training_pod_sets(layout: JobLayout) -> list[PodSet]:
    """Return the pod sets whose pods train, in rank order: a launcher that is a node comes first.

    So rank 0, whose log a user looks for, is in the pod that runs mpirun, wherever the runtime's author put
    the launcher in the list.
    """
    launcher = layout.find_pod_set(LAUNCHER) if is_launcher_a_node(layout) else None
    return [pod_set for pod_set in (launcher, layout.find_pod_set(NODE)) if pod_set is not None]


def count_nodes(layout: JobLayout) -> int:
    """Return the number of nodes that the job asks for: its own number, else the policy's, else 1."""
    if layout.trainer.num_nodes is not None:
        return layout.trainer.num_nodes
    return max((layout.policy.num_nodes if layout.policy else None) or 1, 1)


def count_slots(layout: JobLayout) -> int:
    """Return the number of ranks on each node.

    The TrainJob's own number, else the policy's where that is above 1, else one for each accelerator of a
    node, else 1.
    """
    if layout.trainer.num_proc_per_node is not None:
        return layout.trainer.num_proc_per_node
    chosen = get_policy(layout).num_proc_per_node or 1
    if chosen > 1:
        return chosen
    return max(count_accelerators(layout.trainer_resources, layout.accelerators), 1)
