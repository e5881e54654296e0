"""A job that is suspended and resumed, and a JobSet that is made anew: what `decide` does about them."""

from __future__ import annotations

import msgspec
import pytest

from control.builders import runtime, train_job
from control.decisions import BY_USER, JOB_SET_KEY, SUSPENDED, counters, named, running
from control.world import JOB, NOW, World
from trainwright.api.meta import ObjectKey
from trainwright.api.trainjob import TrainJobStatus
from trainwright.control import decide
from trainwright.control.actions import Apply, Delete, Emit, Patch, PatchStatus
from trainwright.control.directives import build_marked
from trainwright.render import render_job_set


def test_b016_suspending_a_running_job_sends_one_field_and_nothing_else() -> None:
    world = running()
    world.patch_job(suspend=True)
    patch, status, event = decide(world.seen(), NOW)
    assert patch == Patch(key=JOB_SET_KEY, merge={"spec": {"suspend": True}})
    assert isinstance(status, PatchStatus)
    assert status.status == TrainJobStatus(
        conditions=[SUSPENDED],
        jobs_status=[counters(ready=1, active=1)],
        phase="Suspended",
        restarts=0,
        cause=BY_USER,
        runtime_snapshot=named(runtime()),
    )
    assert event == Emit(
        about=world.job.metadata,
        kind="TrainJob",
        type="Normal",
        reason="Suspended",
        message="TrainJob is suspended",
    )


def test_once_the_pods_are_gone_unfinished_jobs_are_deleted_and_that_is_marked() -> None:
    world = running()
    world.patch_job(suspend=True)
    world.reconcile()
    world.run_controllers()
    world.end_pods()
    world.run_controllers()
    job_set = world.job_set
    assert job_set is not None
    [child] = world.of_kind("Job")
    delete, mark, status = decide(world.seen(), world.now)
    assert delete == Delete(key=ObjectKey("Job", "ns", "demo-node-0"), uid=child["metadata"]["uid"])
    generation = str(job_set["metadata"]["generation"])
    assert mark == Patch(
        key=JOB_SET_KEY,
        merge={"metadata": {"annotations": {"trainer.kubeflow.org/jobs-renewed-at-generation": generation}}},
    )
    assert isinstance(status, PatchStatus)
    assert status.status.jobs_status == [counters(suspended=1)]


def test_jobs_are_not_deleted_before_the_job_set_controller_says_that_it_is_suspended() -> None:
    """It might not have seen `suspend` yet and make a deleted Job again, running."""
    world = running()
    world.patch_job(suspend=True)
    world.reconcile()
    world.objects = {key: obj for key, obj in world.objects.items() if key[0] != "Pod"}
    assert decide(world.seen(), world.now) == []


def test_resuming_writes_the_status_first_and_applies_with_suspend_false() -> None:
    world = running()
    world.patch_job(suspend=True)
    world.settle()
    world.wait(100)
    world.patch_job(suspend=None)
    status, event, apply = decide(world.seen(), world.now)
    assert isinstance(status, PatchStatus)
    assert status.status == TrainJobStatus(
        jobs_status=[counters(suspended=1)],
        phase="Created",
        start_time=world.now,
        restarts=0,
        runtime_snapshot=named(runtime()),
    )
    assert isinstance(event, Emit)
    assert event.reason == "Resumed"
    rendered = render_job_set(world.job, runtime())
    assert apply == Apply(object=build_marked({**rendered, "spec": {**rendered["spec"], "suspend": False}}))


def test_resuming_with_another_node_count_deletes_the_job_set_to_make_it_anew() -> None:
    world = running()
    world.patch_job(suspend=True)
    world.settle()
    world.patch_job(suspend=False, trainer={"numNodes": 5})
    job_set = world.job_set
    assert job_set is not None
    actions = decide(world.seen(), world.now)
    assert actions[-1] == Delete(key=JOB_SET_KEY, uid=job_set["metadata"]["uid"])
    assert not [action for action in actions if isinstance(action, Apply)]


