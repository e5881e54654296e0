"""Pods in trouble, as an API server shows them, and worlds that have such pods."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from control.builders import runtime, train_job
from control.world import NOW, World
from trainwright.api.core import Event, ObjectReference
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json, ObjectMeta

POD = "demo-node-0-0-00000"
WHO = f"pod {POD} (node, rank 0)"


def waiting(reason: str, message: str = "") -> Json:
    return {
        "phase": "Pending",
        "containerStatuses": [container({"waiting": {"reason": reason, "message": message}})],
    }


def ended(code: int, reason: str = "Error", message: str = "", **more: Any) -> Json:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": at(5)}}
    return {"phase": "Failed", "containerStatuses": [container(state)], **more}


def condition(type_: str, status: str, reason: str, message: str) -> Json:
    entry = {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(3),
    }
    return {"phase": "Pending", "conditions": [entry]}


def crash_loop(code: int, restarts: int) -> Json:
    last = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": at(4)}}
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": f"back-off {restarts}0s restarting"}}
    return {
        "phase": "Running",
        "containerStatuses": [{**container(state), "lastState": last, "restartCount": restarts}],
    }


def container(state: Json) -> Json:
    return {"name": "node", "state": state}


def at(seconds: int) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat()


def world_with_pods(statuses: Sequence[Json], events: Sequence[Event] = ()) -> World:
    """A world whose pods have these statuses, by rank; the Job controller has not looked yet."""
    world = World(train_job(num_nodes=len(statuses)), runtime())
    world.settle()
    world.wait(10)
    for pod, status in zip(sorted(world.pods(), key=_rank), statuses, strict=True):
        world.set_pod(pod, status)
    for number, event in enumerate(events):
        meta = ObjectMeta(name=f"e{number}", namespace="ns")
        world.put(build_object(msgspec.structs.replace(event, metadata=meta)))
    world.rest()
    return world


def _rank(pod: Json) -> int:
    return int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])


def event(kind: str, name: str, reason: str, message: str, seconds: int = 0, type_: str = "Warning") -> Event:
    moment = NOW + timedelta(seconds=seconds)
    return Event(
        metadata=ObjectMeta(),
        involved_object=ObjectReference(kind=kind, name=name),
        type=type_,
        reason=reason,
        message=message,
        first_timestamp=moment,
        last_timestamp=moment,
    )
