"""Why a job waits in its queue, for every state that Kueue leaves a Workload in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from control.builders import QUEUE_LABELS, runtime, train_job
from control.troubled_pods import at
from control.world import JOB, NOW, World
from trainwright.api.meta import Json
from trainwright.api.trainjob import Cause
from trainwright.control.hints import HINTS

NO_ROOM = (
    "couldn't assign flavors to pod set node: insufficient quota for cpu in flavor blue, previously "
    "considered podsets requests (0) + current podset request (1500m) > maximum capacity (1)"
)


def condition(type_: str, status: str, reason: str, message: str, seconds: int = 3) -> Json:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(seconds),
    }


def waiting(message: str = NO_ROOM, reason: str = "Pending") -> Json:
    return condition("QuotaReserved", "False", reason, message)


def evicted(reason: str, message: str) -> Json:
    return condition("Evicted", "True", reason, message, 5)


def workload(*conditions: Json, spec: Json | None = None, owner: str = "uid-job", **status: Any) -> Json:
    """The Workload as Kueue v0.17 writes it; fields that nobody here reads are among it."""
    reference = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": JOB,
        "uid": owner,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "trainjob-demo-1a2b3",
            "namespace": "ns",
            "labels": {"kueue.x-k8s.io/job-uid": owner},
            "ownerReferences": [reference],
        },
        "spec": {"queueName": "team-a", "active": True, "podSets": [{"name": "node", "count": 1}]}
        | (spec or {}),
        "status": {"conditions": list(conditions), **status},
    }


def queued_world(*workloads: Json) -> World:
    """A world with a job that is suspended for its queue, a while after it was made."""
    world = World(train_job(suspend=True, labels=QUEUE_LABELS), runtime())
    world.settle()
    world.wait(10)
    for each in workloads:
        world.put(each)
    world.rest()
    return world


def cause(reason: str, message: str, seconds: int, *, kind: str = "Workload") -> Cause:
    return Cause(
        layer="Queue",
        kind=kind,
        name="trainjob-demo-1a2b3" if kind == "Workload" else "team-a",
        reason=reason,
        message=message,
        hint=HINTS[reason].replace("NAME", JOB),
        since=NOW + timedelta(seconds=seconds),
    )


GENERIC = cause(
    "WaitingForQueue", "the job waits to be admitted through LocalQueue 'team-a'", 0, kind="LocalQueue"
)
HERE = "LocalQueue 'team-a': "
PREEMPTED = (
    "Preempted to accommodate a workload (UID: 7f2, JobUID: 8a1) due to prioritization in the ClusterQueue"
)

# since 0 where the generic cause came first with the same reason: it is the same wait
WAITS: dict[str, tuple[Json, Cause]] = {
    "nobody has looked at it": (workload(), GENERIC),
    "no room": (workload(waiting()), cause("WaitingForQueue", HERE + NO_ROOM, 0)),
    "the queue does not exist": (
        workload(waiting("LocalQueue team-a doesn't exist", "Inadmissible")),
        cause("QueueNotFound", HERE + "LocalQueue team-a doesn't exist", 3),
    ),
    "its cluster queue does not exist": (
        workload(waiting("ClusterQueue gpus doesn't exist", "Inadmissible")),
        cause("QueueNotFound", HERE + "ClusterQueue gpus doesn't exist", 3),
    ),
    "its cluster queue is inactive": (
        workload(waiting("ClusterQueue gpus is inactive", "Inadmissible")),
        cause("QueueInactive", HERE + "ClusterQueue gpus is inactive", 3),
    ),
    "the queue is stopped": (
        workload(waiting("LocalQueue team-a is stopped", "Inadmissible")),
        cause("QueueInactive", HERE + "LocalQueue team-a is stopped", 3),
    ),
    "the queue cannot take it": (
        workload(waiting("resource claims are not supported", "Inadmissible")),
        cause("Inadmissible", HERE + "resource claims are not supported", 3),
    ),
    "it was taken out of the queue before it ran": (
        workload(waiting(), spec={"active": False}),
        cause("Deactivated", HERE + "spec.active of the Workload is false", 10),
    ),
    "an admission check is pending": (
        workload(
            condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gpus"),
            admissionChecks=[
                {"name": "provision", "state": "Pending", "message": "waiting for 2 machines"},
                {"name": "budget", "state": "Ready", "message": ""},
            ],
        ),
        cause("WaitingForAdmissionCheck", HERE + "admission check provision: waiting for 2 machines", 10),
    ),
    "preempted": (
        workload(evicted("Preempted", PREEMPTED), waiting(PREEMPTED, "Preempted")),
        cause("Preempted", HERE + PREEMPTED, 5),
    ),
    "preempted, and no room since": (
        workload(evicted("Preempted", PREEMPTED), waiting()),
        cause("Preempted", f"{HERE}{PREEMPTED}; since then: {NO_ROOM}", 5),
    ),
    "its pods were not ready in time": (
        workload(
            evicted("PodsReadyTimeout", "Exceeded the PodsReady timeout ns/trainjob-demo-1a2b3"),
            requeueState={"count": 1, "requeueAt": "2026-01-01T12:05:00Z"},
        ),
        cause(
            "PodsReadyTimeout",
            HERE + "Exceeded the PodsReady timeout ns/trainjob-demo-1a2b3; it is queued again at "
            "2026-01-01T12:05:00Z",
            5,
        ),
    ),
    "given up after too many times": (
        workload(
            evicted("DeactivatedDueToRequeuingLimitExceeded", "The workload is deactivated due to exceeding"),
            spec={"active": False},
        ),
        cause("Deactivated", HERE + "The workload is deactivated due to exceeding", 5),
    ),
    "deactivated by hand": (
        workload(evicted("Deactivated", "The workload is deactivated"), spec={"active": False}),
        cause("Deactivated", HERE + "The workload is deactivated", 5),
    ),
    "its queue was stopped while it ran": (
        workload(evicted("ClusterQueueStopped", "The ClusterQueue is stopped")),
        cause("QueueInactive", HERE + "The ClusterQueue is stopped", 5),
    ),
    "an admission check took its consent back": (
        workload(evicted("AdmissionCheck", "At least one admission check is false")),
        cause("AdmissionCheck", HERE + "At least one admission check is false", 5),
    ),
    "a node of it failed": (
        workload(evicted("NodeFailures", "Workload was evicted as there was no replacement for node gpu-7")),
        cause("NodeFailures", HERE + "Workload was evicted as there was no replacement for node gpu-7", 5),
    ),
    "the workload is another job's": (workload(waiting(), owner="uid-other"), GENERIC),
}


@pytest.mark.parametrize(("seen", "expected"), WAITS.values(), ids=list(WAITS))
def test_a_job_waits_because(seen: Json, expected: Cause) -> None:
    assert queued_world(seen).status.cause == expected


def test_without_kueue_the_queue_is_named() -> None:
    assert queued_world().status.cause == GENERIC


def test_a_workload_that_is_going_is_not_listened_to() -> None:
    going = workload(waiting())
    going["metadata"]["deletionTimestamp"] = at(9)
    assert queued_world(going).status.cause == GENERIC


def test_a_job_without_the_label_that_kueue_holds_is_explained_all_the_same() -> None:
    world = World(train_job(suspend=True), runtime())
    world.put(workload(waiting()))
    world.wait(3)
    world.rest()
    assert world.status.cause == cause("WaitingForQueue", HERE + NO_ROOM, 3)


def test_how_much_room_is_missing_is_not_written_again_and_again() -> None:
    world = queued_world(workload(waiting("insufficient unused quota for cpu in flavor blue, 2 more needed")))
    told = world.status.cause
    world.writes.clear()
    for missing in (1, 3, 17):
        world.put(
            workload(waiting(f"insufficient unused quota for cpu in flavor blue, {missing} more needed"))
        )
        world.rest()
    assert world.status.cause == told
    assert world.writes == []
    world.put(workload(waiting("insufficient unused quota for memory in flavor blue, 1Gi more needed")))
    world.rest()
    assert world.writes == ["patch status"]


ADMITTED = (
    condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue gpus", 11),
    condition("Admitted", "True", "Admitted", "The workload is admitted", 11),
    condition("Evicted", "False", "QuotaReserved", "Previously: Preempted", 11),
)


def test_between_admission_and_start_nothing_is_written() -> None:
    world = queued_world(workload(waiting()))
    told = world.status.cause
    world.writes.clear()
    world.put(workload(*ADMITTED[:1]))
    world.rest()
    world.put(workload(*ADMITTED))
    world.rest()
    assert world.status.cause == told
    assert world.writes == []


def test_an_admitted_job_that_is_not_started_is_told_after_a_minute() -> None:
    """Kueue admits, and never starts, a job whose creation its webhook missed."""
    world = queued_world(workload(*ADMITTED))
    assert world.requeue == 61
    world.wait(61)
    world.rest()
    expected = cause("NotStarted", HERE + "Kueue has admitted the job, and has not started it", 11)
    assert world.status.cause == expected
    assert world.requeue is None


def test_a_job_that_was_started_waits_for_nothing() -> None:
    world = queued_world(workload(waiting()))
    world.put(workload(*ADMITTED))
    world.merge("TrainJob", JOB, {"spec": {"suspend": False}})
    world.rest()
    assert world.status.cause is None


def test_a_preempted_job_says_so_while_its_pods_still_end() -> None:
    """1. The job runs. 2. Kueue evicts it and suspends it. 3. Its pods are in their grace period."""
    world = World(train_job(labels=QUEUE_LABELS), runtime())
    world.settle()
    world.run_pods()
    world.put(workload(evicted("Preempted", PREEMPTED)))
    world.merge("TrainJob", JOB, {"spec": {"suspend": True}})
    world.rest()
    assert world.status.cause == cause("Preempted", HERE + PREEMPTED, 5)
    assert world.counters()["node"][3] == 1


def test_a_job_whose_runtime_was_deleted_says_so_once_it_has_quota_until_the_runtime_is_back() -> None:
    """1. It waits for room. 2. The runtime goes, which changes nothing yet. 3. There is room: Kueue cannot
    start it. 4. The runtime is back, and the status changes: that makes Kueue look again."""
    world = queued_world(workload(waiting()))
    before = world.status.cause
    gone = world.objects.pop(("TrainingRuntime", "rt"))
    world.rest()
    assert world.status.cause == before
    reserved = [
        condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue a", 11),
        condition("Admitted", "True", "Admitted", "The workload is admitted", 11),
    ]
    world.put(workload(*reserved))
    world.rest()
    told = world.status.cause
    assert told is not None
    assert (told.layer, told.reason) == ("Queue", "RuntimeDeleted")
    assert told.message == (
        "LocalQueue 'team-a': Kueue has quota for the job and cannot start it: TrainingRuntime 'rt', from "
        "which it works out the pods, was deleted"
    )
    world.put(gone)
    world.writes.clear()
    world.rest()
    assert world.writes == ["patch status"]
    assert world.status.cause is not None
    assert world.status.cause.reason == "WaitingForQueue"