def test_the_job_set_is_made_anew_only_when_its_pods_are_gone() -> None:
    world = running()
    world.delete("JobSet", JOB)  # the pods are in their grace period
    actions = decide(world.seen(), world.now)
    assert not [action for action in actions if isinstance(action, Apply)]
    [patch] = [action for action in actions if isinstance(action, PatchStatus)]
    assert patch.status.jobs_status == [counters(active=1)]
    assert patch.status.cause is not None
    assert patch.status.cause.reason == "WaitingForCleanup"
    world.end_pods()
    assert decide(world.seen(), world.now)[-1] == Apply(object=render_job_set(world.job, runtime()))


def test_what_is_waited_for_does_not_depend_on_the_order_in_which_it_is_seen() -> None:
    world = running()
    world.delete("JobSet", JOB)
    seen = world.seen()
    backwards = msgspec.structs.replace(seen, pods=tuple(reversed(seen.pods)))
    assert decide(seen, world.now) == decide(backwards, world.now)


def test_a_job_set_that_is_being_deleted_is_waited_for() -> None:
    world = running()
    world.merge("JobSet", JOB, {"metadata": {"deletionTimestamp": NOW.isoformat()}})
    [patch] = [a for a in decide(world.seen(), world.now) if not isinstance(a, Emit)]
    assert isinstance(patch, PatchStatus)
    assert patch.status.cause is not None
    assert patch.status.cause.message == f"JobSet {JOB!r} is being deleted"


CLAIMS = [
    {
        "templates": [
            {
                "metadata": {"name": "work"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }
        ]
    }
]


def with_claims(when_deleted: str | None) -> World:
    policy = {**CLAIMS[0], **({"retentionPolicy": {"whenDeleted": when_deleted}} if when_deleted else {})}
    world = World(train_job(num_nodes=2), runtime(volumeClaimPolicies=[policy]))
    world.settle()
    world.run_pods()
    world.patch_job(suspend=True)
    world.settle()
    return world


@pytest.mark.parametrize("when_deleted", [None, "Delete"])
def test_a_job_set_is_not_made_anew_where_that_would_delete_its_claims(when_deleted: str | None) -> None:
    world = with_claims(when_deleted)
    world.patch_job(suspend=False, trainer={"numNodes": 5})
    patch, *rest = decide(world.seen(), world.now)
    assert isinstance(patch, PatchStatus)
    assert patch.status.cause is not None
    assert patch.status.cause.reason == "ClaimsWouldBeDeleted"
    assert [c.type for c in patch.status.conditions or ()] == ["ResourcesCreated"]
    assert not [action for action in rest if isinstance(action, Apply | Delete)]


def test_a_job_set_whose_claims_are_retained_is_made_anew() -> None:
    world = with_claims("Retain")
    world.patch_job(suspend=False, trainer={"numNodes": 5})
    assert isinstance(decide(world.seen(), world.now)[-1], Delete)


def test_r01_a_job_with_claims_is_resumed_with_its_claims_as_they_are_stored() -> None:
    world = with_claims(None)
    stored = [{**CLAIMS[0], "retentionPolicy": {"whenDeleted": "Delete"}, "filledIn": True}]
    world.merge("JobSet", JOB, {"spec": {"volumeClaimPolicies": stored}})
    world.settle()  # the edit is a new generation: Jobs are renewed once more
    world.patch_job(suspend=False)
    apply = decide(world.seen(), world.now)[-1]
    assert isinstance(apply, Apply)
    assert apply.object["spec"]["volumeClaimPolicies"] == stored


def test_a_job_set_of_the_peer_is_made_anew_on_resume() -> None:
    world = running()
    world.patch_job(suspend=True)
    world.settle()
    world.merge("JobSet", JOB, {"metadata": {"annotations": {"trainer.kubeflow.org/template-hash": None}}})
    world.patch_job(suspend=False)
    assert isinstance(decide(world.seen(), world.now)[-1], Delete)


def test_a_job_set_of_the_peer_with_claims_is_applied_rather_than_its_claims_lost() -> None:
    world = with_claims(None)
    world.merge("JobSet", JOB, {"metadata": {"annotations": {"trainer.kubeflow.org/template-hash": None}}})
    world.patch_job(suspend=False)
    assert isinstance(decide(world.seen(), world.now)[-1], Apply)
