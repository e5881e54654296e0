"""What may change in a TrainJob, and when (spec 01, section 1.7)."""

# ruff: noqa: E501 (messages stay on one line)

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from template.builders import container, pod_patch, replicated_job, runtime, runtime_spec, train_job
from trainwright.admission import Verdict, default_train_job, validate_train_job
from trainwright.api.jobset import JobSet, JobSetStatus, ReplicatedJobStatus
from trainwright.api.meta import ObjectMeta
from trainwright.api.pod import ResourceRequirements
from trainwright.api.trainjob import (
    Initializer,
    InitializerSource,
    RuntimePatch,
    RuntimeRef,
    Trainer,
    TrainJob,
)

NOW = datetime(2026, 1, 31, tzinfo=UTC)
KUEUE = "kueue.x-k8s.io/manager"
INITIALIZER = replicated_job("dataset-initializer", container("dataset-initializer", volumeMounts=[{"name": "initializer", "mountPath": "/w"}]), ancestor="dataset-initializer")  # fmt: skip
RUNTIME = runtime(runtime_spec(INITIALIZER, replicated_job("node", container(), container("other"))))


def pool(name: str, manager: str = KUEUE) -> RuntimePatch:
    return pod_patch({"nodeSelector": {"pool": name}}, manager=manager)


def job_set(*active: str) -> JobSet:
    """A JobSet with pods of these replicated jobs still there, and none of `other`."""
    counters = [
        ReplicatedJobStatus(name=name, ready=0, succeeded=0, failed=0, active=count, suspended=0)
        for name, count in (("other", 0), *((name, 1) for name in active))
    ]
    return JobSet(metadata=ObjectMeta(name="demo"), status=JobSetStatus(replicated_jobs_status=counters))


def update(old: TrainJob, new: TrainJob, running: JobSet | None = None) -> Verdict:
    """Validate an update, after defaults, of a job that runs (or does not) as given."""
    stored = default_train_job(old, None, NOW)
    return validate_train_job(default_train_job(new, stored, NOW), RUNTIME, stored, running)


def messages(verdict: Verdict) -> list[str]:
    return [str(error) for error in verdict.errors]


IMMUTABLE: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], str]] = {
    "runtime": ({}, {"runtime_ref": RuntimeRef(name="other")}, "spec.runtimeRef"),
    "manager": ({}, {"managed_by": "kueue.x-k8s.io/multikueue"}, "spec.managedBy"),
    "deadline": (
        {"active_deadline_seconds": 5},
        {"active_deadline_seconds": 6},
        "spec.activeDeadlineSeconds",
    ),
    "deadline, added": ({}, {"active_deadline_seconds": 6}, "spec.activeDeadlineSeconds"),
    "initializer": (
        {"initializer": Initializer(dataset=InitializerSource(storage_uri="s3://a/b"))},
        {"initializer": Initializer(dataset=InitializerSource(storage_uri="s3://a/c"))},
        "spec.initializer",
    ),
    "initializer, added": (
        {},
        {"initializer": Initializer(dataset=InitializerSource(storage_uri="s3://a/b"))},
        "spec.initializer",
    ),
    "initializer, removed": (
        {"initializer": Initializer(dataset=InitializerSource(storage_uri="s3://a/b"))},
        {},
        "spec.initializer",
    ),
    "image": ({"trainer": Trainer(image="a")}, {"trainer": Trainer(image="b")}, "spec.trainer.image"),
    "arguments": ({"trainer": Trainer(args=["a"])}, {"trainer": Trainer(args=["b"])}, "spec.trainer.args"),
    "a variable": (
        {"trainer": Trainer(env=[{"name": "A", "value": "1"}])},
        {"trainer": Trainer(env=[{"name": "A", "value": "2"}])},
        "spec.trainer.env",
    ),
    "trainer, added (R09)": ({}, {"trainer": Trainer(image="b")}, "spec.trainer.image"),
    "no command instead of the runtime's": ({}, {"trainer": Trainer(command=[])}, "spec.trainer.command"),
    "trainer, removed": ({"trainer": Trainer(command=["a"])}, {}, "spec.trainer.command"),
}


