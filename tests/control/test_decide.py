"""Every row of the life of a TrainJob: what is seen, and the whole list of actions that follows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from control.builders import QUEUE_LABELS, cluster_runtime, runtime, step, train_job
from control.world import JOB, NOW, World
from trainwright.api.constants import MULTIKUEUE_CONTROLLER_NAME, STOP_ANNOTATION
from trainwright.api.jobset import JobSet, JobSetSpec
from trainwright.api.meta import Condition, ObjectKey, ObjectMeta, OwnerReference
from trainwright.api.runtime import MLPolicy, Runtime
from trainwright.api.trainjob import (
    Cause,
    JobStatus,
    RuntimeRef,
    RuntimeSnapshotRef,
    TrainJob,
    TrainJobSpec,
    TrainJobStatus,
)
from trainwright.control import Seen, build_snapshot, decide
from trainwright.control.actions import Apply, Delete, Emit, Patch, PatchStatus, RequeueAfter
from trainwright.control.directives import build_marked
from trainwright.control.snapshot import hash_runtime
from trainwright.render import render, render_job_set

KEY = ObjectKey("TrainJob", "ns", JOB)
JOB_SET_KEY = ObjectKey("JobSet", "ns", JOB)
SUSPENDED = Condition(
    type="Suspended",
    status="True",
    reason="Suspended",
    message="TrainJob is suspended",
    last_transition_time=NOW,
)


def named(runtime: Runtime) -> RuntimeSnapshotRef:
    return RuntimeSnapshotRef(
        name="rt",
        uid=runtime.metadata.uid,
        generation=runtime.metadata.generation,
        hash=hash_runtime(runtime),
    )


def counters(name: str = "node", **counts: int) -> JobStatus:
    zeros = {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    return JobStatus(name=name, **{**zeros, **counts})


def own_cause(reason: str, message: str, hint: str, **fields: Any) -> Cause:
    where = {"layer": "TrainJob", "kind": "TrainJob", "name": JOB, **fields}
    return Cause(reason=reason, message=message, hint=hint, since=NOW, **where)


BY_USER = own_cause(
    "Suspended",
    "spec.suspend is true",
    f"resume it: `trainwright resume {JOB}`, or set spec.suspend to false",
)


def status_of(job: TrainJob, status: TrainJobStatus) -> TrainJob:
    return msgspec.structs.replace(job, status=status)


def test_a_new_job_gets_the_snapshot_then_its_status_then_its_job_set() -> None:
    rt, job = runtime(), train_job(num_nodes=2)
    assert decide(Seen(train_job=job, runtime=rt), NOW) == [
        Apply(object=build_snapshot(rt, "ns")),
        PatchStatus(
            key=KEY,
            status=TrainJobStatus(
                jobs_status=[counters()], phase="Created", start_time=NOW, runtime_snapshot=named(rt)
            ),
        ),
        Apply(object=render_job_set(job, rt)),
    ]


def test_a_job_whose_snapshot_exists_costs_two_writes() -> None:
    rt, job = runtime(), train_job(num_nodes=2)
    actions = decide(Seen(train_job=job, runtime=rt, snapshot=rt), NOW)
    assert [type(action) for action in actions] == [PatchStatus, Apply]


def test_a_job_created_suspended_gets_a_status_and_no_child_object() -> None:
    rt = runtime(
        step("setup", ancestor="dataset-initializer"), step(replicas=3), step("extra", ancestor=None)
    )
    job = train_job(suspend=True)
    assert decide(Seen(train_job=job, runtime=rt, snapshot=rt), NOW) == [
        PatchStatus(
            key=KEY,
            status=TrainJobStatus(
                conditions=[SUSPENDED],
                jobs_status=[
                    counters("setup", suspended=1),
                    counters("node", suspended=1),
                    counters("extra", suspended=1),
                ],
                phase="Suspended",
                cause=BY_USER,
                runtime_snapshot=named(rt),
            ),
        )
    ]


def test_the_slices_of_a_job_that_never_ran_are_told_as_one_job() -> None:
    rt = runtime(policy=MLPolicy(num_nodes=2, nodes_per_slice=2))
    job = train_job(suspend=True, num_nodes=6)
    [patch] = decide(Seen(train_job=job, runtime=rt, snapshot=rt), NOW)
    assert isinstance(patch, PatchStatus)
    assert patch.status.jobs_status == [counters("node", suspended=1)]


def test_a_queued_job_names_its_queue() -> None:
    rt = runtime()
    [patch] = decide(Seen(train_job=train_job(suspend=True, labels=QUEUE_LABELS), snapshot=rt), NOW)
    assert isinstance(patch, PatchStatus)
    assert patch.status.phase == "Queued"
    assert patch.status.cause is not None
    assert (patch.status.cause.layer, patch.status.cause.kind, patch.status.cause.name) == (
        "Queue",
        "LocalQueue",
        "team-a",
    )


def test_a_job_of_another_controller_is_left_alone() -> None:
    job = train_job(managed_by=MULTIKUEUE_CONTROLLER_NAME)
    assert decide(Seen(train_job=job, runtime=runtime()), NOW) == []


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    job = train_job()
    meta = msgspec.structs.replace(job.metadata, deletion_timestamp=NOW)
    job = msgspec.structs.replace(job, metadata=meta)
    assert decide(Seen(train_job=job, runtime=runtime()), NOW) == []


def test_a_runtime_of_an_unsupported_kind_fails_the_job_for_good() -> None:
    job = msgspec.structs.replace(
        train_job(), spec=TrainJobSpec(runtime_ref=RuntimeRef(name="rt", kind="PipelineRuntime"))
    )
    message = "unsupported runtime: PipelineRuntime.trainer.kubeflow.org"
    hint = "spec.runtimeRef must name a TrainingRuntime or ClusterTrainingRuntime of trainer.kubeflow.org"
    assert decide(Seen(train_job=job), NOW) == [
        PatchStatus(
            key=KEY,
            status=TrainJobStatus(
                conditions=[failed("TrainingRuntimeNotSupported", message)],
                phase="Failed",
                start_time=NOW,
                completion_time=NOW,
                cause=own_cause("TrainingRuntimeNotSupported", message, hint),
            ),
        ),
        Emit(
            about=job.metadata,
            kind="TrainJob",
            type="Warning",
            reason="TrainingRuntimeNotSupported",
            message=message,
        ),
    ]


def failed(reason: str, message: str) -> Condition:
    return Condition(
        type="Failed",
        status="True",
        reason=reason,
        message=message,
        last_transition_time=NOW,
    )


@pytest.mark.parametrize(
    ("kind", "namespace_words"),
    [("TrainingRuntime", "in namespace 'ns'"), ("ClusterTrainingRuntime", "in this cluster")],
)
def test_a_missing_runtime_is_a_condition_and_a_cause_and_is_looked_for_again(
    kind: str, namespace_words: str
) -> None:
    job = train_job(kind=kind)
    message = f"{kind} 'rt' does not exist {namespace_words}"
    refused = Condition(
        type="ResourcesCreated",
        status="False",
        reason="RuntimeNotFound",
        message=message,
        last_transition_time=NOW,
        observed_generation=1,
    )
    hint = "install the runtime, or name one that exists in spec.runtimeRef (see `trainwright runtimes`)"
    assert decide(Seen(train_job=job), NOW) == [
        PatchStatus(
            key=KEY,
            status=TrainJobStatus(
                conditions=[refused],
                phase="Created",
                start_time=NOW,
                cause=own_cause("RuntimeNotFound", message, hint, layer="Runtime", kind=kind, name="rt"),
            ),
        ),
        Emit(
            about=job.metadata,
            kind="TrainJob",
            type="Warning",
            reason="TrainJobResourcesCreationFailed",
            message=f"TrainJob resources reconciliation failed: {message}",
        ),
        RequeueAfter(seconds=15.0),
    ]


FOREIGN_OWNERS = {
    "nobody": ((), "nobody (it has no controlling owner)"),
    "another kind": (
        (OwnerReference(api_version="v1", kind="Pipeline", name="p", uid="u-9", controller=True),),
        "Pipeline 'p'",
    ),
    "an earlier TrainJob of the name": (
        (OwnerReference(api_version="v1", kind="TrainJob", name=JOB, uid="u-8", controller=True),),
        f"an earlier TrainJob {JOB!r}",
    ),
}


@pytest.mark.parametrize("suspend", [True, False])
@pytest.mark.parametrize(("owners", "words"), FOREIGN_OWNERS.values(), ids=FOREIGN_OWNERS)
def test_r03_a_job_set_of_somebody_else_is_refused_and_its_owner_named(
    owners: tuple[OwnerReference, ...], words: str, suspend: bool
) -> None:
    rt = runtime()
    foreign = JobSet(
        metadata=ObjectMeta(name=JOB, namespace="ns", uid="u-7", owner_references=list(owners)),
        spec=JobSetSpec(suspend=True),
    )
    patch, event, again = decide(
        Seen(train_job=train_job(suspend=suspend), snapshot=rt, job_set=foreign), NOW
    )
    assert isinstance(patch, PatchStatus)
    assert patch.status.cause == own_cause(
        "NameTaken",
        f"JobSet {JOB!r} exists and belongs to {words}",
        "delete or rename the other JobSet, or create the TrainJob under another name",
        layer="JobSet",
        kind="JobSet",
    )
    assert patch.status.jobs_status == [counters(suspended=1 if suspend else 0)]
    assert isinstance(event, Emit)
    assert again == RequeueAfter(seconds=15.0)


def running(**spec: Any) -> World:
    """A world whose job runs."""
    world = World(train_job(num_nodes=2, **spec), runtime())
    world.settle()
    world.run_pods()
    world.settle()
    return world


def test_a_running_job_asks_for_nothing() -> None:
    world = running()
    assert world.status.phase == "Running"
    assert decide(world.seen(), world.now) == []


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


def test_a_complete_job_set_completes_the_job_with_one_write() -> None:
    world = running()
    world.finish_pods()
    world.run_controllers()
    assert decide(world.seen(), NOW + timedelta(seconds=5)) == [
        PatchStatus(
            key=KEY,
            status=TrainJobStatus(
                conditions=[
                    Condition(
                        type="Complete",
                        status="True",
                        reason="AllJobsCompleted",
                        message="jobset completed successfully",
                        last_transition_time=NOW + timedelta(seconds=5),
                    )
                ],
                jobs_status=[counters(succeeded=1)],
                phase="Complete",
                start_time=NOW,
                completion_time=NOW,
                restarts=0,
                runtime_snapshot=named(runtime()),
            ),
        )
    ]


def test_a_job_is_active_as_soon_as_it_has_a_pod_whatever_job_set_has_counted() -> None:
    """1. A pod runs, and JobSet has not counted its Job yet. 2. Who evicts the job now must wait for it."""
    world = running()
    zeros = {"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    world.merge("JobSet", JOB, {"status": {"replicatedJobsStatus": [zeros]}})
    for is_suspended in (False, True):
        world.patch_job(suspend=is_suspended)
        world.reconcile()
        assert world.counters()["node"] == (0, 0, 0, 1, 0)


def test_a_ttl_counts_from_when_the_end_was_seen_whatever_other_clocks_say() -> None:
    """1. The JobSet ends, by its controller's clock six hours ago. 2. The job has its hour all the same."""
    world = running(ttl_seconds_after_finished=3600)
    world.finish_pods()
    world.run_controllers()
    world.now = NOW + timedelta(hours=6)
    assert decide(world.seen(), world.now)[-1] == RequeueAfter(seconds=3600.0)
    world.reconcile()
    world.now += timedelta(minutes=59)
    assert decide(world.seen(), world.now) == [RequeueAfter(seconds=60.0)]
    world.now += timedelta(minutes=1)
    assert decide(world.seen(), world.now) == [Delete(key=KEY, uid=world.job.metadata.uid)]


