"""What a pod asks for, by our count of its template, is what the API server makes it ask for."""

from __future__ import annotations

import copy
import json

import pytest

from trainwright.api.meta import Json
from trainwright.cluster.kube.requests import build_create
from trainwright.gang.demand import sum_pod_requests


def container(name: str = "node", *, sidecar: bool = False, **resources: Json) -> Json:
    restart = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": name, "image": "registry.example/img:1", "resources": resources, **restart}


PODS: dict[str, Json] = {
    "a limit alone": {"containers": [container(limits={"cpu": "2", "nvidia.com/gpu": "4"})]},
    "a request beside its limit": {"containers": [container(limits={"cpu": "4"}, requests={"cpu": "1"})]},
    "a limit of a sidecar and of an init container": {
        "containers": [container(requests={"cpu": "1"})],
        "initContainers": [
            container("side", sidecar=True, limits={"cpu": "2", "memory": "1Gi"}),
            container("prep", limits={"memory": "4Gi"}),
        ],
    },
    "a request of the pod": {
        "containers": [container(requests={"cpu": "1", "memory": "1Gi"})],
        "resources": {"requests": {"cpu": "4"}},
    },
    "a limit of the pod, of what a container requests and of what none does": {
        "containers": [container(requests={"cpu": "1"})],
        "resources": {"limits": {"cpu": "6", "memory": "3Gi"}},
    },
    "a limit of the pod beside one of a container": {
        "containers": [container(limits={"cpu": "2"}), container("side")],
        "resources": {"limits": {"cpu": "6"}},
    },
    "a limit of the pod beside a request of its own": {
        "containers": [container(requests={"memory": "1Gi"})],
        "resources": {"limits": {"cpu": "6", "memory": "3Gi"}, "requests": {"cpu": "2"}},
    },
    "huge pages": {
        "containers": [container(limits={"hugepages-2Mi": "4Mi", "memory": "1Gi"})],
        "resources": {"limits": {"cpu": "1", "memory": "2Gi"}},
    },
}


@pytest.mark.parametrize("pod_spec", PODS.values(), ids=PODS)
async def test_the_api_server_counts_the_same(transport, namespace, pod_spec: Json) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "demo", "namespace": namespace},
        "spec": pod_spec,
    }
    stored = json.loads(await transport.request(build_create(pod, dry_run=True)))["spec"]
    requests_alone = copy.deepcopy(stored)
    for part in (requests_alone, *requests_alone["containers"], *requests_alone.get("initContainers", ())):
        part.get("resources", {}).pop("limits", None)

    assert sum_pod_requests(pod_spec) == sum_pod_requests(requests_alone)
