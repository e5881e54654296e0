"""The public Python SDK, unchanged, against the operator as it is installed: what its users see.

They have the role that is meant for them in one namespace, and what everybody may read.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kube.cluster import PERSON, Cluster
from kube.images import BASE_IMAGE
from trainwright.manifests.access import EDIT
from trainwright.runtimes import load_shipped_runtimes

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("sdk_program.py")
STORY_SECONDS = 500

Tell = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def sdk_environment() -> Path:
    """The Python environment of requirements/sdk.txt."""
    chosen = os.environ.get("TRAINWRIGHT_SDK_ENV")
    if not chosen:
        pytest.skip("NOT TESTED: no SDK; `make test-full` sets TRAINWRIGHT_SDK_ENV and installs it")
    return Path(chosen)


@pytest.fixture
def tell(ready_cluster: Cluster, sdk_environment: Path, namespace: str, tmp_path: Path) -> Tell:
    """Tell a story of sdk_program.py as a person who may edit in the namespace, and return what was seen."""
    rbac = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "edit-train-jobs"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": EDIT},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": PERSON}],
    }
    ready_cluster.call("POST", f"/apis/{rbac}/v1/namespaces/{namespace}/rolebindings", binding)
    kubeconfig = ready_cluster.plane.kubeconfig(PERSON)

    def run(story: str, name: str = "job") -> dict[str, Any]:
        done = subprocess.run(
            [sdk_environment / "bin/python", PROGRAM, namespace, kubeconfig, story, name],
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=STORY_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        *printed, last = done.stdout.splitlines()
        return {**json.loads(last), "printed": printed}

    return run


def test_a_function_trains_on_two_nodes_from_the_list_of_runtimes_to_its_deletion(
    ready_cluster: Cluster, tell: Tell, namespace: str
):
    seen = tell("train_to_the_end", "sum")

    assert seen["warnings"] == []
    assert list(seen["runtimes"]) == list(load_shipped_runtimes())
    assert seen["runtimes"]["torch-distributed"] == ["torch", BASE_IMAGE, "ClusterTrainingRuntime"]
    assert seen["created"] == "sum"
    assert [status for status in seen["statuses"] if status != "Created"] == ["Running", "Complete"]
    assert {(step["name"], step["status"], step["device"]) for step in seen["started"]} == {
        ("node-0", "Running", "cpu"),
        ("node-1", "Running", "cpu"),
    }
    assert (seen["nodes"], seen["runtime"]) == (2, "torch-distributed")
    assert seen["steps"] == [["node-0", "Succeeded"], ["node-1", "Succeeded"]]
    assert seen["followed"] == ["hello from rank 0 of 2", "the sum is 21"]
    assert seen["logs"] == {
        "node-0": ["hello from rank 0 of 2", "the sum is 21"],
        "node-1": ["hello from rank 1 of 2", "the sum is 21"],
    }
    assert seen["events"].count(["Pod", "Started"]) == 2
    assert seen["listed"] == [["sum", "Complete"]]
    assert (seen["listed by runtime"], seen["listed by another runtime"]) == (["sum"], [])
    (kind, said, message), left = seen["after deletion"]
    assert (kind, said) == ("RuntimeError", f"Failed to get TrainJob: {namespace}/sum")
    assert '"sum" not found' in message
    assert left == []


def test_a_job_that_fails_is_shown_with_its_last_words(tell: Tell, namespace: str):
    seen = tell("fail", "broken")

    assert seen["warnings"] == []
    assert seen["waited"][:2] == ["RuntimeError", "TrainJob broken is Failed"]
    assert seen["status"] == "Failed"
    assert seen["logs"][0] == "looking for the data"
    assert seen["logs"][-1] == "FileNotFoundError: there are no data in /data"
    about = [message for kind, _, message in seen["events"] if kind == "TrainJob"]
    assert any("FileNotFoundError: there are no data in /data" in message for message in about), about


def test_what_cannot_be_is_refused_with_field_and_remedy(tell: Tell, namespace: str):
    seen = tell("be_refused", "first")

    assert seen["unknown runtime"][0] == "RuntimeError"
    assert '"nope" not found' in seen["unknown runtime"][2]
    for refused, words in {
        "runtime that went": ("spec.runtimeRef", "'gone'"),
        "bad name": ("metadata.name", "Not_A_Name"),
        "long name": ("metadata.name", "63"),
        "no such step": ("spec.runtimePatches", "'trainer'"),
        "name taken": ("already exists",),
        "unknown job": ("not found",),
    }.items():
        kind, _, message = seen[refused]
        assert kind == "RuntimeError", (refused, seen[refused])
        assert all(word in message for word in words), (refused, message)


def test_a_job_that_was_suspended_is_shown_as_running_again(
    ready_cluster: Cluster, tell: Tell, namespace: str
):
    assert tell("start", "pause")["status"] == "Running"

    suspend(ready_cluster, namespace, "pause", True)
    wait = ("wait", "pods", "--all", "-n", namespace, "--for=delete", "--timeout=60s")
    kubectl(ready_cluster, *wait)
    seen = tell("look", "pause")
    assert (seen["status"], seen["steps"]) == ("Created", [])

    suspend(ready_cluster, namespace, "pause", False)
    again = tell("wait_until_running", "pause")
    assert (again["status"], again["told"]) == ("Running", ["Suspended", "Resumed"])


def test_the_cause_of_a_job_that_cannot_start_is_among_its_events(
    ready_cluster: Cluster, tell: Tell, namespace: str
):
    tell("start_wrong_image", "wrong")
    cause = "--for=jsonpath={.status.cause.layer}=Container"
    kubectl(ready_cluster, "wait", "tj/wrong", "-n", namespace, cause, "--timeout=60s")

    seen = tell("look", "wrong")

    assert (seen["status"], seen["steps"]) == ("Created", [["node-0", "Pending"]])
    [(_, message)] = seen["told"]
    assert "no.such.host/image:1" in message


def test_the_packages_of_a_runtime_can_be_listed(tell: Tell):
    seen = tell("list_packages")
    assert seen["printed"][0].startswith("Python: 3.")
    assert (seen["jobs"], seen["warnings"]) == ([], [])


def suspend(cluster: Cluster, namespace: str, name: str, suspended: bool) -> None:
    path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs/{name}"
    cluster.call("PATCH", path, {"spec": {"suspend": suspended}}, content_type="application/merge-patch+json")


def kubectl(cluster: Cluster, *words: str) -> None:
    command = [cluster.plane.programs / "kubectl", "--kubeconfig", cluster.kubeconfig, *words]
    subprocess.run(command, check=True, capture_output=True)
