"""What is kept of each object: all that is read, nothing that is not."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.batch import Job, JobSpec, JobStatus
from trainwright.api.core import Pod, PodStatus
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.trainjob import TrainJob
from trainwright.operator.stored import (
    build_runtime_name,
    decode_job,
    decode_job_set,
    decode_pod,
    decode_train_job,
    list_job_set_names,
    open_job_set,
    open_train_job,
)

MANAGED = [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}]


def encode(obj: Json) -> bytes:
    return msgspec.json.encode(obj)


def train_job(**status: object) -> Json:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": "demo",
            "namespace": "ns",
            "uid": "u",
            "resourceVersion": "7",
            "managedFields": MANAGED,
            "annotations": {"a": "b"},
        },
        "spec": {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2, "args": ["x"]}},
        **({"status": status} if status else {}),
    }


def test_a_train_job_comes_out_as_it_went_in() -> None:
    body = train_job(phase="Running", startTime="2026-01-01T00:00:00Z")
    assert open_train_job(decode_train_job(encode(body))) == parse_object(body, TrainJob)


def test_a_train_job_without_spec_and_status_can_be_kept() -> None:
    body = {key: value for key, value in train_job().items() if key != "spec"}
    assert open_train_job(decode_train_job(encode(body))).spec is None


def test_what_indexes_ask_for_is_at_hand() -> None:
    stored = decode_train_job(
        encode(
            train_job(
                phase="Failed",
                runtimeSnapshot={"name": "torch", "hash": "abc"},
                conditions=[{"type": "Failed", "status": "True"}],
            )
        )
    )
    assert (stored.phase, stored.snapshot_hash, stored.has_ended, stored.is_refused) == (
        "Failed",
        "abc",
        True,
        False,
    )
    assert stored.runtime == "ClusterTrainingRuntime//torch"


CONDITIONS = {
    "none": ([], False, False),
    "complete": ([("Complete", "True")], True, False),
    "not failed": ([("Failed", "False")], False, False),
    "refused": ([("Suspended", "True"), ("ResourcesCreated", "False")], False, True),
}


@pytest.mark.parametrize(("conditions", "has_ended", "is_refused"), CONDITIONS.values(), ids=CONDITIONS)
def test_conditions_are_summed_up(
    conditions: list[tuple[str, str]], has_ended: bool, is_refused: bool
) -> None:
    given = [{"type": type_, "status": status} for type_, status in conditions]
    stored = decode_train_job(encode(train_job(conditions=given)))
    assert (stored.has_ended, stored.is_refused) == (has_ended, is_refused)


def test_the_copy_that_kubectl_leaves_is_not_kept() -> None:
    body = train_job()
    body["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "x" * 100_000
    stored = decode_train_job(encode(body))
    assert stored.metadata.annotations == {"a": "b"}


def test_the_answer_of_the_server_is_not_kept_alive() -> None:
    body = encode(train_job() | {"padding": "x" * 100_000})
    stored = decode_train_job(body)
    assert sys.getsizeof(stored.spec) + sys.getsizeof(stored.status) < 1_000


def test_a_job_set_comes_out_as_it_went_in() -> None:
    body = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "demo", "namespace": "ns", "annotations": {"a": "b"}},
        "spec": {"suspend": True, "replicatedJobs": [{"name": "node", "template": {"spec": {}}}]},
        "status": {"restarts": 2},
    }
    assert open_job_set(decode_job_set(encode(body))) == parse_object(body, JobSet)


def test_jobs_and_pods_keep_their_status_what_places_them_and_what_is_read_of_their_specs() -> None:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "demo",
        "jobset.sigs.k8s.io/jobset-uid": "u",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/restart-attempt": "1",
        "batch.kubernetes.io/job-completion-index": "3",
    }
    metadata = {
        "name": "demo-node-0",
        "namespace": "ns",
        "uid": "v",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-01-01T00:01:00Z",
        "deletionGracePeriodSeconds": 30,
        "labels": labels | {"jobset.sigs.k8s.io/job-key": "x", "team": "a"},
        "annotations": labels,
        "ownerReferences": [{"apiVersion": "v1", "kind": "Job", "name": "j", "uid": "w"}],
    }
    containers = {"containers": [{"name": "node"}]}
    place = {
        "nodeSelector": {"pool": "blue"},
        "tolerations": [{"key": "pool", "operator": "Exists"}],
        "schedulingGates": [{"name": "example.com/gate"}],
    }
    job_spec = {"template": {"spec": {**containers, **place}}, "parallelism": 4, "completions": 4}
    pod_spec = {**containers, "restartPolicy": "OnFailure", "nodeName": "gpu-7", "priority": 3}
    kept = ObjectMeta(
        name="demo-node-0",
        namespace="ns",
        uid="v",
        resource_version="7",
        creation_timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        deletion_timestamp=datetime(2026, 1, 1, 0, 1, tzinfo=UTC),
        deletion_grace_period_seconds=30,
        labels=labels,
    )
    job = decode_job(encode({"metadata": metadata, "spec": job_spec, "status": {"active": 1}}))
    pod = decode_pod(encode({"metadata": metadata, "spec": pod_spec, "status": {"phase": "Running"}}))
    kept_spec = JobSpec(template={"spec": place}, parallelism=4)
    assert job == Job(metadata=kept, spec=kept_spec, status=JobStatus(active=1))
    plain = decode_job(encode({"metadata": metadata, "spec": {"template": {"spec": containers}}}))
    assert plain.spec == JobSpec(template={})
    assert pod == Pod(
        metadata=kept,
        spec={"restartPolicy": "OnFailure", "nodeName": "gpu-7"},
        status=PodStatus(phase="Running"),
    )
    assert list_job_set_names(job) == list_job_set_names(pod) == ["ns/demo"]


def test_a_pod_of_somebody_else_is_filed_nowhere() -> None:
    assert list_job_set_names(decode_pod(encode({"metadata": {"name": "p", "namespace": "ns"}}))) == []


@given(kind=st.sampled_from(["TrainingRuntime", "ClusterTrainingRuntime"]), namespace=st.text(min_size=1))
def test_a_cluster_runtime_is_the_same_one_in_every_namespace(kind: str, namespace: str) -> None:
    named = build_runtime_name(kind, namespace, "torch")
    assert (named == build_runtime_name(kind, "other" + namespace, "torch")) == (kind[0] == "C")
