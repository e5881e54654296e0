"""Every row of the life of a TrainJob: what is seen, and the whole list of actions that follows.

Suspending and resuming are in `test_decide_resuming.py`.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from control.builders import QUEUE_LABELS, cluster_runtime, runtime, step, train_job
from control.decisions import (
    BY_USER,
    JOB_SET_KEY,
    KEY,
    SUSPENDED,
    counters,
    failed,
    named,
    own_cause,
    running,
)
from control.world import JOB, NOW, World
from trainwright.api.constants import MULTIKUEUE_CONTROLLER_NAME, STOP_ANNOTATION
from trainwright.api.jobset import JobSet, JobSetSpec
from trainwright.api.meta import Condition, ObjectMeta, OwnerReference
from trainwright.api.runtime import MLPolicy
from trainwright.api.trainjob import RuntimeRef, TrainJobSpec, TrainJobStatus
from trainwright.control import Seen, build_snapshot, decide
from trainwright.control.actions import Apply, Delete, Emit, PatchStatus, RequeueAfter
from trainwright.render import render, render_job_set


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


def test_a_running_job_asks_for_nothing() -> None:
    world = running()
    assert world.status.phase == "Running"
    assert decide(world.seen(), world.now) == []


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
