"""A world in memory that carries out what the JobSet and Job controllers ask for, step by step.

It is the store without SQLite: merge patches, owner references, uids. Pods run in it only because a test says
so (`set_pod`), which makes every order of events reachable.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from trainwright.cluster.local.merge_patch import merge_patch
from trainwright.runner.controllers.actions import (
    Create,
    Emit,
    MarkDeleted,
    Patch,
    Remove,
    RequeueAfter,
    WriteStatus,
)
from trainwright.runner.controllers.job import decide_job
from trainwright.runner.controllers.jobset import decide_job_set

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)

Json = dict[str, Any]


class World:
    """Objects by (kind, name), the actions that were carried out, and a clock that a test turns."""

    def __init__(self, job_set: Json) -> None:
        self.now = NOW
        self.objects: dict[tuple[str, str], Json] = {}
        self.events: list[Emit] = []
        self.writes = 0
        self._uids = itertools.count(1)
        self._suffixes = (f"{n:05d}" for n in itertools.count())
        self.create(job_set)

    @property
    def job_set(self) -> Json:
        return next(o for (kind, _), o in self.objects.items() if kind == "JobSet")

    def of_kind(self, kind: str) -> list[Json]:
        return [o for (k, _), o in self.objects.items() if k == kind]

    def jobs(self) -> dict[str, Json]:
        return {o["metadata"]["name"]: o for o in self.of_kind("Job")}

    def pods(self, job: str | None = None) -> list[Json]:
        pods = self.of_kind("Pod")
        return [p for p in pods if job is None or p["metadata"]["labels"]["job-name"] == job]

    def conditions(self) -> dict[str, tuple[str, str, str]]:
        status = self.job_set.get("status") or {}
        return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status.get("conditions") or ()}

    def counters(self) -> dict[str, tuple[int, int, int, int, int]]:
        keys = ("ready", "succeeded", "failed", "active", "suspended")
        listed = (self.job_set.get("status") or {}).get("replicatedJobsStatus") or ()
        return {s["name"]: tuple(s[key] for key in keys) for s in listed}

    def create(self, obj: Json) -> None:
        key = obj["kind"], obj["metadata"]["name"]
        if key not in self.objects:
            obj = {k: v for k, v in obj.items() if k != "status"}
            metadata = {"uid": f"uid-{next(self._uids)}", **obj["metadata"]}
            self.objects[key] = {**obj, "metadata": metadata}
            self.writes += 1

    def remove(self, key: tuple[str, str]) -> None:
        gone = self.objects.pop(key, None)
        if gone is None:
            return
        uid = gone["metadata"]["uid"]
        for other, obj in list(self.objects.items()):
            if any(ref["uid"] == uid for ref in obj["metadata"].get("ownerReferences") or ()):
                self.remove(other)

    def patch(self, kind: str, name: str, merge: Json) -> None:
        self.objects[kind, name] = merge_patch(self.objects[kind, name], merge)

    def perform(self, actions: list[Any]) -> bool:
        """Carry out the actions; say whether anything but the clock came of them."""
        before = self.writes
        for action in actions:
            match action:
                case Create():
                    self.create(action.object)
                case Patch():
                    self.patch(action.key.kind, action.key.name, action.merge)
                    self.writes += 1
                case MarkDeleted():
                    mark = {"deletionTimestamp": self.now.isoformat()}
                    self.patch(action.key.kind, action.key.name, {"metadata": mark})
                    self.writes += 1
                case Remove():
                    self.remove((action.key.kind, action.key.name))
                    self.writes += 1
                case WriteStatus():
                    known = self.objects[action.key.kind, action.key.name]
                    self.objects[action.key.kind, action.key.name] = {**known, "status": action.status}
                    self.writes += 1
                case Emit():
                    self.events.append(action)
                case RequeueAfter():
                    assert action.seconds > 0
        return self.writes > before

    def step(self) -> bool:
        """Let each controller look once; say whether anything was written."""
        wrote = False
        if self.of_kind("JobSet"):
            claims = [c["metadata"]["name"] for c in self.of_kind("PersistentVolumeClaim")]
            wrote = self.perform(decide_job_set(self.job_set, self.of_kind("Job"), self.now, claims))
        for job in self.of_kind("Job"):
            actions = decide_job(job, self.of_kind("Pod"), self.now, lambda: next(self._suffixes))
            wrote = self.perform(actions) or wrote
        return wrote

    def settle(self, *, ends_pods: bool = True) -> None:
        """Step until nothing is written. `ends_pods` plays the kubelet: what is to be deleted goes."""
        for _ in range(50):
            wrote = self.step()
            if ends_pods:
                for pod in list(self._deleted_pods()):
                    self.remove(("Pod", pod["metadata"]["name"]))
                    wrote = True
            if not wrote:
                return
        raise AssertionError("the controllers do not come to rest")

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def set_pod(self, pod: Json, phase: str, exit_code: int | None = None, **status: Any) -> None:
        """Say how a pod does, as a kubelet would."""
        if exit_code is None and phase in {"Succeeded", "Failed"}:
            exit_code = 0 if phase == "Succeeded" else 1
        state: Json = {"running": {}}
        if exit_code is not None:
            state = {"terminated": {"exitCode": exit_code, "finishedAt": self.now.isoformat()}}
        container = {"name": "node", "ready": phase == "Running", "state": state, "lastState": {}}
        whole = {"phase": phase, "containerStatuses": [container], **status}
        name = pod["metadata"]["name"]
        self.objects["Pod", name] = {**self.objects["Pod", name], "status": whole}

    def set_pods(self, phase: str, job: str | None = None, exit_code: int | None = None) -> None:
        for pod in self.pods(job):
            if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
                self.set_pod(pod, phase, exit_code)

    def _deleted_pods(self) -> Iterator[Json]:
        yield from (p for p in self.of_kind("Pod") if p["metadata"].get("deletionTimestamp"))


def replicated_job(name: str = "node", replicas: int = 1, pods: int = 1, **fields: Any) -> Json:
    """Return a replicated job of one container. `job`, `pod` and `metadata` go into its template."""
    job = fields.pop("job", {})
    pod = fields.pop("pod", {})
    metadata = fields.pop("metadata", {})
    return {
        "name": name,
        "replicas": replicas,
        "template": {
            "metadata": metadata,
            "spec": {
                "backoffLimit": 0,
                "completionMode": "Indexed",
                "parallelism": pods,
                "completions": pods,
                **job,
                "template": {
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "i"}], **pod}
                },
            },
        },
        **fields,
    }


def job_set(*replicated_jobs: Json, name: str = "demo", **spec: Any) -> Json:
    """Return a JobSet as the API server stores it."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "ns", "uid": "js-uid"},
        "spec": {"replicatedJobs": list(replicated_jobs) or [replicated_job()], **spec},
    }