def test_a_passed_deadline_deletes_the_job_set_first_and_then_fails_the_job() -> None:
    world = running(active_deadline_seconds=8)
    job_set = world.job_set
    assert job_set is not None
    now = NOW + timedelta(seconds=9)
    message = "TrainJob exceeded its active deadline"
    delete, patch, event = decide(world.seen(), now)
    assert delete == Delete(key=JOB_SET_KEY, uid=job_set["metadata"]["uid"])
    assert isinstance(patch, PatchStatus)
    assert patch.status == TrainJobStatus(
        conditions=[msgspec.structs.replace(failed("DeadlineExceeded", message), last_transition_time=now)],
        jobs_status=[counters()],
        phase="Failed",
        start_time=NOW,
        completion_time=now,
        restarts=0,
        cause=msgspec.structs.replace(
            own_cause(
                "DeadlineExceeded",
                "the job did not end within activeDeadlineSeconds (8 s)",
                "raise spec.activeDeadlineSeconds, or find out below why the job was slow",
            ),
            since=now,
        ),
        runtime_snapshot=named(runtime()),
    )
    assert isinstance(event, Emit)
    assert (event.type, event.reason, event.message) == ("Warning", "DeadlineExceeded", message)


def test_a_stop_request_ends_the_job_like_a_deadline() -> None:
    world = running()
    world.annotate_job(**{STOP_ANNOTATION: "2026-01-01T12:00:05Z"})
    delete, patch, event = decide(world.seen(), NOW)
    assert isinstance(delete, Delete)
    assert isinstance(patch, PatchStatus)
    assert patch.status.conditions == [
        failed("Stopped", "TrainJob was stopped on request of 2026-01-01T12:00:05Z")
    ]
    assert patch.status.jobs_status == [counters()]
    assert isinstance(event, Emit)