@pytest.mark.parametrize("suspend", [False, True])
@pytest.mark.parametrize("case", IMMUTABLE.values(), ids=IMMUTABLE)
def test_what_a_job_is_made_of_never_changes(
    case: tuple[Mapping[str, Any], Mapping[str, Any], str], suspend: bool
) -> None:
    old, new, path = case
    if "runtime_ref" in new:
        changed = train_job(suspend=suspend)
        assert changed.spec is not None
        changed = msgspec.structs.replace(changed, spec=msgspec.structs.replace(changed.spec, **new))
        verdict = update(train_job(suspend=suspend), changed)
    else:
        verdict = update(train_job(suspend=suspend, **old), train_job(suspend=suspend, **new))

    assert [error.path for error in verdict.invalid] == [path]
    assert "may not change" in verdict.invalid[0].detail
    assert verdict.status_code == 422


ALLOWED: dict[str, tuple[TrainJob, TrainJob, JobSet | None]] = {
    "nothing": (train_job(suspend=False), train_job(suspend=False), job_set("node")),
    "suspended while running": (train_job(suspend=False), train_job(suspend=True), job_set("node")),
    "resumed": (train_job(suspend=True), train_job(suspend=False), job_set()),
    "TTL while running": (
        train_job(suspend=False),
        train_job(suspend=False, ttl_seconds_after_finished=5),
        job_set("node"),
    ),
    "an empty trainer block": (
        train_job(suspend=False),
        train_job(Trainer(), suspend=False),
        job_set("node"),
    ),
    "patch while suspended, no JobSet": (
        train_job(suspend=True, runtime_patches=[pool("a")]),
        train_job(suspend=True, runtime_patches=[pool("b")]),
        None,
    ),
    "patch while suspended, pods gone": (
        train_job(suspend=True, runtime_patches=[pool("a")]),
        train_job(suspend=True, runtime_patches=[pool("b")]),
        job_set(),
    ),
    "patch and resume at once (B018)": (
        train_job(suspend=True),
        train_job(suspend=False, runtime_patches=[pool("b")]),
        job_set(),
    ),
    "patch and suspend at once": (
        train_job(suspend=False),
        train_job(suspend=True, runtime_patches=[pool("b")]),
        job_set(),
    ),
    "size while suspended (B030)": (
        train_job(Trainer(num_nodes=2), suspend=True),
        train_job(
            Trainer(
                num_nodes=4,
                num_proc_per_node=8,
                resources_per_node=ResourceRequirements(limits={"nvidia.com/gpu": 8}),
            ),
            suspend=True,
        ),
        job_set(),
    ),
    "size and resume at once": (
        train_job(suspend=True),
        train_job(Trainer(num_nodes=4), suspend=False),
        None,
    ),
    "Kueue takes its placement back, and keeps its entry": (
        train_job(suspend=True, runtime_patches=[pool("a")]),
        train_job(suspend=True, runtime_patches=[RuntimePatch(manager=KUEUE)]),
        job_set(),
    ),
    "a new manager's pod fields": (
        train_job(suspend=True, runtime_patches=[pool("a")]),
        train_job(
            suspend=True,
            runtime_patches=[pool("a"), pod_patch({"serviceAccountName": "x"}, manager="example.com/user")],
        ),
        job_set(),
    ),
}


@pytest.mark.parametrize("case", ALLOWED.values(), ids=ALLOWED)
def test_what_may_change_at_that_moment_does(case: tuple[TrainJob, TrainJob, JobSet | None]) -> None:
    assert messages(update(*case)) == []


