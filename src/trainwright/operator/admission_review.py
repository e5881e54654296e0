"""Webhooks as values: an AdmissionReview in, an answer out. The rules are those of `trainwright.admission`.

Pure. What a rule has to know beyond the review is given as `Facts`; `read_change` says what the review is
about, so that the shell can look them up. Three promises hold whatever the rules say:

- What is being deleted, and what an update leaves as it was (metadata, finalizers), always passes, or an
  object could never be labelled, suspended or deleted again after its runtime changed.
- A value of the wrong type is no error of the defaulter's: it passes it on, and the schema, which comes next,
  says where it stands. What the schema lets through (a quantity that is none) is refused with its path.
- The patch never removes anything and changes nothing that has its meaning already.

Source: spec 01 sections 2.1 to 2.6; the AdmissionReview v1 of Kubernetes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from trainwright.admission import Verdict, default_runtime, default_train_job, validate_runtime
from trainwright.admission import validate_train_job as validate_over_runtime
from trainwright.admission.train_job_updates import has_relevant_change
from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME, GROUP, TRAINING_RUNTIME, VERSION
from trainwright.api.encoding import build_json, parse_object
from trainwright.api.jobset import JobSet
from trainwright.api.meta import ApiStruct, Json
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime, TrainingRuntime
from trainwright.api.schema import check_object
from trainwright.api.shapes import Findings
from trainwright.api.trainjob import TrainJob
from trainwright.field_errors import FieldError, Rule
from trainwright.frameworks import FRAMEWORKS, Framework

REVIEW_API_VERSION: Final = "admission.k8s.io/v1"
MAX_CAUSES: Final = 100  # of one answer; nobody reads more, and the API server cuts long answers off

_CAUSES: Final = {
    Rule.REQUIRED: "FieldValueRequired",
    Rule.TYPE: "FieldValueTypeInvalid",
    Rule.DUPLICATE: "FieldValueDuplicate",
    Rule.NOT_SUPPORTED: "FieldValueNotSupported",
    Rule.FORBIDDEN: "FieldValueForbidden",
    Rule.NOT_FOUND: "FieldValueNotFound",
    Rule.TOO_LONG: "FieldValueTooLong",
    Rule.TOO_MANY: "FieldValueTooMany",
}
_OTHER_CAUSE: Final = "FieldValueInvalid"
_REASONS: Final = {403: "Forbidden", 422: "Invalid", 503: "ServiceUnavailable"}

_RUNTIMES: Final[dict[str, type[TrainingRuntime] | type[ClusterTrainingRuntime]]] = {
    TRAINING_RUNTIME: TrainingRuntime,
    CLUSTER_TRAINING_RUNTIME: ClusterTrainingRuntime,
}


class BadReview(Exception):
    """The body is no review of the kind that is served at its path; the message says why, in one line."""


class _GroupVersionKind(ApiStruct, frozen=True, kw_only=True):
    group: str
    version: str
    kind: str


class _Request(ApiStruct, frozen=True, kw_only=True):
    uid: str
    kind: _GroupVersionKind
    operation: str
    name: str = ""
    namespace: str = ""
    object: Json | None = None
    old_object: Json | None = None


class _AdmissionReview(ApiStruct, frozen=True, kw_only=True):
    api_version: str
    kind: str
    request: _Request


_DECODER: Final = msgspec.json.Decoder(_AdmissionReview)


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """What an API server asks: may this object be stored? `old` is the stored one on an update.

    `object` is None for operations that store nothing.
    """

    uid: str
    kind: str
    name: str
    namespace: str
    object: Json | None = None
    old: Json | None = None

    @property
    def is_settled(self) -> bool:
        """Say whether the object passes whatever is in it: it goes away, or nothing is stored."""
        return self.object is None or (
            self.old is not None and "deletionTimestamp" in _get_metadata(self.object)
        )

    @property
    def keeps_spec(self) -> bool:
        """Say whether an update leaves the spec as it was."""
        return (
            self.object is not None
            and self.old is not None
            and self.object.get("spec") == self.old.get("spec")
        )


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server is told. `code` is 200 where the object is allowed; `patch` is a JSON patch."""

    code: int = 200
    errors: tuple[FieldError, ...] = ()
    message: str = ""
    warnings: tuple[str, ...] = ()
    patch: tuple[Json, ...] = ()

    @property
    def is_allowed(self) -> bool:
        """Say whether the object may be stored."""
        return self.code == 200


