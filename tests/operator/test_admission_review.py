"""From an AdmissionReview to the answer: what is filled in, what is refused and how, what always passes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from api.mutations import mutated
from reviews import (
    apply_json_patch,
    build_job,
    build_patch,
    build_review,
    build_runtime,
    encode_review,
    read_patch,
)
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet, JobSetStatus, ReplicatedJobStatus
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.runtime import TrainingRuntime
from trainwright.operator.admission_review import (
    MAX_CAUSES,
    Answer,
    BadReview,
    Facts,
    default_reviewed,
    encode_answer,
    parse_review,
    read_change,
    validate_reviewed,
    validate_reviewed_runtime,
)

NOW = datetime(2026, 3, 1, 12, 30, 15, 999, tzinfo=UTC)
STAMP = "2026-03-01T12:30:15Z"
EARLIER = "2026-01-01T00:00:00Z"
RUNTIME = parse_object(build_runtime(), TrainingRuntime)
FACTS = Facts(runtime=RUNTIME)
POD_PATH = (
    "/spec/runtimePatches/0/trainingRuntimeSpec/template/spec/replicatedJobs/0/template/spec/template/spec"
)


def default(obj: Json, old: Json | None = None) -> list[Json]:
    """Return the JSON patch of the defaulter."""
    review = parse_review(encode_review(obj, old), "TrainJob")
    answer = default_reviewed(read_change(review), review, NOW)
    assert answer.is_allowed
    return read_patch(encode_answer(review, answer))


def validate(obj: Json, old: Json | None = None, facts: Facts = FACTS) -> Answer:
    review = parse_review(encode_review(obj, old), obj["kind"])
    if obj["kind"] != "TrainJob":
        return validate_reviewed_runtime(review)
    return validate_reviewed(read_change(review), review, facts)


def paths(answer: Answer) -> list[str]:
    return [error.path for error in answer.errors]


def respond(obj: Json, answer: Answer) -> Json:
    """Return the response as the API server reads it."""
    review = parse_review(encode_review(obj), obj["kind"])
    body: Json = json.loads(encode_answer(review, answer))
    assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: Json = body["response"]
    assert response["uid"] == "review-1"
    return response


# -- defaulting ----------------------------------------------------------------------------------------------

NODE = {"nodeSelector": {"pool": "a"}}
DEFAULTS: dict[str, tuple[Json, Json | None, list[Json]]] = {
    "a job that has everything is left alone": (build_job(trainer={"numNodes": 2}), None, []),
    "a job without a spec is left alone": (
        {**build_job(), "spec": None},
        None,
        [],
    ),
    "schema defaults are there before the schema gives them": (
        {**build_job(), "spec": {"runtimeRef": {"name": "rt"}}},
        None,
        [
            {
                "op": "add",
                "path": "/spec/managedBy",
                "value": "trainer.kubeflow.org/trainjob-controller",
            },
            {"op": "add", "path": "/spec/runtimeRef/apiGroup", "value": "trainer.kubeflow.org"},
            {"op": "add", "path": "/spec/runtimeRef/kind", "value": "ClusterTrainingRuntime"},
            {"op": "add", "path": "/spec/suspend", "value": False},
        ],
    ),
    "a patch without a time is stamped to the second": (
        build_job(runtimePatches=[build_patch(), build_patch("b.c/d", time=EARLIER)]),
        None,
        [{"op": "add", "path": "/spec/runtimePatches/0/time", "value": STAMP}],
    ),
    "an unchanged patch keeps its time, whatever the caller says": (
        build_job(runtimePatches=[build_patch(pod=NODE, time=STAMP)]),
        build_job(runtimePatches=[build_patch(pod=NODE, time=EARLIER)]),
        [{"op": "replace", "path": "/spec/runtimePatches/0/time", "value": EARLIER}],
    ),
    "a changed patch is stamped anew": (
        build_job(runtimePatches=[build_patch(pod={"nodeSelector": {"pool": "b"}}, time=EARLIER)]),
        build_job(runtimePatches=[build_patch(pod=NODE, time=EARLIER)]),
        [{"op": "replace", "path": "/spec/runtimePatches/0/time", "value": STAMP}],
    ),
    "fractions become quantities, whole floats stay": (
        build_job(trainer={"numNodes": 2.0, "resourcesPerNode": {"limits": {"cpu": 0.5, "a.b/gpu": 1.0}}}),
        None,
        [{"op": "replace", "path": "/spec/trainer/resourcesPerNode/limits/cpu", "value": "500m"}],
    ),
    "a key with a slash is escaped": (
        build_job(trainer={"resourcesPerNode": {"requests": {"a.b/c~d": 1.5}}}),
        None,
        [{"op": "replace", "path": "/spec/trainer/resourcesPerNode/requests/a.b~1c~0d", "value": "1500m"}],
    ),
    "what an older client dropped is put back": (
        build_job(runtimePatches=[build_patch(pod=NODE, time=EARLIER)]),
        build_job(
            ttlSecondsAfterFinished=60,
            activeDeadlineSeconds=3600,
            runtimePatches=[build_patch(pod={**NODE, "terminationGracePeriodSeconds": 90}, time=EARLIER)],
        ),
        [
            {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 3600},
            {"op": "add", "path": f"{POD_PATH}/terminationGracePeriodSeconds", "value": 90},
            {"op": "add", "path": "/spec/ttlSecondsAfterFinished", "value": 60},
        ],
    ),
    "null counts as absent": (
        build_job(ttlSecondsAfterFinished=None),
        build_job(ttlSecondsAfterFinished=60),
        [{"op": "replace", "path": "/spec/ttlSecondsAfterFinished", "value": 60}],
    ),
    "a field of a newer schema stays": (build_job(somethingNew={"a": 1}, trainer={"new": [1]}), None, []),
    "a wrong type is left to the schema, and the rest put right": (
        build_job(trainer={"numNodes": "two", "resourcesPerNode": {"limits": {"cpu": 0.25}}}),
        None,
        [{"op": "replace", "path": "/spec/trainer/resourcesPerNode/limits/cpu", "value": "250m"}],
    ),
}


@pytest.mark.parametrize(("obj", "old", "expected"), DEFAULTS.values(), ids=DEFAULTS)
def test_the_defaulter_patches_no_more_than_it_must(
    obj: Json, old: Json | None, expected: list[Json]
) -> None:
    assert default(obj, old) == expected


@pytest.mark.parametrize(("obj", "old"), [case[:2] for case in DEFAULTS.values()], ids=DEFAULTS)
def test_defaulting_what_was_defaulted_changes_nothing(obj: Json, old: Json | None) -> None:
    patched = apply_json_patch(obj, default(obj, old))

    assert default(patched, old) == []


JOBS = [
    build_job(trainer={"numNodes": 2, "resourcesPerNode": {"limits": {"cpu": 0.5}}, "env": [{"name": "A"}]}),
    build_job(
        activeDeadlineSeconds=5,
        runtimePatches=[build_patch(pod={**NODE, "terminationGracePeriodSeconds": 9}), build_patch("b.c/d")],
        initializer={"model": {"storageUri": "s3://a/b", "env": [{"name": "A", "value": "1"}]}},
    ),
]


def build_changed_review(obj: Any, old: Any) -> bytes:
    """The review of an update with any JSON at all for its two objects."""
    review = build_review(JOBS[0], JOBS[0])
    review["request"] |= {"object": obj, "oldObject": old}
    for number in ("NaN", "-Infinity", "Infinity"):  # which JSON does not have
        review = json.loads(json.dumps(review).replace(number, "0"))
    return json.dumps(review).encode()


@given(mutated(JOBS), mutated(JOBS))
def test_whatever_stands_in_two_objects_both_webhooks_answer(obj: Any, old: Any) -> None:
    review = parse_review(build_changed_review(obj, old), "TrainJob")
    change = read_change(review)
    answer = default_reviewed(change, review, NOW)
    patched = apply_json_patch(review.object or {}, list(answer.patch))

    assert answer.is_allowed
    assert set(review.object or {}) == set(patched)
    verdict = validate_reviewed(change, review, FACTS)
    assert json.loads(encode_answer(review, verdict))["response"]["allowed"] == (verdict.code == 200)


@given(mutated([build_runtime(), build_runtime(kind="ClusterTrainingRuntime")]))
def test_whatever_stands_in_a_runtime_is_answered(body: Any) -> None:
    raw = json.loads(build_changed_review(body, None))
    raw["request"]["kind"]["kind"] = "TrainingRuntime"
    review = parse_review(json.dumps(raw).encode(), "TrainingRuntime")
    answer = validate_reviewed_runtime(review)

    assert answer.is_allowed == (answer.errors == ())
    assert json.loads(encode_answer(review, answer))["response"]["allowed"] == answer.is_allowed


# -- validation ----------------------------------------------------------------------------------------------


def test_a_good_job_passes_without_a_word() -> None:
    assert (
        validate(build_job(trainer={"numNodes": 2, "resourcesPerNode": {"limits": {"cpu": 2}}})) == Answer()
    )


def test_a_broken_rule_of_the_schema_is_422_with_a_cause_for_each_field() -> None:
    job = build_job(trainer={"numNodes": "two", "resourcesPerNode": {"limits": {"cpu": "lots"}}})
    response = respond(job, validate(job))

    assert response["allowed"] is False
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert [(cause["field"], cause["reason"]) for cause in status["details"]["causes"]] == [
        ("spec.trainer.numNodes", "FieldValueTypeInvalid"),
        ("spec.trainer.resourcesPerNode.limits[cpu]", "FieldValueInvalid"),
    ]
    assert status["message"].startswith("2 errors: (1) spec.trainer.numNodes: expected ")
    assert "(2) spec.trainer.resourcesPerNode.limits[cpu]: 'lots' is no quantity" in status["message"]


def test_a_rule_over_the_runtime_is_403_with_the_path_and_what_to_do() -> None:
    job = build_job(trainer={"env": [{"name": "PET_NNODES", "value": "2"}]})
    status = respond(job, validate(job))["status"]

    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert [cause["field"] for cause in status["details"]["causes"]] == ["spec.trainer.env"]
    assert status["details"] | {"causes": []} == {
        "group": "trainer.kubeflow.org",
        "kind": "TrainJob",
        "name": "demo",
        "causes": [],
    }
    assert status["message"].startswith("spec.trainer.env: ")


def test_a_missing_runtime_is_named_with_those_that_exist() -> None:
    answer = validate(build_job(), facts=Facts(known_runtimes=("torch", "rt2")))

    assert (answer.code, paths(answer)) == (403, ["spec.runtimeRef"])
    assert "rt2, torch" in answer.errors[0].detail


def test_of_very_many_errors_the_answer_tells_some_and_their_number() -> None:
    job = build_job(trainer={"env": [{"name": i} for i in range(500)]})
    status = respond(job, validate(job))["status"]

    assert len(status["details"]["causes"]) == MAX_CAUSES
    assert status["message"].endswith(" and 401 more")


def test_warnings_go_with_an_allowed_object() -> None:
    runtime = build_runtime(
        kind="ClusterTrainingRuntime", labels={"trainer.kubeflow.org/support": "deprecated"}
    )
    response = respond(runtime, validate(runtime))

    assert response["allowed"] is True
    assert response["warnings"][0].startswith('ClusterTrainingRuntime "rt" is deprecated and will be removed')


def test_a_runtime_is_refused_with_all_that_is_wrong() -> None:
    runtime = build_runtime()
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]
    job["replicas"] = 2
    job["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "other"

    assert paths(validate(runtime)) == [
        "spec.template.spec.replicatedJobs[0].replicas",
        "spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers",
    ]


def test_fields_of_a_newer_schema_are_none_of_our_business() -> None:
    runtime = build_runtime()
    runtime["spec"]["template"]["spec"]["newer"] = {"a": 1}

    assert validate(runtime) == Answer()
    assert validate(build_job(newer=1, trainer={"alsoNewer": {}})) == Answer()


# -- what always passes --------------------------------------------------------------------------------------

BROKEN = build_job(
    trainer={"numNodes": -1, "env": [{"name": "PET_NNODES"}]}, runtimePatches=[{"manager": "x"}]
)


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"a": "b"}},
        {"annotations": {"a": "b"}},
        {"finalizers": ["a/b"]},
        {"ownerReferences": []},
    ],
    ids=lambda metadata: next(iter(metadata)),
)
def test_an_update_of_metadata_passes_though_the_job_would_be_refused_as_a_new_one(metadata: Json) -> None:
    changed = {**BROKEN, "metadata": {**BROKEN["metadata"], **metadata}}

    assert validate(BROKEN, facts=Facts()).code == 422
    assert validate(changed, BROKEN, facts=Facts()) == Answer()


def test_what_is_being_deleted_passes_whatever_changes() -> None:
    going = {**BROKEN, "metadata": {**BROKEN["metadata"], "deletionTimestamp": EARLIER, "finalizers": []}}

    assert parse_review(encode_review(going, build_job()), "TrainJob").is_settled


def test_a_new_object_does_not_pass_by_claiming_to_be_deleted() -> None:
    claiming = build_job(metadata={"deletionTimestamp": EARLIER})

    assert not parse_review(encode_review(claiming), "TrainJob").is_settled


def test_a_delete_passes() -> None:
    assert parse_review(encode_review(None, build_job(), "DELETE"), "TrainJob").is_settled


def test_a_job_whose_runtime_is_gone_can_be_suspended() -> None:
    answer = validate(build_job(suspend=True), build_job(), facts=Facts())

    assert answer.is_allowed


def test_the_status_is_nobodys_business_here() -> None:
    job = build_job() | {"status": {"conditions": "nonsense", "jobsStatus": [{"ready": "x"}]}}

    assert validate(job) == Answer()


def test_an_old_object_that_cannot_be_read_does_not_keep_the_new_one_out() -> None:
    assert validate(build_job(), build_job(trainer={"numNodes": "two"})) == Answer()


def test_a_deprecated_runtime_is_warned_about_on_any_update() -> None:
    deprecated = parse_object(
        build_runtime(labels={"trainer.kubeflow.org/support": "deprecated"}), TrainingRuntime
    )
    changed = build_job(metadata={"labels": {"a": "b"}})
    answer = validate(changed, build_job(), facts=Facts(runtime=deprecated))

    assert answer.is_allowed
    assert [warning.split(" is ")[0] for warning in answer.warnings] == ['Referenced TrainingRuntime "rt"']


def test_nothing_about_a_runtime_is_immutable() -> None:
    old, new = build_runtime(), build_runtime()
    new["spec"]["mlPolicy"] = {"numNodes": 7}
    new["spec"]["template"]["spec"]["successPolicy"] = {"operator": "Any"}
    [job] = new["spec"]["template"]["spec"]["replicatedJobs"]
    new["spec"]["template"]["spec"]["replicatedJobs"] = [{**job, "name": "worker"}]

    assert validate(new, old) == Answer()


# -- updates -------------------------------------------------------------------------------------------------


def build_active_job_set() -> JobSet:
    counter = ReplicatedJobStatus(name="node", ready=1, succeeded=0, failed=0, active=1, suspended=0)
    return JobSet(metadata=ObjectMeta(name="demo"), status=JobSetStatus(replicated_jobs_status=[counter]))


UPDATES: dict[str, tuple[Json, Json, Facts, int, list[str]]] = {
    "patches of a running job": (
        build_job(runtimePatches=[build_patch(pod=NODE)]),
        build_job(),
        FACTS,
        403,
        ["spec.runtimePatches"],
    ),
    "patches of a suspended job whose pods still run": (
        build_job(suspend=True, runtimePatches=[build_patch(pod=NODE)]),
        build_job(suspend=True),
        Facts(runtime=RUNTIME, job_set=build_active_job_set()),
        403,
        ["spec.runtimePatches"],
    ),
    "patches of a suspended job": (
        build_job(suspend=True, runtimePatches=[build_patch(pod=NODE)]),
        build_job(suspend=True),
        FACTS,
        200,
        [],
    ),
    "the size of a suspended job": (
        build_job(suspend=True, trainer={"numNodes": 4}),
        build_job(suspend=True, trainer={"numNodes": 2}),
        FACTS,
        200,
        [],
    ),
    "the image": (
        build_job(suspend=True, trainer={"image": "b"}),
        build_job(suspend=True, trainer={"image": "a"}),
        FACTS,
        422,
        ["spec.trainer.image"],
    ),
    "the runtime": (
        build_job(runtimeRef={"name": "other", "kind": "TrainingRuntime"}),
        build_job(),
        FACTS,
        422,
        ["spec.runtimeRef"],
    ),
}


@pytest.mark.parametrize(("new", "old", "facts", "code", "fields"), UPDATES.values(), ids=UPDATES)
def test_an_update_is_held_to_what_was(
    new: Json, old: Json, facts: Facts, code: int, fields: list[str]
) -> None:
    answer = validate(new, old, facts)

    assert (answer.code, paths(answer)) == (code, fields)


# -- what is no review ---------------------------------------------------------------------------------------

REVIEW = build_review(build_job())
NO_REVIEWS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not an AdmissionReview"),
    "no JSON": (b"\x00\xff garbage", "not an AdmissionReview"),
    "text that is no UTF-8": (b'{"apiVersion": "\xff"}', "not an AdmissionReview"),
    "a list": (b"[]", "not an AdmissionReview"),
    "JSON without end": (b'{"a":' * 100_000, "not an AdmissionReview"),
    "no request": (json.dumps({**REVIEW, "request": None}).encode(), "not an AdmissionReview"),
    "an object that is a number": (
        json.dumps({**REVIEW, "request": {**REVIEW["request"], "object": 1}}).encode(),
        "not an AdmissionReview",
    ),
    "another version": (
        json.dumps({**REVIEW, "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        "expected an AdmissionReview of admission.k8s.io/v1",
    ),
    "another kind of review": (json.dumps({**REVIEW, "kind": "TokenReview"}).encode(), "expected an Adm"),
    "an object of another kind": (
        encode_review(build_runtime()),
        "found one of trainer.kubeflow.org/v1alpha1",
    ),
    "no object": (encode_review(None, build_job(), "UPDATE"), "the review of a UPDATE holds no object"),
}


@pytest.mark.parametrize(("body", "said"), NO_REVIEWS.values(), ids=NO_REVIEWS)
def test_what_is_no_review_is_told_in_one_line(body: bytes, said: str) -> None:
    with pytest.raises(BadReview) as bad:
        parse_review(body, "TrainJob")

    assert said in str(bad.value)
    assert "\n" not in str(bad.value)
    assert len(str(bad.value)) < 500
