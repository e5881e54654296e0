"""Our render against what the peer, Kubeflow Trainer v2.3.0, made of the same objects on a real API server.

`tests/data/oracle/<case>/input.yaml` holds the objects that were created, `requests.json` what was sent in
later steps, `jobset.json` the JobSets that each step made or changed, by name. Both sides are brought to
one form first: JobSet's own webhook and schema have filled defaults into what was recorded, and have kept
empty maps. Every difference that is left must stand, with its reason, in
`tests/data/oracle/differences.yaml`, and every entry there must still be a difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime, TrainingRuntime
from trainwright.api.trainjob import TrainJob
from trainwright.render import render_job_set
from trainwright.render.canonical import canonicalize

ORACLE = Path(__file__).resolve().parent.parent / "data" / "oracle"
CASES = sorted(path.parent.name for path in ORACLE.glob("*/jobset.json"))
KINDS = {"TrainingRuntime": TrainingRuntime, "ClusterTrainingRuntime": ClusterTrainingRuntime}


class Allowed(msgspec.Struct, frozen=True):
    """A difference that is meant: a glob of cases, a pattern that matches the whole path, and the reason."""

    case: str
    path: str
    why: str


DIFFERENCES = msgspec.yaml.decode((ORACLE / "differences.yaml").read_bytes(), type=list[Allowed])


class Step(msgspec.Struct, frozen=True):
    """One step of a case: what our render makes of the TrainJobs, and the JobSets that the peer then had."""

    rendered: dict[str, Json]
    recorded: dict[str, Json]


def replay(case: str) -> list[Step]:
    """Follow the TrainJobs of a case through its steps; runtimes stay as they were at first."""
    recorded: list[dict[str, Json]] = json.loads((ORACLE / case / "jobset.json").read_text())
    documents = [
        document
        for document in yaml.safe_load_all((ORACLE / case / "input.yaml").read_text())
        if "kind" in document  # the others are actions, such as waiting
    ]
    runtimes: dict[tuple[str, str], Runtime] = {
        (document["kind"], document["metadata"]["name"]): parse_object(document, KINDS[document["kind"]])
        for document in documents
        if document["kind"] in KINDS
    }
    jobs = {
        document["metadata"]["name"]: document for document in documents if document["kind"] == "TrainJob"
    }
    steps = []
    for number, made in enumerate(recorded):
        for name, patch in read_patches(case, number):
            jobs[name] = merge_patch(jobs[name], patch)
        rendered = {name: render_document(case, jobs[name], runtimes) for name in made}
        steps.append(Step(rendered, made))
    return steps


def read_patches(case: str, number: int) -> list[tuple[str, Json]]:
    """Return the patches of TrainJobs that the API server accepted in a step after the first."""
    file = ORACLE / case / "requests.json"
    if number == 0 or not file.exists():
        return []
    step = json.loads(file.read_text())[number]
    return [
        (document["name"], document["patch"])
        for document, request in zip(step["documents"], step["requests"], strict=False)
        if request["code"] == 200 and document.get("action") == "patch" and document["kind"] == "TrainJob"
    ]


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    merged = {**target} if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def render_document(case: str, document: Json, runtimes: dict[tuple[str, str], Runtime]) -> Json:
    """Render a TrainJob with what the API server and admission have added to it."""
    metadata = {**document["metadata"], "uid": "<uid>", "namespace": case}
    spec = {"suspend": False, **document["spec"]}
    job = parse_object({**document, "metadata": metadata, "spec": spec}, TrainJob)
    assert job.spec is not None
    reference = (job.spec.runtime_ref.kind or "ClusterTrainingRuntime", job.spec.runtime_ref.name)
    return render_job_set(job, runtimes[reference])


def normalize(job_set: Json) -> Json:
    """Fill in what JobSet fills in, and drop empty maps."""
    spec = job_set["spec"]
    filled: Json = {
        **spec,
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, **spec.get("network", {})},
        "successPolicy": {"operator": "All", **spec.get("successPolicy", {})},
        "startupPolicy": {"startupPolicyOrder": "AnyOrder", **spec.get("startupPolicy", {})},
        "replicatedJobs": [_normalize_replicated_job(replicated) for replicated in spec["replicatedJobs"]],
    }
    if "failurePolicy" in spec:
        filled["failurePolicy"] = {"restartStrategy": "Recreate", **spec["failurePolicy"]}
    result: Json = canonicalize({**job_set, "spec": filled})
    return result


def _normalize_replicated_job(replicated: Json) -> Json:
    job_spec = replicated["template"]["spec"]
    pod_spec = {"restartPolicy": "OnFailure", **job_spec["template"]["spec"]}
    for field in ("containers", "initContainers"):
        if field in pod_spec:
            pod_spec[field] = [
                {**found, "ports": [{"protocol": "TCP", **port} for port in found["ports"]]}
                if "ports" in found
                else found
                for found in pod_spec[field]
            ]
    job_spec = {
        "completionMode": "Indexed",
        **job_spec,
        "template": {**job_spec["template"], "spec": pod_spec},
    }
    template = {**replicated["template"], "spec": job_spec}
    return {"groupName": "default", "replicas": 1, **replicated, "template": template}


def find_differences(ours: Any, peers: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield path, our value and the peer's; lists of named items are compared by name, then by order."""
    if isinstance(ours, dict | None) and isinstance(peers, dict | None):
        ours, peers = ours or {}, peers or {}
        for key in sorted(ours.keys() | peers.keys()):
            yield from find_differences(ours.get(key), peers.get(key), f"{path}/{key}")
    elif _is_named(ours) and _is_named(peers):
        mine, other = ({item["name"]: item for item in items} for items in (ours, peers))
        yield from find_differences(mine, other, path)
        if list(mine) != list(other):
            yield f"{path}/#order", list(mine), list(other)
    elif isinstance(ours, list) and isinstance(peers, list) and len(ours) == len(peers):
        for i, (one, another) in enumerate(zip(ours, peers, strict=True)):
            yield from find_differences(one, another, f"{path}/{i}")
    elif ours != peers:
        yield path, ours, peers


