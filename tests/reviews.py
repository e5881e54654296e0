"""AdmissionReviews as an API server sends them."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

from trainwright.api.constants import ANCESTOR_LABEL, API_VERSION, GROUP, VERSION
from trainwright.api.meta import Json

_CONTAINER = {"name": "node", "image": "img:1", "resources": {"limits": {"cpu": 1}}}


def build_job(name: str = "demo", *, metadata: Json | None = None, **spec: Any) -> Json:
    """A TrainJob as the schema lets it through: with the defaults of the schema."""
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "ns", "uid": "u-1", **(metadata or {})},
        "spec": {
            "runtimeRef": {"apiGroup": GROUP, "kind": "TrainingRuntime", "name": "rt"},
            "suspend": False,
            "managedBy": "trainer.kubeflow.org/trainjob-controller",
            **spec,
        },
    }


def build_runtime(name: str = "rt", *, kind: str = "TrainingRuntime", labels: Json | None = None) -> Json:
    """A runtime with one trainer step."""
    namespace = {"namespace": "ns"} if kind == "TrainingRuntime" else {}
    runtime: Json = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, **namespace, **({"labels": labels} if labels else {})},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {
                "spec": {
                    "replicatedJobs": [
                        {
                            "name": "node",
                            "replicas": 1,
                            "groupName": "default",
                            "template": {
                                "metadata": {"labels": {ANCESTOR_LABEL: "trainer"}},
                                "spec": {"template": {"spec": {"containers": [_CONTAINER]}}},
                            },
                        }
                    ]
                }
            },
        },
    }
    return copy.deepcopy(runtime)  # tests change what they get


def build_patch(manager: str = "example.com/one", pod: Json | None = None, time: str | None = None) -> Json:
    """A runtime patch of the pods of `node`."""
    entry: Json = {"manager": manager}
    if time is not None:
        entry["time"] = time
    if pod is not None:
        job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
        entry["trainingRuntimeSpec"] = {"template": {"spec": {"replicatedJobs": [job]}}}
    return entry


def build_review(obj: Json | None, old: Json | None = None, operation: str | None = None) -> Json:
    """The review of an object that is created, or changed where there is an old one."""
    about = obj or old
    assert about is not None
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "review-1",
            "kind": {"group": GROUP, "version": VERSION, "kind": about["kind"]},
            "resource": {"group": GROUP, "version": VERSION, "resource": f"{about['kind'].lower()}s"},
            "name": about["metadata"]["name"],
            "namespace": about["metadata"].get("namespace", ""),
            "operation": operation or ("CREATE" if old is None else "UPDATE"),
            "userInfo": {"username": "somebody", "groups": ["system:authenticated"]},
            "object": obj,
            "oldObject": old,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def encode_review(obj: Json | None, old: Json | None = None, operation: str | None = None) -> bytes:
    return json.dumps(build_review(obj, old, operation)).encode()


def read_patch(body: bytes) -> list[Json]:
    """The JSON patch of an answer; none is an empty one."""
    response = json.loads(body)["response"]
    patch: list[Json] = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    return patch


def apply_json_patch(body: Json, patch: list[Json]) -> Json:
    """Apply `add` and `replace`, as an API server does (RFC 6902)."""
    patched: Any = copy.deepcopy(body)
    for operation in patch:
        assert operation["op"] in {"add", "replace"}
        *parents, last = [
            token.replace("~1", "/").replace("~0", "~") for token in operation["path"].split("/")[1:]
        ]
        here = patched
        for token in parents:
            here = here[int(token)] if isinstance(here, list) else here[token]
        key = int(last) if isinstance(here, list) else last
        if operation["op"] == "replace":
            here[key]  # must be there
        here[key] = operation["value"]
    return patched
