"""What may change while a JobSet stays (spec 02 section 14.6)."""

from __future__ import annotations

import pytest

from template.builders import (
    PLAIN,
    TORCH,
    container,
    patch,
    pod_patch,
    replicated_job,
    runtime,
    runtime_spec,
    train_job,
)
from trainwright.api.constants import TEMPLATE_HASH_ANNOTATION
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import RuntimeSpec
from trainwright.api.trainjob import Initializer, InitializerSource, Trainer, TrainJob
from trainwright.render import may_keep, render_job_set

FIRST = (train_job(suspend=True), runtime_spec(policy=TORCH))


def pod_metadata(**metadata: Json) -> TrainJob:
    changes = {
        "replicatedJobs": [{"name": "node", "template": {"spec": {"template": {"metadata": metadata}}}}]
    }
    return train_job(runtime_patches=[patch(changes)])


KEPT: dict[str, tuple[TrainJob, RuntimeSpec]] = {
    "nothing changed": FIRST,
    "resumed": (train_job(suspend=False), FIRST[1]),
    "labels and annotations of the JobSet": (
        train_job(runtime_patches=[patch(metadata={"labels": {"a": "1"}, "annotations": {"a": "1"}})]),
        FIRST[1],
    ),
    "labels of pods": (pod_metadata(labels={"podset": "x"}), FIRST[1]),
    "annotations of pods": (pod_metadata(annotations={"note": "x"}), FIRST[1]),
    "node selector, tolerations and gates": (
        train_job(
            runtime_patches=[
                pod_patch(
                    {
                        "nodeSelector": {"pool": "a"},
                        "tolerations": [{"key": "k"}],
                        "schedulingGates": [{"name": "example.com/gate"}],
                    }
                )
            ]
        ),
        FIRST[1],
    ),
    "time to live and coordinator": (
        FIRST[0],
        runtime_spec(policy=TORCH, ttlSecondsAfterFinished=5, coordinator={"replicatedJob": "node"}),
    ),
    "the same, written in another order": (
        FIRST[0],
        RuntimeSpec(
            ml_policy=TORCH,
            template=runtime_spec(replicated_job("node", dict(reversed(container().items())))).template,
        ),
    ),
}

MADE_ANEW: dict[str, tuple[TrainJob, RuntimeSpec]] = {
    "number of nodes": (train_job(Trainer(num_nodes=2)), FIRST[1]),
    "image": (train_job(Trainer(image="u:2")), FIRST[1]),
    "command": (train_job(Trainer(command=["go"])), FIRST[1]),
    "variables": (train_job(Trainer(env=[{"name": "A", "value": "1"}])), FIRST[1]),
    "resources": (
        train_job(Trainer(resources_per_node=ResourceRequirements(limits={"cpu": "1"}))),
        FIRST[1],
    ),
    "affinity": (
        train_job(runtime_patches=[pod_patch({"affinity": {"nodeAffinity": {"required": [1]}}})]),
        FIRST[1],
    ),
    "labels of the Job": (
        train_job(
            runtime_patches=[
                patch(
                    {"replicatedJobs": [{"name": "node", "template": {"metadata": {"labels": {"a": "1"}}}}]}
                )
            ]
        ),
        FIRST[1],
    ),
    "network": (FIRST[0], runtime_spec(policy=TORCH, network={"subdomain": "s"})),
    "failure policy": (FIRST[0], runtime_spec(policy=TORCH, failurePolicy={"maxRestarts": 1})),
    "name, which is in the addresses": (train_job(name="other"), FIRST[1]),
    "another replicated job": (
        FIRST[0],
        runtime_spec(replicated_job(), replicated_job("b", ancestor=None), policy=TORCH),
    ),
}


def metadata_of(job_set: Json) -> ObjectMeta:
    return parse_object(job_set, JobSet).metadata


@pytest.mark.parametrize(("job", "spec"), KEPT.values(), ids=KEPT)
def test_a_jobset_is_kept_where_only_this_changed(job: TrainJob, spec: RuntimeSpec) -> None:
    existing = render_job_set(FIRST[0], runtime(FIRST[1]))
    assert may_keep(metadata_of(existing), render_job_set(job, runtime(spec)))


@pytest.mark.parametrize(("job", "spec"), MADE_ANEW.values(), ids=MADE_ANEW)
def test_a_jobset_is_made_anew_where_this_changed(job: TrainJob, spec: RuntimeSpec) -> None:
    existing = render_job_set(FIRST[0], runtime(FIRST[1]))
    assert not may_keep(metadata_of(existing), render_job_set(job, runtime(spec)))


def test_an_initializer_of_the_job_is_part_of_the_hash() -> None:
    spec = runtime_spec(
        replicated_job("d", container("dataset-initializer"), ancestor="dataset-initializer"),
        replicated_job(),
    )
    uris = ("hf://a", "hf://b")
    first, second = (
        render_job_set(
            train_job(initializer=Initializer(dataset=InitializerSource(storage_uri=uri))), runtime(spec)
        )
        for uri in uris
    )
    assert not may_keep(metadata_of(first), second)


def test_a_jobset_of_another_program_is_made_anew() -> None:
    rendered = render_job_set(train_job(), runtime(runtime_spec(policy=PLAIN)))
    assert not may_keep(ObjectMeta(name="demo"), rendered)


def test_the_hash_is_part_of_what_is_stored_and_must_not_change_unnoticed() -> None:
    """With another value every suspended JobSet is made anew on its next resume: say so in the changelog."""
    rendered = render_job_set(train_job(Trainer(num_nodes=2)), runtime(runtime_spec(policy=TORCH)))
    assert rendered["metadata"]["annotations"] == {TEMPLATE_HASH_ANNOTATION: "b9e698a8bc96a0d8"}
