"""Every rule of admission through a real API server: schema, defaulter and validators together.

The recorded requests of `tests/data/oracle` are sent as they are. What comes back must be what the peer
answered, or what our admission says offline and why (`admission-differences.yaml`): the same rules, the same
paths, whoever asks.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from admission.test_oracle import DIFFERENCES, ORACLE, OUR_KINDS, Answer, agree
from kube.control_plane import ControlPlane
from trainwright.api.constants import WEBHOOK_VALIDATION_LABEL
from trainwright.api.meta import Json

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")

from kube.admitting import Reply, WebhookServer, build_url, jobset_with_active, send

MERGE_PATCH = "application/merge-patch+json"
# Cases about what becomes of jobs need somebody who acts on them.
CASES = sorted(
    path.parent.name for path in ORACLE.glob("*/requests.json") if not path.parent.name.startswith("life-")
)


@pytest.fixture(scope="module")
def webhooks(control_plane: ControlPlane, crds: None) -> Iterator[WebhookServer]:
    with WebhookServer(control_plane) as server:
        yield server


class Case:
    """One recorded case, played in a namespace of its own."""

    def __init__(self, plane: ControlPlane, name: str) -> None:
        self.plane = plane
        self.name = name
        self.namespace = f"{name[:50]}-{uuid.uuid4().hex[:6]}"
        self._cluster_wide: list[Json] = []

    def __enter__(self) -> Case:
        self.plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        return self

    def __exit__(self, *_: object) -> None:
        for obj in self._cluster_wide:
            send(self.plane, "DELETE", build_url(obj, "", obj["metadata"]["name"]))
        self.plane.call("DELETE", f"/api/v1/namespaces/{self.namespace}")

    def play(self) -> list[tuple[str, Answer, Reply]]:
        """Return each request with the peer's answer and what came back."""
        steps = json.loads((ORACLE / self.name / "requests.json").read_text())
        created = [
            document
            for document in yaml.safe_load_all((ORACLE / self.name / "input.yaml").read_text())
            if "kind" in document
        ]
        answers = []
        for i, step in enumerate(steps):
            documents = created if i == 0 else step["documents"]
            for document, recorded in zip(documents, step["requests"], strict=True):
                if document["kind"] not in OUR_KINDS:
                    continue
                reply = self._do(document, step["active"])
                if reply is not None:
                    label = recorded["do"] if i == 0 else f"{i + 1}: {recorded['do']}"
                    answers.append((label, _read_recorded(recorded), reply))
        return answers

    def _do(self, document: Json, active: dict[str, list[str]]) -> Reply | None:
        action, name = document.get("action"), document.get("name", "")
        if action is None:
            if document["kind"] == "ClusterTrainingRuntime":
                self._cluster_wide.append(document)
            reply = send(self.plane, "POST", build_url(document, self.namespace), document)
            if reply.code == 403 and document["kind"] != "TrainJob":
                self._smuggle_in(document)
            return reply
        path = build_url(document, self.namespace, name)
        if action == "delete":
            send(self.plane, "DELETE", path)
        if action != "patch" or document.get("subresource") is not None:
            return None
        jobs = active.get(name, [])
        with jobset_with_active(self.plane, self.namespace, name, jobs) if jobs else contextlib.nullcontext():
            return send(self.plane, "PATCH", path, document["patch"], MERGE_PATCH)

    def _smuggle_in(self, runtime: Json) -> None:
        """Make a runtime past its validator: for the TrainJobs after it, it may have been there before us."""
        metadata = {**runtime["metadata"], "labels": {WEBHOOK_VALIDATION_LABEL: "disabled"}}
        made = send(self.plane, "POST", build_url(runtime, self.namespace), {**runtime, "metadata": metadata})
        assert made.code == 201


def _read_recorded(recorded: dict[str, Any]) -> Answer:
    # Wrong types are 400 from the peer's webhook, before its schema can say where.
    code = {201: 200, 400: 422}.get(recorded["code"], recorded["code"])
    return Answer(code, tuple(recorded.get("fields", ())))


def _read_reply(reply: Reply) -> Answer:
    fields = tuple(field for field in reply.fields if field != "<nil>") if reply.code >= 400 else ()
    return Answer(200 if reply.code == 201 else reply.code, fields)


@pytest.mark.parametrize("case", CASES)
def test_answers_through_the_api_server_are_the_peers_or_differ_on_purpose(
    case: str, webhooks: WebhookServer
) -> None:
    offline = {one.do: one.ours for one in DIFFERENCES if one.case == case}
    differing = {}
    with Case(webhooks.plane, case) as played:
        for do, peers, reply in played.play():
            ours = _read_reply(reply)
            if not agree(peers, ours) and str(ours) != offline.get(do):
                differing[do] = str(ours)

    assert differing == {}


def test_warnings_are_the_peers_where_a_runtime_is_deprecated(webhooks: WebhookServer) -> None:
    with Case(webhooks.plane, "plain-deprecated") as played:
        warnings = {
            do: [warning.split(" and ")[0] for warning in reply.warnings] for do, _, reply in played.play()
        }

    assert warnings == {
        "create ClusterTrainingRuntime/ct-plain-deprecated": [
            'ClusterTrainingRuntime "ct-plain-deprecated" is deprecated'
        ],
        "create TrainingRuntime/rt": ['TrainingRuntime "rt" is deprecated'],
        "create TrainJob/alpha": ['Referenced ClusterTrainingRuntime "ct-plain-deprecated" is deprecated'],
        "create TrainJob/beta": ['Referenced TrainingRuntime "rt" is deprecated'],
        "2: patch TrainJob/alpha": ['Referenced ClusterTrainingRuntime "ct-plain-deprecated" is deprecated'],
        "2: patch ClusterTrainingRuntime/ct-plain-deprecated": [
            'ClusterTrainingRuntime "ct-plain-deprecated" is deprecated'
        ],
    }
