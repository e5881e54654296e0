"""A node falls silent: the job on it says so, from the silence on until its pods are given up.

The node is lost for good, so this module has a cluster of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kube.cluster import Cluster, ClusterUnavailable
from kube.node_tests.situations import CountingCluster, Situation, observe_all
from kube.node_tests.training import connect, wait_until
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.trainjob import Cause, TrainJob
from trainwright.cluster.reconcile import reconcile

# The node lifecycle controller waits 50 s for a node.
SECONDS = 150.0
pytestmark = pytest.mark.timeout(2 * SECONDS)


@pytest.fixture(scope="module")
def real_cluster(cluster_programs: Path) -> Iterator[Cluster]:
    try:
        cluster = Cluster(cluster_programs).__enter__()
    except ClusterUnavailable as error:
        pytest.skip(f"NOT TESTED on a real node: {error}")
    try:
        yield cluster
    finally:
        cluster.__exit__(None, None, None)


def silence(cluster: Cluster, namespace: str, pods: Sequence[Json]) -> None:
    """End the kubelet; what runs on the node goes on."""
    cluster.node.walls.stop("kubelet")


def give_up(cluster: Cluster) -> None:
    """Taint the node, as its controller does unless all nodes are silent; the taint manager does the rest."""
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    cluster.call(
        "PATCH",
        f"/api/v1/nodes/{cluster.node_name}",
        {"spec": {"taints": [taint]}},
        content_type="application/merge-patch+json",
    )


LOST = Situation(
    "Node",
    "Node",
    "NodeNotReady",
    container={"command": ["sleep", "300"]},
    # Not the five minutes that a pod tolerates by default.
    pod={
        "tolerations": [
            {
                "key": f"node.kubernetes.io/{taint}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 1,
            }
            for taint in ("not-ready", "unreachable")
        ]
    },
    act=silence,
    seconds=SECONDS,
)


def test_a_node_that_is_lost_is_named_and_stays_named_when_its_pods_are_given_up(
    real_cluster: Cluster, make_namespaces: Callable[..., str]
) -> None:
    """1. The kubelet ends. 2. The pod is not ready any more. 3. The taint manager deletes it, in vain."""
    namespaces: list[str] = []

    def make_namespace(**labels: str) -> str:
        namespaces.append(make_namespaces(**labels))
        return namespaces[-1]

    observed = observe_all(real_cluster, {"lost": LOST}, make_namespace)["lost"]

    told = observed.status.cause
    assert told is not None, observed
    node = real_cluster.node_name
    assert (told.layer, told.kind, told.name, told.reason) == ("Node", "Node", node, "NodeNotReady")
    assert told.message.endswith(f"(node, rank 0): its node {node} does not answer")
    assert observed.trail == [("Node", "NodeNotReady")]
    give_up(real_cluster)
    assert asyncio.run(look_when_given_up(real_cluster, namespaces[0])) == (told, 0)


async def look_when_given_up(cluster: Cluster, namespace: str) -> tuple[Cause | None, int]:
    """Return what the job says once its pod is being deleted, and how often its status is written then."""
    key = ObjectKey("TrainJob", namespace, LOST.name)
    async with connect(cluster, CountingCluster) as kube:

        async def is_given_up() -> bool:
            [pod] = (await kube.list("Pod", namespace)).items
            conditions = {c["type"]: c.get("reason") for c in pod["status"]["conditions"]}
            return conditions.get("DisruptionTarget") == "DeletionByTaintManager" and (
                "deletionTimestamp" in pod["metadata"]
            )

        await wait_until(kube, namespace, is_given_up, SECONDS)
        await reconcile(kube, key, lambda: datetime.now(UTC))
        kube.status_writes.clear()
        await reconcile(kube, key, lambda: datetime.now(UTC))
        status = parse_object(await kube.get(key), TrainJob).status
        return status.cause if status is not None else None, kube.status_writes.total()