def test_a_stop_request_ends_a_suspended_job_too() -> None:
    world = World(train_job(suspend=True), runtime())
    world.settle()
    world.annotate_job(**{STOP_ANNOTATION: ""})
    patch, _ = decide(world.seen(), NOW)
    assert isinstance(patch, PatchStatus)
    assert [(c.type, c.reason) for c in patch.status.conditions or ()] == [
        ("Suspended", "Suspended"),
        ("Failed", "Stopped"),
    ]
    assert patch.status.phase == "Failed"


def test_both_kinds_of_runtime_go_the_same_way() -> None:
    rt, job = cluster_runtime(), train_job(kind="ClusterTrainingRuntime")
    actions = decide(Seen(train_job=job, runtime=rt), NOW)
    assert actions[0] == Apply(object=build_snapshot(rt, "ns"))
    assert actions[-1] == Apply(object=render_job_set(job, rt))


def test_a_runtime_that_cannot_be_rendered_is_told_with_all_its_field_errors() -> None:
    broken = runtime(step(), step("other", ancestor="trainer"))
    template = broken.spec.template.spec  # type: ignore[union-attr]
    for replicated_job in template["replicatedJobs"]:  # type: ignore[index]
        replicated_job["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "main"
    _, patch, event, again = decide(Seen(train_job=train_job(), runtime=broken), NOW)
    assert isinstance(patch, PatchStatus)
    [condition] = patch.status.conditions or ()
    assert condition.reason == "RenderFailed"
    assert condition.message.count("must have a container 'node'") == 2
    assert patch.status.cause is not None
    assert (patch.status.cause.layer, patch.status.cause.name) == ("Runtime", "rt")
    assert isinstance(event, Emit)
    assert again == RequeueAfter(seconds=15.0)


def test_the_renderer_can_be_another_one() -> None:
    rt, job = runtime(), train_job()
    extra = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hostfile", "namespace": "ns"}}
    actions = decide(
        Seen(train_job=job, snapshot=rt), NOW, lambda job, runtime: [extra, *render(job, runtime)]
    )
    assert actions[1:] == [Apply(object=extra), Apply(object=render_job_set(job, rt))]