def _is_named(items: Any) -> bool:
    return (
        isinstance(items, list)
        and bool(items)
        and all(isinstance(item, dict) and "name" in item for item in items)
        and len({item["name"] for item in items}) == len(items)
    )


def list_differences(case: str) -> list[tuple[str, Any, Any]]:
    return [
        difference
        for step in replay(case)
        for name in sorted(step.recorded)
        for difference in find_differences(
            normalize(step.rendered[name]), normalize(step.recorded[name]), name
        )
    ]


def is_allowed(case: str, path: str, allowed: Allowed) -> bool:
    return fnmatchcase(case, allowed.case) and re.fullmatch(allowed.path, path) is not None


@pytest.mark.parametrize("case", CASES)
def test_we_render_what_the_peer_renders_but_for_the_listed_differences(case: str) -> None:
    unexplained = [
        difference
        for difference in list_differences(case)
        if not any(is_allowed(case, difference[0], allowed) for allowed in DIFFERENCES)
    ]
    assert unexplained == []


@pytest.mark.parametrize("allowed", DIFFERENCES, ids=lambda allowed: f"{allowed.case} {allowed.path}")
def test_a_listed_difference_is_still_one(allowed: Allowed) -> None:
    cases = [case for case in CASES if fnmatchcase(case, allowed.case)]
    assert any(is_allowed(case, path, allowed) for case in cases for path, _, _ in list_differences(case))


def test_all_kinds_of_cases_are_there() -> None:
    assert {case.split("-")[0] for case in CASES} >= {"plain", "torch", "patch", "life", "init"}
    assert sum(bool(step.recorded) for case in CASES for step in replay(case)) > len(CASES)


def test_the_comparison_sees_values_order_and_missing_items() -> None:
    ours = {"a": [{"name": "x", "v": 1}, {"name": "y"}], "b": [1, 2], "c": None}
    peers = {"a": [{"name": "y"}, {"name": "x", "v": 2}, {"name": "z"}], "b": [1], "c": 0}
    assert list(find_differences(ours, peers)) == [
        ("/a/x/v", 1, 2),
        ("/a/z/name", None, "z"),
        ("/a/#order", ["x", "y"], ["y", "x", "z"]),
        ("/b", [1, 2], [1]),
        ("/c", None, 0),
    ]
