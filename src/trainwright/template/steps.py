"""What each replicated job of a runtime takes from `spec.trainer`, and how many pods that asks it for.

One table for all that follows from it: counts, resources, image, command and variables. In most runtimes
the step with the trainer label takes everything; in those of TensorFlow, Paddle and frameworks of other
packages, further ones run the same program in pods of their own size. In an MPI runtime roles go by *name*:
`launcher` runs the command, once, and the pods of `node` run what their template says (sshd) in the same
image, and train.
Source: spec 02 sections 2.5, 2.6, 3.2 and 6.1, cases B024, B071.
"""

from __future__ import annotations

import msgspec

from trainwright.api.constants import ANCESTOR_TRAINER, LAUNCHER, NODE
from trainwright.api.meta import Json
from trainwright.api.runtime import MLPolicy, MPIPolicy
from trainwright.template.replicated_jobs import get_ancestor, list_replicated_jobs


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one replicated job takes from a TrainJob; nothing where it does not train.

    `runs_command` is for command and arguments, `trains` for image and variables, `uses_resources` for
    resourcesPerNode. `replaces_arguments` says that a command comes without the arguments of the runtime's.
    `count` is the number of pods, None where the template says it; with `nodes_per_slice` they are spread
    over Jobs of that many.
    """

    runs_command: bool = False
    replaces_arguments: bool = False
    trains: bool = False
    uses_resources: bool = False
    count: int | None = None
    nodes_per_slice: int | None = None


def list_steps(spec: Json | None, policy: MLPolicy | None, num_nodes: int | None = None) -> tuple[Step, ...]:
    """Return what each replicated job takes, in order; `num_nodes` is the TrainJob's own number.

    A step with the trainer label gets the policy's number of nodes, or 1, where there is a policy, whatever
    its template says; the TrainJob's own number goes to the *first* of them, and so do the policy's slices.
    Where further ones do other work (parameter servers, an evaluator), their templates say how many there are
    and what they need.
    """
    roles = _build_mpi_roles(spec, policy, num_nodes)
    steps: list[Step] = []
    for replicated_job in list_replicated_jobs(spec):
        is_trainer = get_ancestor(replicated_job) == ANCESTOR_TRAINER
        if (role := roles.get(replicated_job["name"])) is not None:
            steps.append(role)
        elif not is_trainer:
            steps.append(Step())
        elif (has_first := any(step.runs_command for step in steps)) and _has_other_work(policy):
            steps.append(Step(runs_command=True, trains=True))
        else:
            count = None if policy is None else max(policy.num_nodes or 1, 1)
            if num_nodes is not None and not has_first:
                count = num_nodes
            slices = None if policy is None or has_first else policy.nodes_per_slice
            steps.append(
                Step(
                    runs_command=True,
                    trains=True,
                    uses_resources=True,
                    count=count,
                    nodes_per_slice=slices,
                )
            )
    return tuple(steps)


def has_launcher(spec: Json | None) -> bool:
    """Say whether a replicated job is called `launcher`: the one that runs mpirun in an MPI runtime."""
    return any(replicated_job["name"] == LAUNCHER for replicated_job in list_replicated_jobs(spec))


def trains_in_launcher(spec: Json | None, policy: MPIPolicy) -> bool:
    """Say whether the launcher of an MPI runtime is a node: its policy says so, or there is no other."""
    names = {replicated_job["name"] for replicated_job in list_replicated_jobs(spec)}
    return LAUNCHER in names and (bool(policy.run_launcher_as_node) or NODE not in names)


def _has_other_work(policy: MLPolicy | None) -> bool:
    """Say whether trainer steps after the first do other work than it does."""
    return policy is not None and any((policy.tensorflow, policy.paddle, policy.custom))


def _build_mpi_roles(spec: Json | None, policy: MLPolicy | None, num_nodes: int | None) -> dict[str, Step]:
    """Return what `launcher` and `node` of an MPI runtime take; nothing for another runtime.

    There is exactly one launcher, but for a job of no nodes, which trains nothing. The number of nodes, the
    TrainJob's or else the policy's, is that of the pods that train: where the launcher is one of them, `node`
    has one less, which may be none.
    """
    if policy is None or policy.mpi is None or not has_launcher(spec):
        return {}
    is_node = trains_in_launcher(spec, policy.mpi)
    nodes = policy.num_nodes if num_nodes is None else num_nodes
    launchers = 0 if nodes == 0 else 1
    if nodes is not None and is_node:
        nodes = max(nodes - 1, 0)
    return {
        LAUNCHER: Step(
            runs_command=True, replaces_arguments=True, trains=True, uses_resources=is_node, count=launchers
        ),
        NODE: Step(trains=True, uses_resources=True, count=nodes),
    }
