"""How long does an API server wait for our webhooks, and what share of it is ours?

Data: a TrainJob of 4 nodes with three patches (9 kB as a review), created and updated, over TLS on loopback,
one connection after the other's answer, as an API server keeps it; 2,000 requests each. The baseline is the
same server answering an empty review of the same size: reading, TLS and HTTP without our rules. Goal: 99 of
100 answers within 20 ms. Bias: client and server share one process and one core, so each figure holds both;
an API server is no part of it, nor is the decoding it does before it asks.
"""

# ruff: noqa: ARG002, D102 (the signatures of a protocol)

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import aiohttp
from aiohttp import web

from measure import Figure, show
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob
from trainwright.manifests.names import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from trainwright.operator.certificates import build_certificates
from trainwright.operator.serving import CertificateSlot
from trainwright.operator.webhooks import Webhooks
from trainwright.runtimes import load_shipped_runtimes

REQUESTS = 2_000
GOAL_SECONDS = 0.020
DEFAULTER = MUTATING_WEBHOOKS[0].path
VALIDATOR = next(webhook.path for webhook in VALIDATING_WEBHOOKS if webhook.kind == "TrainJob")


def measure() -> list[Figure]:
    """Ask each webhook many times and return the 99th percentiles."""
    return asyncio.run(_measure())


async def _measure() -> list[Figure]:
    new, old = build_job(), build_job(suspend=True)
    create, update = build_review(new), build_review({**new, "spec": {**new["spec"], "suspend": True}}, old)
    delete = build_review(None, new, "DELETE")
    certificates = build_certificates(("127.0.0.1",), datetime.now(UTC))
    slot = CertificateSlot()
    slot.swap(certificates.serving)
    cached = Cached()
    app = Webhooks(cached, cached.read_runtime, lambda: datetime.now(UTC)).build_app()
    context = ssl.create_default_context(cadata=certificates.ca_bundle.decode())
    async with (
        serve(app, slot.context) as port,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, limit=1)) as session,
    ):
        base = f"https://127.0.0.1:{port}"
        baseline = await time_requests(session, base + VALIDATOR, delete)
        return [
            Figure(
                name=f"webhook: {name}, p99",
                ours=await time_requests(session, base + path, body),
                baseline_name="an empty review",
                baseline=baseline,
                limit=GOAL_SECONDS,
            )
            for name, path, body in (
                ("defaulting a new job", DEFAULTER, create),
                ("validating a new job", VALIDATOR, create),
                ("defaulting an update", DEFAULTER, update),
                ("validating an update", VALIDATOR, update),
            )
        ]


async def time_requests(session: aiohttp.ClientSession, url: str, body: bytes) -> float:
    """Return the 99th percentile of the time until an answer is read, in seconds."""
    durations = []
    headers = {"Content-Type": "application/json"}
    for i in range(REQUESTS + 50):
        start = time.perf_counter()
        async with session.post(url, data=body, headers=headers) as answer:
            response = json.loads(await answer.read())["response"]
        assert response["allowed"], response
        if i >= 50:  # the first ones compile schemas and open the connection
            durations.append(time.perf_counter() - start)
    return sorted(durations)[int(len(durations) * 0.99)]


class Cached:
    """Caches that hold one runtime."""

    def __init__(self) -> None:
        self._runtime = load_shipped_runtimes()["torch-distributed"]

    async def find_runtime(self, key: ObjectKey) -> Runtime | None:
        return self._runtime

    async def find_snapshot(self, train_job: TrainJob, name: str) -> Json | None:
        return None

    async def find_job_set(self, namespace: str, name: str) -> JobSet | None:
        return None

    def list_runtime_names(self, kind: str, namespace: str) -> Sequence[str]:
        return ()

    async def read_runtime(self, key: ObjectKey) -> Runtime | None:
        raise AssertionError("a webhook asked the cluster")


@asynccontextmanager
async def serve(app: web.Application, context: ssl.SSLContext) -> Any:
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def build_job(**spec: Any) -> Json:
    """A TrainJob with patches of three managers, and managed fields as an API server keeps them."""
    pod = {
        "nodeSelector": {"pool": "h200"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [{"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
    }
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    patches = [
        {
            "manager": f"example.com/manager-{i}",
            "time": "2026-01-01T00:00:00Z",
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
        }
        for i in range(3)
    ]
    managed = {"f:spec": {f"f:field-{i}": {"f:inner": {}} for i in range(100)}}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {
            "name": "demo",
            "namespace": "team-a",
            "uid": "u-1",
            "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": managed}],
        },
        "spec": {
            "runtimeRef": {
                "name": "torch-distributed",
                "apiGroup": "trainer.kubeflow.org",
                "kind": "ClusterTrainingRuntime",
            },
            "managedBy": "trainer.kubeflow.org/trainjob-controller",
            "suspend": False,
            "trainer": {
                "numNodes": 4,
                "command": ["torchrun", "train.py"],
                "env": [{"name": f"VARIABLE_{i}", "value": str(i)} for i in range(20)],
                "resourcesPerNode": {"limits": {"cpu": 8, "memory": "64Gi", "nvidia.com/gpu": 8}},
            },
            "runtimePatches": patches,
            **spec,
        },
    }


def build_review(obj: Json | None, old: Json | None = None, operation: str = "") -> bytes:
    """The review of an object that is created, changed or deleted."""
    kind = {"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": "TrainJob"}
    request = {
        "uid": "review-1",
        "kind": kind,
        "name": "demo",
        "namespace": "team-a",
        "operation": operation or ("UPDATE" if old else "CREATE"),
        "object": obj,
        "oldObject": old,
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


if __name__ == "__main__":
    print(__doc__)
    show(measure())
