"""Frameworks on a real API server with the real JobSet: clusters of replicated jobs, other packages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from installed_packages import EXAMPLE, install_project
from kube.operating import ANCESTOR, API_VERSION, People, operating, train_job
from test_plugins import find_entry_points
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import Connection
from trainwright.frameworks import FRAMEWORKS
from trainwright.plugins import add_frameworks
from trainwright.runner.executors.pod_env import expand

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")


def step(name: str, count: int = 1) -> Json:
    return {
        "name": name,
        "template": {
            "metadata": {"labels": {ANCESTOR: "trainer"}},
            "spec": {
                "backoffLimit": 0,
                "parallelism": count,
                "template": {
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "img"}]}
                },
            },
        },
    }


def runtime(policy: Json, *steps: Json, **fields: Json) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": {"name": "rt"},
        "spec": {"mlPolicy": policy, "template": {"spec": {"replicatedJobs": list(steps), **fields}}},
    }


def read_config(pod: Json) -> Json:
    """Return the TF_CONFIG that the container of a pod sees: its own index is an annotation of the pod."""
    env = {entry["name"]: entry for entry in pod["spec"]["containers"][0]["env"]}
    assert env["TF_TASK_INDEX"]["valueFrom"]["fieldRef"]["fieldPath"] == (
        "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    )
    index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
    config: Json = json.loads(expand(env["TF_CONFIG"]["value"], {"TF_TASK_INDEX": index}))
    return config


async def test_a_tensorflow_cluster_ends_with_its_workers_and_every_pod_is_in_its_list(
    people: People, operator_connection: Connection, namespace: str
) -> None:
    policy = {"numNodes": 1, "tensorflow": {"tasks": [{"jobName": "node", "type": "worker"}]}}
    policy["tensorflow"]["tasks"].append({"jobName": "ps", "type": "ps"})
    success = {"operator": "All", "targetReplicatedJobs": ["node"]}
    async with operating(operator_connection, namespace):
        await people.create(runtime(policy, step("node"), step("ps", 2), successPolicy=success))
        await people.create(
            train_job("demo", "rt", trainer={"numNodes": 3, "command": ["python", "train.py"]})
        )
        pods = await people.until_pods(5)
        seen = []
        for pod in pods:
            config = read_config(pod)
            task = config["task"]
            host = config["cluster"][task["type"]][task["index"]]
            assert host == f"{pod['spec']['hostname']}.{pod['spec']['subdomain']}:29500"
            assert pod["spec"]["containers"][0]["command"] == ["python", "train.py"]
            seen.append((task["type"], task["index"]))
        assert sorted(seen) == [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1), ("worker", 2)]
        await people.set_pods("Running", 5)
        await people.until_phase("Running")
        for pod in pods:
            if "-node-" in pod["metadata"]["name"]:
                await people.set_pod(pod, "Succeeded")
        await people.until_phase("Complete")


async def test_a_framework_of_another_package_makes_its_objects_before_the_job_set(
    people: People,
    operator_connection: Connection,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = install_project(EXAMPLE, tmp_path)
    monkeypatch.syspath_prepend(str(installed))
    frameworks = add_frameworks(FRAMEWORKS, find_entry_points(installed))
    async with operating(operator_connection, namespace, frameworks=frameworks) as running:
        policy = {"custom": {"framework": "hosts", "parameters": {"folder": "/run/hosts"}}}
        await people.create(runtime(policy, step("node")))
        job = await people.create(train_job("demo", "rt", trainer={"numNodes": 2}))
        (pod, _) = await people.until_pods(2)
        assert {"name": "HOST_FILE", "value": "/run/hosts/hosts"} in pod["spec"]["containers"][0]["env"]
        hosts = await people.until_found("ConfigMap", "demo-hosts")
        assert hosts["data"] == {"hosts": "demo-node-0-0.demo\ndemo-node-0-1.demo"}
        assert [owner["uid"] for owner in hosts["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
        writes = running.transport.writes
        assert writes.index("PATCH configmaps/demo-hosts") < writes.index("PATCH jobsets/demo")
    sys.modules.pop("host_file", None)


async def test_a_framework_that_the_operator_lacks_stands_in_the_status(
    people: People, operator_connection: Connection, namespace: str
) -> None:
    async with operating(operator_connection, namespace):
        await people.create(runtime({"custom": {"framework": "hosts"}}, step("node")))
        await people.create(train_job("demo", "rt", trainer={"numNodes": 2}))
        status = await people.until_status(lambda status: bool(status.get("cause")))
        assert "framework hosts is not installed" in status["cause"]["message"]
        assert await people.find("JobSet") is None