def test_a_patch_or_the_size_of_a_running_job_may_not_change() -> None:
    verdict = update(
        train_job(suspend=False, runtime_patches=[pool("a")]),
        train_job(Trainer(num_nodes=3), suspend=False, runtime_patches=[pool("b")]),
        job_set("node"),
    )

    assert verdict.status_code == 403
    assert messages(verdict) == [
        f"{path}: may change only while the job is suspended before or after the update; set spec.suspend first"
        for path in ("spec.trainer.numNodes", "spec.runtimePatches")
    ]


@pytest.mark.parametrize("suspend", [False, True])
def test_nothing_changes_while_pods_are_still_there_and_each_is_named(suspend: bool) -> None:
    verdict = update(
        train_job(suspend=not suspend, runtime_patches=[pool("a")]),
        train_job(suspend=suspend, runtime_patches=[pool("b")]),
        job_set("node", "dataset-initializer"),
    )

    assert messages(verdict) == [
        f"spec.runtimePatches: may not change while pods of {name} still run; wait until they are gone"
        for name in ("node", "dataset-initializer")
    ]


POD_FIELDS: dict[str, tuple[Any, Any]] = {
    "serviceAccountName": ("a", "b"),
    "terminationGracePeriodSeconds": (300, 600),
    "volumes": ([{"name": "a", "emptyDir": {}}], [{"name": "b", "emptyDir": {}}]),
    "imagePullSecrets": ([{"name": "a"}], [{"name": "b"}]),
    "securityContext": ({"runAsUser": 1}, {"runAsUser": 2}),
    "containers": ([{"name": "other", "env": [{"name": "A", "value": "1"}]}], [{"name": "other"}]),
}


@pytest.mark.parametrize("field", POD_FIELDS)
def test_some_fields_of_a_managers_patch_never_change(field: str) -> None:
    before, after = POD_FIELDS[field]
    verdict = update(
        train_job(
            suspend=True, runtime_patches=[pool("a"), pod_patch({field: before}, manager="example.com/u")]
        ),
        train_job(
            suspend=True, runtime_patches=[pod_patch({field: after}, manager="example.com/u"), pool("a")]
        ),
    )

    assert [error.path for error in verdict.invalid] == [
        f"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.{field}"
    ]


def test_a_queued_job_keeps_the_entry_of_kueue() -> None:
    def queued(*patches: RuntimePatch) -> TrainJob:
        job = train_job(suspend=True, runtime_patches=list(patches) or None)
        metadata = msgspec.structs.replace(job.metadata, labels={"kueue.x-k8s.io/queue-name": "q"})
        return msgspec.structs.replace(job, metadata=metadata)

    assert messages(update(queued(RuntimePatch(manager=KUEUE)), queued())) == [
        f"spec.runtimePatches: the entry of {KUEUE} starts a queued job; leave it in the list"
    ]
    assert messages(update(queued(), queued())) == []
    unqueued = train_job(suspend=True, runtime_patches=[RuntimePatch(manager=KUEUE)])
    assert messages(update(unqueued, train_job(suspend=True))) == []


def test_a_job_stays_editable_when_its_runtime_is_gone_or_broken() -> None:
    old = default_train_job(train_job(suspend=False), None, NOW)
    new = default_train_job(train_job(suspend=True, runtime_patches=[pool("a")]), old, NOW)

    gone = validate_train_job(new, None, old)
    assert gone.errors == ()
    assert gone.warnings == ("ClusterTrainingRuntime 'rt' is gone; the change was not checked against it",)
    only_suspended = default_train_job(train_job(suspend=True), old, NOW)
    assert validate_train_job(only_suspended, runtime(runtime_spec(replicatedJobs=[])), old) == Verdict()


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    old = default_train_job(train_job(suspend=False), None, NOW)
    changed = train_job(Trainer(image="b"), suspend=False, runtime_patches=[pool("a")])
    metadata = msgspec.structs.replace(changed.metadata, deletion_timestamp=NOW)
    new = default_train_job(msgspec.structs.replace(changed, metadata=metadata), old, NOW)

    assert validate_train_job(new, None, old, job_set("node")) == Verdict()


