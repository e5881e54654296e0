"""What each replicated job takes from a TrainJob (spec 02 sections 2.5, 2.6, 3.2; cases B024, B071)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template.builders import PLAIN, TORCH, replicated_job
from trainwright.api.runtime import CustomPolicy, MLPolicy, MPIPolicy, PaddlePolicy, TensorFlowPolicy
from trainwright.template.steps import Step, list_steps

WORKERS = replicated_job("node", ancestor=None)
LABELLED_WORKERS = replicated_job("node")
LAUNCHER = replicated_job("launcher")
BARE_LAUNCHER = replicated_job("launcher", ancestor=None)

APART = MPIPolicy()
AS_NODE = MPIPolicy(run_launcher_as_node=True)


def everything(count: int | None) -> Step:
    return Step(runs_command=True, trains=True, uses_resources=True, count=count)


def launcher(*, uses_resources: bool, count: int = 1) -> Step:
    return Step(
        runs_command=True, replaces_arguments=True, trains=True, uses_resources=uses_resources, count=count
    )


def workers(count: int | None) -> Step:
    return Step(trains=True, uses_resources=True, count=count)


# Replicated jobs, policy, the TrainJob's numNodes -> steps.
STEPS = {
    "a labelled step takes everything": ([replicated_job("any")], TORCH, 3, [everything(3)]),
    "the policy's number": ([replicated_job()], MLPolicy(num_nodes=4), None, [everything(4)]),
    "no policy: the template's number": ([replicated_job()], None, None, [everything(None)]),
    "no policy, a number of the job's": ([replicated_job()], None, 2, [everything(2)]),
    "the first of two gets the job's number": (
        [replicated_job("a"), replicated_job("b")],
        PLAIN,
        5,
        [everything(5), everything(1)],
    ),
    "TensorFlow, further steps have their own size": (
        [replicated_job("worker"), replicated_job("ps"), WORKERS],
        MLPolicy(num_nodes=1, tensorflow=TensorFlowPolicy()),
        5,
        [everything(5), Step(runs_command=True, trains=True), Step()],
    ),
    "Paddle, the same": (
        [replicated_job("node"), replicated_job("server")],
        MLPolicy(num_nodes=2, paddle=PaddlePolicy()),
        None,
        [everything(2), Step(runs_command=True, trains=True)],
    ),
    "a framework of another package, the same": (
        [replicated_job("node"), replicated_job("more")],
        MLPolicy(custom=CustomPolicy(framework="x")),
        3,
        [everything(3), Step(runs_command=True, trains=True)],
    ),
    "other steps take nothing": ([WORKERS], TORCH, 3, [Step()]),
    "names mean nothing outside MPI": ([BARE_LAUNCHER, WORKERS], TORCH, 3, [Step(), Step()]),
    "MPI, launcher apart": (
        [WORKERS, LAUNCHER],
        MLPolicy(num_nodes=1, mpi=APART),
        3,
        [workers(3), launcher(uses_resources=False)],
    ),
    "MPI, launcher is a node": (
        [WORKERS, LAUNCHER],
        MLPolicy(num_nodes=1, mpi=AS_NODE),
        3,
        [workers(2), launcher(uses_resources=True)],
    ),
    "MPI, one node, which is the launcher": (
        [WORKERS, LAUNCHER],
        MLPolicy(num_nodes=1, mpi=AS_NODE),
        None,
        [workers(0), launcher(uses_resources=True)],
    ),
    "MPI, no nodes, so nothing is launched": (
        [WORKERS, LAUNCHER],
        MLPolicy(num_nodes=1, mpi=APART),
        0,
        [workers(0), launcher(uses_resources=False, count=0)],
    ),
    "MPI, no nodes, launcher is a node": (
        [WORKERS, LAUNCHER],
        MLPolicy(num_nodes=1, mpi=AS_NODE),
        0,
        [workers(0), launcher(uses_resources=True, count=0)],
    ),
    "MPI, a launcher alone is the node": (
        [LAUNCHER],
        MLPolicy(num_nodes=1, mpi=APART),
        None,
        [launcher(uses_resources=True)],
    ),
    "MPI, number of the policy": (
        [WORKERS, LAUNCHER],
        MLPolicy(num_nodes=4, mpi=APART),
        None,
        [workers(4), launcher(uses_resources=False)],
    ),
    "MPI, no number anywhere": (
        [WORKERS, LAUNCHER],
        MLPolicy(mpi=APART),
        None,
        [workers(None), launcher(uses_resources=False)],
    ),
    "MPI, roles go by name and not by label": (
        [LABELLED_WORKERS, BARE_LAUNCHER],
        MLPolicy(num_nodes=1, mpi=APART),
        2,
        [workers(2), launcher(uses_resources=False)],
    ),
    "MPI, another step": (
        [replicated_job("dataset-initializer", ancestor="dataset-initializer"), WORKERS, LAUNCHER],
        MLPolicy(num_nodes=1, mpi=APART),
        2,
        [Step(), workers(2), launcher(uses_resources=False)],
    ),
    "MPI without a launcher goes by the label": (
        [LABELLED_WORKERS],
        MLPolicy(num_nodes=1, mpi=AS_NODE),
        2,
        [everything(2)],
    ),
}


@pytest.mark.parametrize(("jobs", "policy", "num_nodes", "expected"), STEPS.values(), ids=STEPS)
def test_steps(jobs: list, policy: MLPolicy | None, num_nodes: int | None, expected: list[Step]) -> None:
    assert list_steps({"replicatedJobs": jobs}, policy, num_nodes) == tuple(expected)


@given(num_nodes=st.integers(0, 10_000), is_node=st.booleans())
def test_as_many_pods_train_as_the_job_has_nodes(num_nodes: int, is_node: bool) -> None:
    policy = MLPolicy(num_nodes=1, mpi=MPIPolicy(run_launcher_as_node=is_node))
    steps = list_steps({"replicatedJobs": [WORKERS, LAUNCHER]}, policy, num_nodes)
    assert sum(step.count or 0 for step in steps if step.uses_resources) == num_nodes
    assert [step.count for step in steps if step.runs_command] == [min(num_nodes, 1)]
