"""The generated CRDs: current, small enough, and accepted and enforced by a real API server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainwright.api.meta import ObjectKey
from trainwright.cluster.kube.errors import InvalidError
from trainwright.cluster.kube.requests import build_apply, build_create, build_merge_patch

ROOT = Path(__file__).resolve().parents[2]
CRDS = sorted((ROOT / "src/trainwright/manifests/crds").glob("*.yaml"))
MAX_BYTES = 400_000
TRAIN_JOB = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}


@pytest.mark.skipif(shutil.which("go") is None, reason="NOT TESTED: needs Go")
def test_generating_them_again_changes_nothing():
    subprocess.run([sys.executable, ROOT / "scripts/generate_crds.py", "--check"], check=True, timeout=100)


def test_each_stays_below_the_limits_of_client_side_apply_and_etcd():
    assert [path.name for path in CRDS] == [
        "clustertrainingruntimes.yaml",
        "trainingruntimes.yaml",
        "trainjobs.yaml",
    ]
    assert all(path.stat().st_size < MAX_BYTES for path in CRDS)


def build_job(namespace, name="demo", **spec):
    return {
        **TRAIN_JOB,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
    }


async def test_defaults_are_filled_in(crds, transport, namespace):
    stored = json.loads(await transport.request(build_create(build_job(namespace))))
    assert stored["spec"] == {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": "ClusterTrainingRuntime",
            "name": "torch-distributed",
        },
        "suspend": False,
        "managedBy": "trainer.kubeflow.org/trainjob-controller",
    }


REFUSED = {
    "a name with a capital": ({"name": "Demo"}, {}, "metadata.name"),
    "a name that begins with a digit": ({"name": "1demo"}, {}, "<nil>"),
    "a name of 64 characters": ({"name": "a" * 64}, {}, "<nil>"),
    "no process": ({}, {"trainer": {"numProcPerNode": 0}}, "spec.trainer.numProcPerNode"),
    "less than no node": ({}, {"trainer": {"numNodes": -1}}, "spec.trainer.numNodes"),
    "a deadline of nothing": ({}, {"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds"),
    "another manager": ({}, {"managedBy": "example.com/mine"}, "spec.managedBy"),
    "a storage URI without a scheme": (
        {},
        {"initializer": {"dataset": {"storageUri": "nowhere"}}},
        "spec.initializer.dataset.storageUri",
    ),
    "a command of 129 words": ({}, {"trainer": {"command": ["x"] * 129}}, "spec.trainer.command"),
}


@pytest.mark.parametrize(("metadata", "spec", "path"), REFUSED.values(), ids=REFUSED)
async def test_the_schema_refuses(crds, transport, namespace, metadata, spec, path):
    with pytest.raises(InvalidError) as refused:
        await transport.request(build_create(build_job(namespace, **metadata, **spec)))
    assert refused.value.status.code == 422
    assert path in [error.path for error in refused.value.errors]


CHANGES = {
    "another runtime": {"runtimeRef": {"name": "other"}},
    "another image": {"trainer": {"image": "other"}},
    "no command any more": {"trainer": {"command": None}},
    "a first variable": {"trainer": {"env": [{"name": "A", "value": "1"}]}},
    "a deadline added": {"activeDeadlineSeconds": 5},
    "an initializer added": {"initializer": {"model": {"storageUri": "s3://a/b"}}},
    "handed to another controller": {"managedBy": "kueue.x-k8s.io/multikueue"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_what_defines_a_job_may_not_change(crds, transport, namespace, change):
    job = build_job(namespace, trainer={"image": "a", "command": ["x"], "numNodes": 2})
    await transport.request(build_create(job))
    key = ObjectKey("TrainJob", namespace, "demo")
    with pytest.raises(InvalidError, match="may not change"):
        await transport.request(build_merge_patch(key, {"spec": change}))


async def test_a_job_may_be_resized_and_suspended_as_far_as_the_schema_goes(crds, transport, namespace):
    await transport.request(build_create(build_job(namespace, trainer={"image": "a", "numNodes": 2})))
    key = ObjectKey("TrainJob", namespace, "demo")
    change = {"spec": {"suspend": True, "trainer": {"numNodes": 4}, "ttlSecondsAfterFinished": 60}}
    await transport.request(build_merge_patch(key, change))


def build_runtime(namespace, **policy):
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"namespace": namespace, "name": "rt"},
        "spec": {"mlPolicy": policy},
    }


@pytest.mark.parametrize(
    "other", [{"mpi": {}}, {"tensorflow": {}}, {"paddle": {}}, {"custom": {"framework": "x"}}]
)
async def test_a_runtime_with_two_frameworks_is_refused(crds, transport, namespace, other):
    with pytest.raises(InvalidError, match="at most one of torch"):
        await transport.request(build_create(build_runtime(namespace, torch={}, **other)))


async def test_what_a_framework_of_another_package_reads_is_stored_as_it_is(crds, transport, namespace):
    custom = {"framework": "x", "parameters": {"any": [{"thing": 1.5}], "deep": {"y": "", "z": None}}}
    stored = json.loads(await transport.request(build_create(build_runtime(namespace, custom=custom))))
    assert stored["spec"]["mlPolicy"] == {"custom": custom}


async def test_tasks_of_a_tensorflow_cluster_have_a_type_and_a_replicated_job_each(
    crds, transport, namespace
):
    chosen = {"tasks": [{"jobName": "node", "type": "worker"}]}
    await transport.request(build_create(build_runtime(namespace, tensorflow=chosen)))
    for wrong in ({"jobName": "a", "type": "boss"}, {"jobName": "a"}, {"type": "ps"}):
        with pytest.raises(InvalidError, match="tasks"):
            await transport.request(build_create(build_runtime(namespace, tensorflow={"tasks": [wrong]})))
    twice = {"tasks": [{"jobName": "a", "type": "ps"}, {"jobName": "a", "type": "chief"}]}
    with pytest.raises(InvalidError, match="Duplicate"):
        await transport.request(build_create(build_runtime(namespace, tensorflow=twice)))


CONDITION = {
    "type": "Suspended",
    "status": "True",
    "reason": "Suspended",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
COUNTERS = {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
BAD_STATUS = {
    "two conditions of a type": ({"conditions": [CONDITION, CONDITION]}, "status.conditions[1]"),
    "nine conditions": (
        {"conditions": [{**CONDITION, "type": f"T{i}"} for i in range(9)]},
        "status.conditions",
    ),
    "a condition that is maybe": (
        {"conditions": [{**CONDITION, "status": "Maybe"}]},
        "status.conditions[0].status",
    ),
    "a reason in words": (
        {"conditions": [{**CONDITION, "reason": "no room"}]},
        "status.conditions[0].reason",
    ),
    "a role twice": ({"jobsStatus": [{"name": "node", **COUNTERS}] * 2}, "status.jobsStatus[1]"),
    "a role too many": (
        {"jobsStatus": [{"name": f"r{i}", **COUNTERS} for i in range(101)]},
        "status.jobsStatus",
    ),
    "fewer than no pods": (
        {"jobsStatus": [{"name": "node", **COUNTERS, "active": -1}]},
        "status.jobsStatus[0].active",
    ),
    "more than all": (
        {"trainerStatus": {"progressPercentage": 101, "lastUpdatedTime": CONDITION["lastTransitionTime"]}},
        "status.trainerStatus.progressPercentage",
    ),
    "a metric without a value": (
        {
            "trainerStatus": {
                "metrics": [{"name": "loss", "value": ""}],
                "lastUpdatedTime": CONDITION["lastTransitionTime"],
            }
        },
        "status.trainerStatus.metrics[0].value",
    ),
}


async def test_the_schema_refuses_a_status_that_is_none(crds, transport, namespace):
    await transport.request(build_create(build_job(namespace)))
    key = ObjectKey("TrainJob", namespace, "demo")
    for what, (status, path) in BAD_STATUS.items():
        with pytest.raises(InvalidError) as caught:
            await transport.request(build_merge_patch(key, {"status": status}, subresource="status"))
        assert path in [error.path for error in caught.value.errors], (what, caught.value.errors)


async def test_each_controller_applies_its_own_condition(crds, transport, namespace):
    """Conditions are a list by type, so that an apply of one leaves those of others."""
    await transport.request(build_create(build_job(namespace)))
    for manager, type_ in (("one", "Suspended"), ("two", "example.com/Checked")):
        body = {
            **TRAIN_JOB,
            "metadata": {"namespace": namespace, "name": "demo"},
            "status": {"conditions": [{**CONDITION, "type": type_}]},
        }
        stored = await transport.request(build_apply(body, manager, force=False, subresource="status"))
    assert [entry["type"] for entry in json.loads(stored)["status"]["conditions"]] == [
        "Suspended",
        "example.com/Checked",
    ]


async def test_a_rule_of_a_failure_policy_needs_no_name(crds, transport, namespace):
    """JobSet gives it one; offline it is accepted as well."""
    replicated_job = {"name": "node", "template": {"spec": {"template": {"spec": {"containers": []}}}}}
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"namespace": namespace, "name": "patient"},
        "spec": {
            "template": {
                "spec": {
                    "failurePolicy": {"maxRestarts": 1, "rules": [{"action": "FailJobSet"}]},
                    "replicatedJobs": [replicated_job],
                }
            }
        },
    }
    stored = json.loads(await transport.request(build_create(runtime)))
    assert stored["spec"]["template"]["spec"]["failurePolicy"]["rules"] == [{"action": "FailJobSet"}]
