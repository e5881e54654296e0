"""A cluster in memory around `decide`: an API server, the JobSet and Job controllers, a kubelet's hands.

The JobSet and Job controllers are the real ones of the local engine; `decide` is the real one; in between
stands a store with merge patches, generations, owner references and JobSet's rule of what may change. Pods
do only what a test says, and every part moves only when a test moves it, so any order can be played.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from trainwright.api.batch import Job
from trainwright.api.constants import REPLICATED_JOB_NAME
from trainwright.api.core import Event, Pod
from trainwright.api.encoding import build_json, build_object
from trainwright.api.jobset import JobSet
from trainwright.api.kueue import Workload
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.pod_group import PodGroup
from trainwright.api.runtime import ClusterTrainingRuntime, Runtime, TrainingRuntime
from trainwright.api.trainjob import TrainJob, TrainJobStatus
from trainwright.cluster.local.merge_patch import merge_patch
from trainwright.control.actions import (
    Action,
    Apply,
    Delete,
    Emit,
    EnsureSecret,
    Patch,
    PatchStatus,
    RequeueAfter,
)
from trainwright.control.decide import decide
from trainwright.control.lifecycle import Render
from trainwright.control.seen import Refusal, Seen
from trainwright.control.snapshot import find_snapshot
from trainwright.render import build_template_hash
from trainwright.render import render as render_train_job
from trainwright.runner.controllers.actions import Create, MarkDeleted, Remove, WriteStatus
from trainwright.runner.controllers.job import decide_job
from trainwright.runner.controllers.jobset import decide_job_set

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
JOB = "demo"

Refuse = Callable[[Action], tuple[str, str] | None]


class Refused(Exception):
    """The API server does not take a write."""

    def __init__(self, key: ObjectKey, reason: str, message: str) -> None:
        super().__init__(message)
        self.key, self.reason, self.message = key, reason, message


class World:
    """One TrainJob and all around it."""

    def __init__(self, job: TrainJob, runtime: Runtime | None) -> None:
        self.name = job.metadata.name
        self.now = NOW
        self.objects: dict[tuple[str, str], Json] = {}
        self.writes: list[str] = []  # what decide asked for and got, events apart
        self.events: list[Emit] = []
        self.requeue: float | None = None
        self.refuse: Refuse = lambda _: None
        self.refusal: Refusal | None = None
        self.forgets_refusals = False
        self.render: Render = render_train_job
        self._uids = itertools.count(1)
        self._suffixes = (f"{n:05d}" for n in itertools.count())
        self.put(build_object(job))
        if runtime is not None:
            self.put(build_object(runtime))

    # --- what is there

    @property
    def job(self) -> TrainJob:
        return msgspec.convert(self.objects["TrainJob", self.name], TrainJob)

    @property
    def status(self) -> TrainJobStatus:
        return self.job.status or TrainJobStatus()

    @property
    def job_set(self) -> Json | None:
        return self.objects.get(("JobSet", self.name))

    def of_kind(self, kind: str) -> list[Json]:
        return [obj for (k, _), obj in self.objects.items() if k == kind]

    def pods(self, role: str | None = None) -> list[Json]:
        return [
            pod
            for pod in self.of_kind("Pod")
            if role is None or pod["metadata"]["labels"][REPLICATED_JOB_NAME] == role
        ]

    def conditions(self) -> dict[str, tuple[str, str]]:
        return {c.type: (c.status, c.reason) for c in self.status.conditions or ()}

    def counters(self) -> dict[str, tuple[int, int, int, int, int]]:
        """Ready, succeeded, failed, active, suspended."""
        return {
            s.name: (s.ready, s.succeeded, s.failed, s.active, s.suspended)
            for s in self.status.jobs_status or ()
        }

    def seen(self) -> Seen:
        job = self.job
        runtime = next(
            (
                msgspec.convert(obj, TrainingRuntime if kind == "TrainingRuntime" else ClusterTrainingRuntime)
                for (kind, name), obj in self.objects.items()
                if kind in ("TrainingRuntime", "ClusterTrainingRuntime") and name == job.spec.runtime_ref.name
            ),
            None,
        )
        found = find_snapshot(job, runtime, lambda name: self.objects.get(("ConfigMap", name)))
        return Seen(
            train_job=job,
            runtime=runtime,
            snapshot=found.runtime,
            snapshot_problem=found.problem,
            job_set=msgspec.convert(self.job_set, JobSet) if self.job_set else None,
            jobs=tuple(msgspec.convert(obj, Job) for obj in self.of_kind("Job")),
            pods=tuple(msgspec.convert(obj, Pod) for obj in self.of_kind("Pod")),
            events=tuple(msgspec.convert(obj, Event) for obj in self.of_kind("Event")),
            workload=next((msgspec.convert(obj, Workload) for obj in self.of_kind("Workload")), None),
            pod_group=next((msgspec.convert(obj, PodGroup) for obj in self.of_kind("PodGroup")), None),
            refusal=self.refusal,
        )

    # --- the shell around decide

    def reconcile(self) -> list[Action]:
        """Decide once and perform in order; a refusal stops it, and decide is asked once more, knowing."""
        if ("TrainJob", self.name) not in self.objects:
            return []
        actions = decide(self.seen(), self.now, self.render)
        try:
            self._perform(actions)
            self.refusal = None
        except Refused as error:
            self.refusal = Refusal(key=error.key, reason=error.reason, message=error.message, since=self.now)
            actions = decide(self.seen(), self.now, self.render)
            try:
                self._perform(actions)
            except Refused:
                raise AssertionError("a refused write was repeated in the same pass") from error
            if self.forgets_refusals:
                self.refusal = None
        return actions

    def rest(self) -> None:
        """Decide until nothing is written."""
        for _ in range(20):
            before = len(self.writes)
            self.reconcile()
            if len(self.writes) == before:
                return
        raise AssertionError(f"decide does not come to rest: {self.writes[-6:]}")

    def settle(self, *, ends_pods: bool = True) -> None:
        """Let all parts move until nothing changes; `ends_pods` also lets pods in their grace period go."""
        for _ in range(60):
            before = len(self.writes)
            self.reconcile()
            wrote = self.run_controllers()
            if ends_pods:
                wrote = self.end_pods() or wrote
            if not wrote and before == len(self.writes):
                return
        raise AssertionError(f"the world does not come to rest: {self.writes[-6:]}")

    def _perform(self, actions: list[Action]) -> None:
        self.requeue = None
        for action in actions:
            match action:
                case RequeueAfter():
                    assert action.seconds > 0
                    self.requeue = action.seconds
                case Emit():
                    self.events.append(action)
                case _:
                    if refused := self.refuse(action):
                        raise Refused(_key_of(action), *refused)
                    self._write(action)

    def _write(self, action: Action) -> None:
        match action:
            case Apply():
                self.apply(action.object)
                self.writes.append(f"apply {action.object['kind']}")
            case EnsureSecret():
                name = action.object["metadata"]["name"]
                if ("Secret", name) not in self.objects:
                    self.put(action.object)
                    self.writes.append("create Secret")
            case Patch():
                assert (action.key.kind, action.key.name) in self.objects
                self.merge(action.key.kind, action.key.name, action.merge)
                self.writes.append(f"patch {action.key.kind}")
            case Delete():
                kind, _, _group = action.key.kind.partition(".")
                self.delete(kind, action.key.name)
                self.writes.append(f"delete {kind}")
            case PatchStatus():
                kept = self.objects["TrainJob", self.name].get("status", {}).get("trainerStatus")
                status = build_json(action.status)
                status.pop("trainerStatus", None)
                if kept and action.status.trainer_status is not None:
                    status["trainerStatus"] = kept
                self.objects["TrainJob", self.name] = {
                    **self.objects["TrainJob", self.name],
                    "status": status,
                }
                self.writes.append("patch status")

    # --- the API server

    def put(self, obj: Json) -> Json:
        """Store an object as new."""
        metadata = {
            "uid": f"uid-{next(self._uids)}",
            "creationTimestamp": self.now.isoformat(),
            "generation": 1,
            "namespace": "ns",
            **obj["metadata"],
        }
        stored = {**obj, "metadata": metadata}
        self.objects[obj["kind"], obj["metadata"]["name"]] = stored
        return stored

    def apply(self, obj: Json) -> None:
        kind, name = obj["kind"], obj["metadata"]["name"]
        old = self.objects.get((kind, name))
        if old is None:
            self.put(obj)
            return
        if kind == "JobSet":
            assert old["spec"].get("suspend"), "only a suspended JobSet may be applied"
            if build_template_hash(old["spec"]) != build_template_hash(obj["spec"]):
                raise Refused(ObjectKey(kind, "ns", name), "Invalid", f"JobSet {name!r}: field is immutable")
        kept = {
            part: {**(old["metadata"].get(part) or {}), **(obj["metadata"].get(part) or {})}
            for part in ("labels", "annotations")
        }
        metadata = {**old["metadata"], **obj["metadata"], **kept}
        self._replace(kind, name, {**old, **obj, "metadata": metadata})

    def merge(self, kind: str, name: str, merge: Json) -> None:
        self._replace(kind, name, merge_patch(self.objects[kind, name], merge))

    def patch_job(self, **spec: Any) -> None:
        """Change the spec of the TrainJob, as a user does."""
        self.merge("TrainJob", self.name, {"spec": spec})

    def annotate_job(self, **annotations: str) -> None:
        self.merge("TrainJob", self.name, {"metadata": {"annotations": annotations}})

    def _replace(self, kind: str, name: str, new: Json) -> None:
        old = self.objects[kind, name]
        generation = old["metadata"].get("generation", 1) + (old.get("spec") != new.get("spec"))
        self.objects[kind, name] = {**new, "metadata": {**new["metadata"], "generation": generation}}

    def delete(self, kind: str, name: str) -> None:
        """Delete in the background: owned Jobs go with it, live pods get their grace period."""
        gone = self.objects.pop((kind, name), None)
        if gone is None:
            return
        uid = gone["metadata"]["uid"]
        for (other_kind, other), obj in list(self.objects.items()):
            if not any(ref["uid"] == uid for ref in obj["metadata"].get("ownerReferences") or ()):
                continue
            if other_kind == "Pod" and (obj.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                self.merge("Pod", other, {"metadata": {"deletionTimestamp": self.now.isoformat()}})
            else:
                self.delete(other_kind, other)

    # --- JobSet and Job controllers, kubelet

    def run_controllers(self) -> bool:
        """Let JobSet and Job controllers come to rest; say whether anything changed."""
        moved = False
        for _ in range(30):
            wrote = False
            if self.job_set is not None:
                wrote = self.carry_out(decide_job_set(self.job_set, self.of_kind("Job"), self.now))
            for job in self.of_kind("Job"):
                actions = decide_job(job, self.of_kind("Pod"), self.now, lambda: next(self._suffixes))
                wrote = self.carry_out(actions) or wrote
            if not wrote:
                return moved
            moved = True
        raise AssertionError("the controllers do not come to rest")

    def carry_out(self, actions: list[Any]) -> bool:
        """Do what a controller asks for; say whether anything changed."""
        wrote = False
        for action in actions:
            match action:
                case Create():
                    key = action.object["kind"], action.object["metadata"]["name"]
                    if key not in self.objects:
                        self.put(action.object)
                        wrote = True
                case Patch():
                    self.merge(action.key.kind, action.key.name, action.merge)
                    wrote = True
                case MarkDeleted():
                    mark = {"metadata": {"deletionTimestamp": self.now.isoformat()}}
                    self.merge(action.key.kind, action.key.name, mark)
                    wrote = True
                case Remove():
                    self.delete(action.key.kind, action.key.name)
                    wrote = True
                case WriteStatus():
                    known = self.objects[action.key.kind, action.key.name]
                    self.objects[action.key.kind, action.key.name] = {**known, "status": action.status}
                    wrote = True
        return wrote

    def end_pods(self) -> bool:
        """Let the pods in their grace period end."""
        ending = [pod for pod in self.pods() if pod["metadata"].get("deletionTimestamp")]
        for pod in ending:
            self.objects.pop(("Pod", pod["metadata"]["name"]))
        return bool(ending)

    def run_pods(self, role: str | None = None) -> None:
        """Pods that have not ended run and are ready."""
        self.set_pods({"phase": "Running", "containerStatuses": [_status(running={}, ready=True)]}, role)

    def finish_pods(self, role: str | None = None) -> None:
        self.set_pods({"phase": "Succeeded", "containerStatuses": [_status(terminated=self.ended(0))]}, role)

    def fail_pod(self, rank: int = 0, code: int = 1, role: str = "node", **terminated: Any) -> None:
        for pod in self.pods(role):
            if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == str(rank):
                state = _status(terminated={**self.ended(code), **terminated})
                self.set_pod(pod, {"phase": "Failed", "containerStatuses": [state]})

    def set_pods(self, status: Json, role: str | None = None) -> None:
        for pod in self.pods(role):
            if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                self.set_pod(pod, status)

    def set_pod(self, pod: Json, status: Json) -> None:
        name = pod["metadata"]["name"]
        self.objects["Pod", name] = {**self.objects["Pod", name], "status": status}

    def ended(self, code: int) -> Json:
        return {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "finishedAt": self.now.isoformat(),
        }

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def _status(*, ready: bool = False, **state: Json) -> Json:
    return {"name": "node", "ready": ready, "state": state}


def _key_of(action: Action) -> ObjectKey:
    if isinstance(action, Apply | EnsureSecret):
        metadata = action.object["metadata"]
        return ObjectKey(action.object["kind"], metadata.get("namespace", ""), metadata["name"])
    assert isinstance(action, Patch | Delete | PatchStatus)
    return action.key


def refuse_kind(kind: str, reason: str = "Forbidden", message: str = "exceeded quota: q") -> Refuse:
    """Refuse every apply of this kind."""

    def refuse(action: Action) -> tuple[str, str] | None:
        is_it = isinstance(action, Apply) and action.object["kind"] == kind
        return (reason, message) if is_it else None

    return refuse
