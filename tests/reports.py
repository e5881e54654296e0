"""For tests of reports: an API server's answers about tokens and statuses, and caches with one job."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

from trainwright.api.meta import Json
from trainwright.cluster.kube.errors import NotFoundError, Status
from trainwright.cluster.kube.requests import Request
from trainwright.operator.caches import Caches
from trainwright.operator.stored import decode_job_set, decode_pod, decode_train_job

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
_VERSIONS = itertools.count(1)
POD = {"name": "demo-node-0-0-x", "uid": "pod-1"}


def clock() -> datetime:
    return NOW


class Api:
    """Answers TokenReviews, reads of pods and applies of statuses; `sent` are the requests."""

    def __init__(self) -> None:
        self.sent: list[Request] = []
        self.errors: list[Exception] = []
        self.forged: set[str] = set()
        self.pods: dict[str, Json] = {}

    @property
    def plurals(self) -> list[str]:
        return [request.path.rsplit("/", 1)[-1] for request in self.sent]

    @property
    def percents(self) -> list[int]:
        """The percent of each status that was written."""
        return [
            json.loads(request.body or b"")["status"]["trainerStatus"]["progressPercentage"]
            for request in self.sent
            if request.path.endswith("/status")
        ]

    async def request(self, request: Request) -> bytes:
        self.sent.append(request)
        if self.errors:
            raise self.errors.pop(0)
        if request.path.endswith("/tokenreviews"):
            return json.dumps({"kind": "TokenReview", "status": self._review(request)}).encode()
        if request.method == "GET":
            name = request.path.rsplit("/", 1)[-1]
            if name not in self.pods:
                raise NotFoundError(Status(code=404, reason="NotFound", message=f'pods "{name}" not found'))
            return json.dumps(self.pods[name]).encode()
        return request.body or b""

    def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        raise AssertionError(f"nothing is watched here: {request.path}, {inactivity_seconds}")

    def _review(self, request: Request) -> Json:
        spec = json.loads(request.body or b"")["spec"]
        if spec["token"] in self.forged:
            return {"error": "invalid bearer token"}
        payload = spec["token"].split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
        bound = claims["kubernetes.io"]
        extra = {f"authentication.kubernetes.io/pod-{key}": [bound["pod"][key]] for key in ("name", "uid")}
        user = {"username": f"system:serviceaccount:{bound['namespace']}:default", "extra": extra}
        audiences = [audience for audience in claims["aud"] if audience in spec["audiences"]]
        return {"authenticated": True, "user": user, "audiences": audiences}


def build_caches(api: Api) -> Caches:
    """Caches in which the TrainJob `demo`, its JobSet and its pod are."""
    caches = Caches(api)
    put_job(caches)
    owner = {"apiVersion": "v1", "kind": "TrainJob", "name": "demo", "uid": "job-1", "controller": True}
    job_set: Json = {
        "metadata": {
            "name": "demo",
            "namespace": "ns",
            "uid": "set-1",
            "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
        }
    }
    caches.job_sets.store.put(decode_job_set(json.dumps(job_set).encode()))
    caches.pods.store.put(decode_pod(json.dumps(build_pod()).encode()))
    return caches


def put_job(caches: Caches, uid: str = "job-1", **status: Any) -> None:
    job: Json = {
        "metadata": {
            "name": "demo",
            "namespace": "ns",
            "uid": uid,
            "resourceVersion": str(next(_VERSIONS)),
        },
        "spec": {"runtimeRef": {"name": "plain"}},
        "status": status,
    }
    caches.train_jobs.store.put(decode_train_job(json.dumps(job).encode()))


def build_pod(name: str = POD["name"], uid: str = POD["uid"], job_set_uid: str = "set-1") -> Json:
    labels = {"jobset.sigs.k8s.io/jobset-name": "demo", "jobset.sigs.k8s.io/jobset-uid": job_set_uid}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "labels": labels},
        "spec": {"containers": []},
    }


def build_token(pod: Json = POD, namespace: str = "ns", **claims: Any) -> str:
    audience = "trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/demo/status"
    body = {
        "aud": [audience],
        "exp": int(NOW.timestamp()) + 3600,
        "kubernetes.io": {"namespace": namespace, "pod": pod},
        **claims,
    }
    return f"head.{base64.urlsafe_b64encode(json.dumps(body).encode()).decode().rstrip('=')}.signature"