def parse_review(body: bytes, kind: str) -> Review:
    """Return the review in a body that is posted to a webhook about this kind. Raises BadReview."""
    try:
        review = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadReview(f"not an AdmissionReview: {str(error)[:200]}") from error
    if (review.api_version, review.kind) != (REVIEW_API_VERSION, "AdmissionReview"):
        found = f"{review.api_version[:100]} {review.kind[:100]}"
        raise BadReview(f"expected an AdmissionReview of {REVIEW_API_VERSION}, found {found}")
    request = review.request
    about = request.kind
    if (about.group, about.version, about.kind) != (GROUP, VERSION, kind):
        found = f"{about.group[:100]}/{about.version[:100]} {about.kind[:100]}"
        raise BadReview(f"expected a review of a {GROUP}/{VERSION} {kind}, found one of {found}")
    stores = request.operation in {"CREATE", "UPDATE"}
    if stores and request.object is None:
        raise BadReview(f"the review of a {request.operation} holds no object")
    return Review(
        uid=request.uid,
        kind=kind,
        name=request.name,
        namespace=request.namespace,
        object=request.object if stores else None,
        old=request.old_object if request.operation == "UPDATE" else None,
    )


def encode_answer(review: Review, answer: Answer) -> bytes:
    """Return the body that the API server gets."""
    response: Json = {"uid": review.uid, "allowed": answer.is_allowed}
    if not answer.is_allowed:
        response["status"] = _build_status(review, answer)
    elif answer.patch:
        encoded = base64.b64encode(msgspec.json.encode(answer.patch)).decode()
        response |= {"patchType": "JSONPatch", "patch": encoded}
    if answer.warnings:
        response["warnings"] = answer.warnings
    body = {"apiVersion": REVIEW_API_VERSION, "kind": "AdmissionReview", "response": response}
    return msgspec.json.encode(body)


def _build_status(review: Review, answer: Answer) -> Json:
    shown = answer.errors[:MAX_CAUSES]
    causes = [
        {"field": error.path, "message": error.detail, "reason": _CAUSES.get(error.rule, _OTHER_CAUSE)}
        for error in shown
    ]
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": answer.code,
        "reason": _REASONS[answer.code],
        "message": answer.message or _list_errors(shown, len(answer.errors)),
        "details": {"group": GROUP, "kind": review.kind, "name": review.name, "causes": causes},
    }


def _list_errors(shown: Sequence[FieldError], count: int) -> str:
    """Return the errors in one line: clients show the message alone."""
    if count == 1:
        return str(shown[0])
    numbered = " ".join(f"({i}) {error}" for i, error in enumerate(shown, start=1))
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return f"{count} errors: {numbered}{more}"


# -- TrainJobs ---------------------------------------------------------------------------------------------


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the surroundings of a TrainJob.

    `runtime` is the one that it refers to, on an update as the job began with it; `job_set` is its JobSet;
    `known_runtimes` are told to whoever asks for one that does not exist; `frameworks` are those there are.
    """

    runtime: Runtime | None = None
    job_set: JobSet | None = None
    known_runtimes: tuple[str, ...] = ()
    frameworks: tuple[Framework, ...] = FRAMEWORKS


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A review of a TrainJob, read: `job` is None where the object breaks its schema, which `errors` tell.

    `stored` is the object as plain JSON with its numbers put right. `old` is None also where the stored
    object cannot be read, as one of a much older schema; the new one is then held to the rules of new jobs.
    """

    job: TrainJob | None
    old: TrainJob | None
    stored: Json
    errors: tuple[FieldError, ...] = ()

    @property
    def asks_runtime(self) -> bool:
        """Say whether the runtime has a say in what is new."""
        if self.job is None or self.job.spec is None:
            return False
        old = self.old.spec if self.old else None
        return old is None or has_relevant_change(self.job.spec, old)


