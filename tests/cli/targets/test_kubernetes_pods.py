"""Which rank the pods of a job on a cluster have."""

from __future__ import annotations

import pytest

from trainwright.api.core import Pod
from trainwright.api.meta import Json, ObjectMeta
from trainwright.cli.targets.kubernetes_pods import find_rank

OF_FOUR = [{"name": "TRAINWRIGHT_SLICE_NODES", "value": "4"}]


def pod(index: int | None, *, job: int = 0, env: list[Json] | None = None, step: str = "node") -> Pod:
    labels = {
        "jobset.sigs.k8s.io/replicatedjob-name": step,
        "jobset.sigs.k8s.io/job-index": str(job),
        **({} if index is None else {"batch.kubernetes.io/job-completion-index": str(index)}),
    }
    container = {"name": "node", **({"env": env} if env else {})}
    return Pod(metadata=ObjectMeta(name="p", labels=labels), spec={"containers": [container]})


RANKS: dict[str, tuple[Pod, int | None]] = {
    "its index": (pod(3), 3),
    "without an index, the only one": (pod(None), 0),
    "nodes of the slices before come first": (pod(3, job=2, env=OF_FOUR), 11),
    "the first slice": (pod(3, env=OF_FOUR), 3),
    "Jobs that are no slices": (pod(3, job=2), 3),
    "a launcher is no node": (pod(0, step="launcher"), None),
}


@pytest.mark.parametrize(("given", "rank"), RANKS.values(), ids=RANKS)
def test_ranks(given: Pod, rank: int | None) -> None:
    assert find_rank(given) == rank