FIELD = {"resourceFieldRef": {"resource": "limits.cpu"}}
# What a job says, and how a client written in Go writes it back.
REWORDED: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "lists that are empty": (
        {"trainer": Trainer(command=[], args=[], env=[])},
        {"trainer": Trainer()},
    ),
    "variables of an initializer, none": (
        {"initializer": Initializer(dataset=InitializerSource(storage_uri="s3://a/b", env=[]))},
        {"initializer": Initializer(dataset=InitializerSource(storage_uri="s3://a/b"))},
    ),
    "the unit of a variable": (
        {"trainer": Trainer(env=[{"name": "A", "valueFrom": FIELD}])},
        {
            "trainer": Trainer(
                env=[{"name": "A", "valueFrom": {"resourceFieldRef": {**FIELD["resourceFieldRef"], "divisor": "0"}}}]
            )
        },
    ),
    "amounts": (
        {"trainer": Trainer(resources_per_node=ResourceRequirements(limits={"cpu": 1, "memory": "1024Mi"}, requests={}))},
        {"trainer": Trainer(resources_per_node=ResourceRequirements(limits={"cpu": "1", "memory": "1Gi"}))},
    ),
    "a patch": (
        {"runtime_patches": [pod_patch({"nodeSelector": {}, "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1024Mi"}}]})]},
        {"runtime_patches": [pod_patch({"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]})]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REWORDED.values(), ids=REWORDED)
def test_what_is_written_in_other_words_is_no_change(
    case: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> None:
    before, after = case
    assert messages(update(train_job(**before), train_job(**after), job_set("node"))) == []


def test_lists_that_a_client_left_out_because_they_are_empty_come_back() -> None:
    """No command is not the runtime's command."""
    source = InitializerSource(storage_uri="s3://a/b", env=[])
    old = train_job(trainer=Trainer(command=[], args=["a"], env=[]), initializer=Initializer(model=source))
    new = train_job(
        trainer=Trainer(args=["a"]), initializer=Initializer(model=InitializerSource(storage_uri="s3://a/b"))
    )
    spec = default_train_job(new, default_train_job(old, None, NOW), NOW).spec
    assert spec is not None
    assert (spec.trainer, spec.initializer) == (
        Trainer(command=[], args=["a"], env=[]),
        Initializer(model=source),
    )


@pytest.mark.parametrize(
    "after",
    [
        {"emptyDir": {}},
        {"emptyDir": {"sizeLimit": "2Gi"}},
        {},
    ],
)
def test_another_amount_or_kind_of_volume_is_a_change(after: dict[str, Any]) -> None:
    def volume(source: dict[str, Any]) -> TrainJob:
        return train_job(suspend=True, runtime_patches=[pod_patch({"volumes": [{"name": "v", **source}]})])

    found = messages(update(volume({"emptyDir": {"sizeLimit": "1Gi"}}), volume(after)))
    assert [message.partition("volumes: ")[2][:14] for message in found] == ["may not change"]


def test_a_patch_that_was_let_in_before_keeps_no_job_from_being_resumed() -> None:
    """The peer lets patches change which step a replicated job is, and stores what we would refuse."""
    label = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    entry = msgspec.convert(
        {
            "manager": "example.com/old",
            "trainingRuntimeSpec": {
                "template": {
                    "spec": {
                        "replicatedJobs": [{"name": "node", "template": {"metadata": {"labels": label}}}]
                    }
                }
            },
        },
        RuntimePatch,
    )
    old = train_job(suspend=True, runtime_patches=[entry])
    assert messages(update(old, train_job(suspend=False, runtime_patches=[entry]))) == []
    assert messages(update(old, train_job(suspend=True, runtime_patches=[entry, pool("a")]))) == []
    [refused] = messages(update(train_job(suspend=True), old))
    assert "may not be patched; remove it" in refused
