"""An API server of a few lines: streams what a test puts in, when the test says so, and takes writes.

It stands at the edge of the process, in place of the network: everything behind it is real.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from trainwright.api.meta import Json
from trainwright.cluster.kube.errors import NotFoundError, Status
from trainwright.cluster.kube.requests import Request, find_plural
from trainwright.cluster.local.merge_patch import merge_patch

PLURALS = {
    "TrainJob": "trainjobs",
    "TrainingRuntime": "trainingruntimes",
    "ClusterTrainingRuntime": "clustertrainingruntimes",
    "JobSet": "jobsets",
    "Job": "jobs",
    "Pod": "pods",
    "ConfigMap": "configmaps",
    "Event": "events",
    "Workload": "workloads",
    "PodGroup": "podgroups",
}
KINDS = {plural: kind for kind, plural in PLURALS.items()}


class ScriptedServer:
    """Objects by kind and name. `holds` says whose changes the watches do not bring for the time being."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}
        self.requests: list[str] = []
        self.queries: dict[str, dict[str, str]] = {}
        self.holds: set[str] = set()
        self._version = 100
        self._streams: dict[str, list[tuple[Request, asyncio.Queue[bytes]]]] = {}
        self._held: dict[str, list[tuple[str, Json]]] = {}

    @property
    def writes(self) -> list[str]:
        return [line for line in self.requests if not line.startswith("GET")]

    def put(self, obj: Json) -> Json:
        """Store an object and tell the watches."""
        metadata = obj["metadata"]
        key = (PLURALS[obj["kind"]], metadata.get("namespace", ""), metadata["name"])
        self._version += 1
        before = self.objects.get(key)
        fixed = {
            "uid": before["metadata"]["uid"] if before else f"uid-{self._version}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": 1,
        }
        stored = {**obj, "metadata": {**fixed, **metadata, "resourceVersion": str(self._version)}}
        self.objects[key] = stored
        self._tell(key[0], "MODIFIED" if before else "ADDED", stored)
        return stored

    def delete(self, kind: str, name: str, namespace: str = "ns") -> None:
        key = (PLURALS[kind], namespace, name)
        self._version += 1
        gone = self.objects.pop(key)
        metadata = {**gone["metadata"], "resourceVersion": str(self._version)}
        self._tell(key[0], "DELETED", {**gone, "metadata": metadata})

    def release(self, kind: str) -> None:
        """Let the watches bring what they held back."""
        plural = PLURALS[kind]
        self.holds.discard(plural)
        for type_, obj in self._held.pop(plural, []):
            self._tell(plural, type_, obj)

    def hold(self, kind: str) -> None:
        self.holds.add(PLURALS[kind])

    async def request(self, request: Request) -> bytes:
        self.requests.append(f"{request.method} {request.path.rpartition('/namespaces/')[2]}")
        parts = request.path.split("/")
        plural = find_plural(request.path)
        subresource = "status" if parts[-1] == "status" else ""
        name = "" if request.method == "POST" else parts[-2 if subresource else -1]
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""
        key = (plural, namespace, name)
        body: Any = msgspec.json.decode(request.body) if request.body else {}
        if request.method == "POST":
            return msgspec.json.encode(self.put({"kind": KINDS[plural], **body}))
        if "apply-patch" in request.content_type:
            before = self.objects.get(key, {})
            kept = {field: before[field] for field in ("status",) if field in before}
            return msgspec.json.encode(self.put({**body, **kept}))
        if request.method == "GET" and name == plural:
            return self._list(request, plural, namespace)
        if key not in self.objects:
            raise NotFoundError(Status(code=404, reason="NotFound", message=f"{name} not found"))
        if request.method == "DELETE":
            self.delete(KINDS[plural], name, namespace)
            return b"{}"
        if request.method == "PATCH":
            body.pop("metadata", None)
            return msgspec.json.encode(self.put(merge_patch(self.objects[key], body)))
        return msgspec.json.encode(self.objects[key])

    def _list(self, request: Request, plural: str, namespace: str) -> bytes:
        found = [
            obj
            for (kind, place, _), obj in self.objects.items()
            if (kind, place) == (plural, namespace)
            and _is_selected(request, obj)
            and _has_phase(request, obj)
        ]
        page = {"apiVersion": "v1", "metadata": {"resourceVersion": str(self._version)}, "items": found}
        return msgspec.json.encode(page)

    async def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        plural = find_plural(request.path)
        self.queries[plural] = dict(request.query)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._streams.setdefault(plural, []).append((request, queue))
        for (kind, _, _), obj in list(self.objects.items()):
            if kind == plural and _is_selected(request, obj):
                yield _encode("ADDED", obj)
        end = {"resourceVersion": str(self._version), "annotations": {"k8s.io/initial-events-end": "true"}}
        yield _encode("BOOKMARK", {"metadata": end})
        while True:
            yield await queue.get()

    def _tell(self, plural: str, type_: str, obj: Json) -> None:
        if plural in self.holds:
            self._held.setdefault(plural, []).append((type_, obj))
            return
        for request, queue in self._streams.get(plural, []):
            if _is_selected(request, obj):
                queue.put_nowait(_encode(type_, obj))


def _is_selected(request: Request, obj: Json) -> bool:
    """Say whether the object has the label that a watch asks for; no test needs more."""
    name, _, value = dict(request.query).get("labelSelector", "").partition("=")
    return not name or (obj["metadata"].get("labels") or {}).get(name) == value


def _has_phase(request: Request, obj: Json) -> bool:
    """Say whether the object is in the phase that a list asks for; no test asks for more fields."""
    name, _, value = dict(request.query).get("fieldSelector", "").partition("=")
    return name != "status.phase" or (obj.get("status") or {}).get("phase") == value


def _encode(type_: str, obj: Json) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(50):
        await asyncio.sleep(0)
