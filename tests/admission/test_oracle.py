"""Our admission against what the peer, Kubeflow Trainer v2.3.0, answered to the same requests.

`tests/data/oracle/<case>/requests.json` holds them as recorded on a real API server, step by step, with the
peer's status code and the field paths of its errors. Ours agree where both accept, or both refuse with the
same class of status (422 for the schema, 403 for the webhook) and name the same fields; a path of ours may
lead further in than the peer's (`spec.runtimePatches[0].manager` for `spec.runtimePatches.manager`). Every
other difference must stand, with its reason, in `tests/data/oracle/admission-differences.yaml`, and every
entry must still be a difference.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from trainwright.admission import (
    Verdict,
    default_runtime,
    default_train_job,
    validate_runtime,
    validate_train_job,
)
from trainwright.api.encoding import build_object
from trainwright.api.jobset import JobSet, JobSetStatus, ReplicatedJobStatus
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.reading import read_object
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime, TrainingRuntime
from trainwright.api.trainjob import TrainJob

ORACLE = Path(__file__).resolve().parent.parent / "data" / "oracle"
CASES = sorted(path.parent.name for path in ORACLE.glob("*/requests.json"))
OUR_KINDS = {"TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Allowed(msgspec.Struct, frozen=True):
    """A request that we answer differently on purpose: what we say, and why."""

    case: str
    do: str
    ours: str
    why: str


DIFFERENCES = msgspec.yaml.decode((ORACLE / "admission-differences.yaml").read_bytes(), type=list[Allowed])


class Answer(msgspec.Struct, frozen=True):
    """200, 403 or 422, and the paths of the errors."""

    code: int
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.code} {', '.join(self.fields)}".strip()


class World:
    """The objects of one case, as our admission let them in.

    A runtime that only we refuse is kept for the TrainJobs after it: it may have been there before us.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Any] = {}

    def create(self, body: Json) -> Answer:
        """Take a new object in, or refuse it."""
        read = read_object(body)
        if read.errors:
            return Answer(422, tuple(dict.fromkeys(error.path for error in read.errors)))
        return self._admit(read.objects[0].value, None, frozenset())

    def patch(self, kind: str, name: str, patch: Json, active: list[str]) -> Answer | None:
        """Merge a patch into an object that is there, or refuse it."""
        old = self.objects.get((kind, name))
        if old is None:
            return None
        read = read_object(merge(build_object(old), patch))
        assert read.errors == ()
        return self._admit(read.objects[0].value, old, frozenset(active))

    def _admit(self, value: Any, old: Any, active: frozenset[str]) -> Answer:
        if isinstance(value, TrainJob):
            value = default_train_job(value, old, NOW)
            verdict = validate_train_job(value, self._find_runtime(value), old, build_job_set(value, active))
        else:
            assert isinstance(value, TrainingRuntime | ClusterTrainingRuntime)
            value = default_runtime(value)
            verdict = validate_runtime(value)
        if verdict.is_allowed or value.kind != "TrainJob":
            self.objects[value.kind, value.metadata.name] = value
        return build_answer(verdict)

    def _find_runtime(self, job: TrainJob) -> Runtime | None:
        reference = job.spec.runtime_ref if job.spec else None
        found: Runtime | None = (
            self.objects.get((reference.kind or "", reference.name)) if reference else None
        )
        return found


def build_answer(verdict: Verdict) -> Answer:
    shown = verdict.invalid or verdict.denied  # an API server asks no webhook about what its schema refuses
    return Answer(verdict.status_code, tuple(dict.fromkeys(error.path for error in shown)))


def build_job_set(job: TrainJob, active: frozenset[str]) -> JobSet:
    counters = [
        ReplicatedJobStatus(name=name, ready=1, succeeded=0, failed=0, active=1, suspended=0)
        for name in sorted(active)
    ]
    return JobSet(
        metadata=ObjectMeta(name=job.metadata.name), status=JobSetStatus(replicated_jobs_status=counters)
    )


def merge(body: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(body) if isinstance(body, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def replay(case: str) -> list[tuple[str, Answer, Answer]]:
    """Return each request with the peer's answer and ours."""
    steps = json.loads((ORACLE / case / "requests.json").read_text())
    created = [
        document
        for document in yaml.safe_load_all((ORACLE / case / "input.yaml").read_text())
        if "kind" in document  # else it is a pause of the recording
    ]
    world, answers = World(), []
    for i, step in enumerate(steps):
        for document, request in zip(created if i == 0 else step["documents"], step["requests"], strict=True):
            kind, action = document["kind"], document.get("action")
            name = document["name"] if action else document["metadata"]["name"]
            assert request["do"] == f"{action or 'create'} {kind}/{name}"
            if kind not in OUR_KINDS:
                continue
            ours: Answer | None = None
            if action is None:
                ours = world.create(document)
            elif action == "patch" and document.get("subresource") is None:
                ours = world.patch(kind, name, document["patch"], step["active"].get(name, []))
            elif action == "delete":
                world.objects.pop((kind, name), None)
            if ours is not None:
                # Wrong types are 400 from the peer's webhook, before its schema can say where.
                code = {201: 200, 400: 422}.get(request["code"], request["code"])
                label = request["do"] if i == 0 else f"{i + 1}: {request['do']}"
                answers.append((label, Answer(code, tuple(request.get("fields", ()))), ours))
    return answers


def agree(peers: Answer, ours: Answer) -> bool:
    """Say whether the answers are of one class and about the same fields."""
    if peers.code != ours.code:
        return False
    if not peers.fields:
        return True
    reached = {field for path in ours.fields for field in peers.fields if leads_into(field, path)}
    return reached == set(peers.fields) and all(
        any(leads_into(field, path) for field in peers.fields) for path in ours.fields
    )


def leads_into(field: str, path: str) -> bool:
    """Say whether a path is the peer's field or something in it; the peer lacks indexes and some case."""
    bare = re.sub(r"\[\d+\]", "", path) if not re.search(r"\[\d+\]", field) else path
    return bare.lower() == field.lower() or bare.lower().startswith(
        (f"{field.lower()}.", f"{field.lower()}[")
    )


@pytest.mark.parametrize("case", CASES)
def test_our_answers_agree_with_the_peers_or_differ_on_purpose(case: str) -> None:
    differing = {do: str(ours) for do, peers, ours in replay(case) if not agree(peers, ours)}

    assert differing == {allowed.do: allowed.ours for allowed in DIFFERENCES if allowed.case == case}


def test_every_difference_on_purpose_is_of_a_case() -> None:
    assert {allowed.case for allowed in DIFFERENCES} <= set(CASES)
    assert all(allowed.why for allowed in DIFFERENCES)