def read_change(review: Review) -> Change:
    """Return what a review of a TrainJob that is not settled is about."""
    assert review.object is not None  # noqa: S101 (narrows the type)
    stored, errors = _check(TrainJob, review.object, review.namespace)
    job = None if errors else _parse(stored)
    old = None
    if review.old is not None:
        before, old_errors = _check(TrainJob, review.old, review.namespace)
        old = None if old_errors else _parse(before)
    return Change(job=job, old=old, stored=stored, errors=errors)


def default_reviewed(change: Change, review: Review, now: datetime) -> Answer:
    """Return the answer of the defaulter: what is filled in, put back or put right in the spec."""
    assert review.object is not None  # noqa: S101 (narrows the type)
    after = change.stored.get("spec")
    if change.job is not None:
        defaulted = default_train_job(change.job, change.old, now)
        after = build_json(defaulted.spec) if defaulted.spec is not None else None
    before = review.object.get("spec")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return Answer()
    return Answer(patch=tuple(_list_differences(before, after, "/spec")))


def validate_reviewed(change: Change, review: Review, facts: Facts) -> Answer:
    """Return the answer of the validator of TrainJobs."""
    if change.job is None:
        verdict = Verdict(invalid=change.errors)
    else:
        verdict = validate_over_runtime(
            change.job,
            facts.runtime,
            change.old,
            facts.job_set,
            facts.known_runtimes,
            frameworks=facts.frameworks,
        )
    if review.keeps_spec:
        return Answer(warnings=verdict.warnings)
    return _build_answer(verdict)


# -- runtimes ----------------------------------------------------------------------------------------------


def validate_reviewed_runtime(review: Review, frameworks: Sequence[Framework] = FRAMEWORKS) -> Answer:
    """Return the answer of the validators of both kinds of runtimes, for a review that is not settled."""
    assert review.object is not None  # noqa: S101 (narrows the type)
    kind = _RUNTIMES[review.kind]
    stored, errors = _check(kind, review.object, review.namespace)
    if errors:
        verdict = Verdict(invalid=errors)
    else:
        runtime = default_runtime(parse_object(stored, kind))
        verdict = validate_runtime(runtime, frameworks=frameworks)
    if review.keeps_spec:
        return Answer(warnings=verdict.warnings)
    return _build_answer(verdict)


# -- both --------------------------------------------------------------------------------------------------


def _build_answer(verdict: Verdict) -> Answer:
    return Answer(code=verdict.status_code, errors=verdict.errors, warnings=verdict.warnings)


def _check(kind: type[msgspec.Struct], body: Json, namespace: str) -> tuple[Json, tuple[FieldError, ...]]:
    """Return the object with its numbers put right, and what its schema does not allow.

    The status is left out, since nobody can write it here. Fields that we do not know belong to a newer
    schema, or the API server would have dropped them; they are none of our business.
    """
    findings = Findings()
    looked_at = {
        **body,
        "metadata": {"namespace": namespace, **_get_metadata(body)},
        "status": _keep_snapshot(body.get("status")),
    }
    stored = check_object(kind, looked_at, findings)
    return stored, tuple(error for error in findings.errors if error.rule is not Rule.UNKNOWN)


def _keep_snapshot(status: Any) -> Json | None:
    """Return of a status what says which runtime the job began with."""
    snapshot = status.get("runtimeSnapshot") if isinstance(status, dict) else None
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("hash"), str):
        return None
    return {"runtimeSnapshot": {"name": str(snapshot.get("name", "")), "hash": snapshot["hash"]}}


def _parse(stored: Json) -> TrainJob:
    return parse_object(stored, TrainJob)


def _get_metadata(body: Json) -> Json:
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _list_differences(before: Any, after: Any, path: str) -> Iterator[Json]:
    """Yield the operations that bring `after` into `before`, in the order of paths; nothing is removed.

    Equal numbers of different types (2 and 2.0) are no difference: the API server stores them alike.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(after):
            place = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in before:
                yield {"op": "add", "path": place, "value": after[name]}
            else:
                yield from _list_differences(before[name], after[name], place)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _list_differences(old, new, f"{path}/{i}")
    elif before != after:
        yield {"op": "replace", "path": path, "value": after}
