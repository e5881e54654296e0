"""Which pods train."""

from __future__ import annotations

import pytest

from runner.lab import replicated_job
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet
from trainwright.runner.pods.training_nodes import find_node_rank

JOB_SET = parse_object(
    {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "demo", "namespace": "team"},
        "spec": {
            "replicatedJobs": [
                replicated_job("prepare", "true"),
                {**replicated_job("node", "true", pods=2, step="trainer"), "replicas": 2},
                replicated_job("dataset-initializer", "true", step="dataset-initializer"),
                replicated_job("chief", "true", step="trainer"),
            ]
        },
    },
    JobSet,
)
RANKS = {
    "demo-node-0-0": 0,
    "demo-node-0-1": 1,
    "demo-node-1-0": 2,
    "demo-node-1-1": 3,
    "demo-chief-0-0": 4,
    "demo-prepare-0-0": None,
    "demo-dataset-initializer-0-0": None,
    "demo-node-0-2": None,
}


@pytest.mark.parametrize(("host", "rank"), RANKS.items(), ids=RANKS)
def test_training_nodes_are_counted_over_all_trainer_steps(host: str, rank: int | None) -> None:
    assert find_node_rank(JOB_SET, host) == rank
