"""Whole lives of TrainJobs, played against the JobSet and Job controllers; cases by their number."""

from __future__ import annotations

import msgspec
import pytest

from control.builders import RUNTIME_KINDS, cluster_runtime, runtime, step, train_job
from control.lives import as_json, get_image, resume, start, suspend
from control.world import JOB, World, refuse_kind
from trainwright.api.constants import MULTIKUEUE_CONTROLLER_NAME, STOP_ANNOTATION
from trainwright.api.jobset import JobSet
from trainwright.control import decide
from trainwright.control.actions import Apply, Delete, PatchStatus


@pytest.mark.parametrize("kind", RUNTIME_KINDS)
def test_a_job_runs_and_completes(kind: str) -> None:
    world = World(train_job(kind=kind), runtime() if kind == "TrainingRuntime" else cluster_runtime())
    world.settle()
    assert (world.status.phase, world.conditions()) == ("Created", {})
    world.run_pods()
    world.settle()
    assert (world.status.phase, world.conditions()) == ("Running", {})
    world.finish_pods()
    world.settle()
    assert world.status.phase == "Complete"
    assert world.conditions() == {"Complete": ("True", "AllJobsCompleted")}
    assert world.counters() == {"node": (0, 1, 0, 0, 0)}
    assert world.status.cause is None


@pytest.mark.parametrize("happens", ["the pods end", "a pod is no longer ready"])
def test_a_job_stays_running_while_its_pods_end_and_are_not_counted_yet(happens: str) -> None:
    """1. The pods run. 2. They end, or are about to: not ready. 3. No Job is counted as succeeded yet."""
    world = World(train_job(num_nodes=2), runtime())
    world.settle()
    world.run_pods()
    world.settle()
    if happens == "the pods end":
        world.finish_pods()
    assert world.job_set is not None
    zeros = [{"name": "node", "ready": 0, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}]
    status = {**world.job_set["status"], "replicatedJobsStatus": zeros}
    world.objects["JobSet", JOB] = {**world.job_set, "status": status}
    world.rest()
    assert world.status.phase == "Running"


def test_the_writes_of_a_plain_life_are_few() -> None:
    world = World(train_job(), runtime())
    world.rest()
    assert world.writes == ["apply ConfigMap", "patch status", "apply JobSet"]
    world.run_controllers()
    world.run_pods()
    world.run_controllers()
    world.rest()
    world.writes.clear()
    world.finish_pods()
    world.run_controllers()
    world.rest()
    assert world.writes == ["patch status"]
    assert world.events == []


def test_the_zeros_written_with_a_new_job_are_what_job_set_counts_before_there_are_pods() -> None:
    world = World(train_job(), runtime(step("setup", ancestor="dataset-initializer"), step()))
    world.rest()
    predicted = world.status
    zeros = [
        {"name": n, "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
        for n in ("setup", "node")
    ]
    assert world.job_set is not None
    world.objects["JobSet", JOB] = {**world.job_set, "status": {"restarts": 0, "replicatedJobsStatus": zeros}}
    world.rest()
    assert world.status == predicted


def test_b001_a_complete_job_is_not_run_again_when_its_job_set_goes() -> None:
    world = start()
    world.finish_pods()
    world.settle()
    status = world.status
    world.delete("JobSet", JOB)
    world.settle()
    assert world.job_set is None
    assert world.status == status


def test_b002_a_failed_job_is_not_run_again_when_its_job_set_goes() -> None:
    world = start(rt=runtime(failurePolicy={"maxRestarts": 2}))
    for _ in range(3):
        world.fail_pod(0, 1)
        world.settle()
        world.run_pods()
        world.settle()
    assert world.conditions() == {"Failed": ("True", "ReachedMaxRestarts")}
    assert world.status.restarts == 2
    status = world.status
    world.delete("JobSet", JOB)
    world.settle()
    assert world.job_set is None
    assert world.status == status


def test_b003_a_finished_job_is_deleted_after_its_ttl() -> None:
    world = start(train_job(ttl_seconds_after_finished=60))
    world.finish_pods()
    world.settle()
    assert world.requeue == 60
    world.wait(59)
    world.reconcile()
    assert ("TrainJob", JOB) in world.objects
    assert world.requeue == 1
    world.wait(1)
    world.reconcile()
    assert ("TrainJob", JOB) not in world.objects
    assert world.job_set is None


def test_b003_the_ttl_of_the_runtime_counts_where_the_job_has_none() -> None:
    world = start(rt=runtime(ttl=30))
    world.merge("TrainingRuntime", "rt", {"spec": {"ttlSecondsAfterFinished": 1}})  # too late for this job
    world.finish_pods()
    world.settle()
    assert world.requeue == 30


def test_a_ttl_of_zero_deletes_the_job_only_after_its_end_was_written() -> None:
    world = start(train_job(ttl_seconds_after_finished=0))
    world.finish_pods()
    world.run_controllers()
    world.reconcile()
    assert world.conditions() == {"Complete": ("True", "AllJobsCompleted")}
    world.reconcile()
    assert ("TrainJob", JOB) not in world.objects


def test_b004_a_refused_job_set_is_a_condition_that_goes_when_it_is_taken() -> None:
    """1. The API server refuses the JobSet. 2. The status says so; one event. 3. It is tried again, later and
    later, without a write. 4. The quota is lifted: it goes through. 5. The condition is gone."""
    world = World(train_job(), runtime())
    world.refuse = refuse_kind("JobSet")
    world.reconcile()
    assert world.conditions() == {"ResourcesCreated": ("False", "Forbidden")}
    cause = world.status.cause
    assert cause is not None
    assert (cause.layer, cause.kind, cause.name, cause.reason) == ("JobSet", "JobSet", JOB, "Forbidden")
    assert cause.message == "JobSet ns/demo: exceeded quota: q"
    assert [event.reason for event in world.events] == ["TrainJobResourcesCreationFailed"]
    assert world.requeue == 1
    world.writes.clear()
    pauses = []
    for _ in range(14):
        pauses.append(world.requeue)
        world.wait(world.requeue or 0)
        world.reconcile()
    assert world.writes == []
    assert len(world.events) == 1
    assert pauses == sorted(pauses)
    assert pauses[-1] == 60
    world.refuse = lambda _: None
    world.wait(60)
    world.settle()
    assert world.conditions() == {}
    assert world.status.cause is None
    assert world.counters() == {"node": (0, 0, 0, 1, 0)}


def test_b004_a_shell_that_forgets_refusals_writes_no_more_than_one_that_remembers() -> None:
    world = World(train_job(), runtime())
    world.forgets_refusals = True
    world.refuse = refuse_kind("JobSet")
    world.reconcile()
    world.writes.clear()
    for _ in range(5):
        world.wait(10)
        world.reconcile()
    assert world.writes == []
    assert world.conditions() == {"ResourcesCreated": ("False", "Forbidden")}


def test_a_refused_snapshot_of_a_queued_job_is_told_and_tried_again() -> None:
    world = World(train_job(suspend=True), runtime())
    world.forgets_refusals = True
    world.refuse = refuse_kind("ConfigMap")
    for _ in range(3):
        world.reconcile()
        world.wait(10)
    assert set(world.conditions()) == {"Suspended", "ResourcesCreated"}
    assert world.writes == ["patch status"]
    world.refuse = lambda _: None
    world.settle()
    assert set(world.conditions()) == {"Suspended"}


def test_a_repaired_runtime_reaches_a_job_that_nothing_of_ever_ran() -> None:
    broken = runtime(step(ancestor="trainer"))
    world = World(train_job(), broken)
    world.refuse = refuse_kind("JobSet", "Invalid", "image is required")
    world.settle()
    before = world.status.runtime_snapshot
    world.refuse = lambda _: None
    world.put(as_json(runtime(step(image="repaired:2"))))
    world.wait(60)
    world.settle()
    assert get_image(world) == "repaired:2"
    assert world.status.runtime_snapshot != before
    assert world.conditions() == {}


def test_a_repaired_runtime_does_not_reach_a_job_that_began() -> None:
    world = start(rt=runtime(step(image="one:1")))
    suspend(world)
    world.refuse = refuse_kind("JobSet")
    world.put(as_json(runtime(step(image="two:2"))))
    resume(world, trainer={"numNodes": 3})
    world.wait(60)
    world.settle()
    assert world.conditions() == {"ResourcesCreated": ("False", "Forbidden")}
    world.refuse = lambda _: None
    world.wait(60)
    world.settle()
    assert get_image(world) == "one:1"
    assert len(world.pods()) == 3


def test_b008_an_idle_job_is_not_written_however_often_one_looks() -> None:
    world = start(train_job(active_deadline_seconds=3600))
    world.writes.clear()
    for _ in range(20):
        world.wait(7)
        world.reconcile()
    assert world.writes == []


def test_b009_no_ttl_counts_for_a_suspended_job() -> None:
    world = World(train_job(suspend=True, ttl_seconds_after_finished=1), runtime())
    world.settle()
    world.wait(1000)
    world.settle()
    assert ("TrainJob", JOB) in world.objects
    assert world.conditions() == {"Suspended": ("True", "Suspended")}


def test_b012_caches_that_disagree_for_a_while_cause_no_second_transition() -> None:
    """1. The job runs. 2. A pod fails; the cache of pods shows it, that of the JobSet does not yet. 3.
    Looking again and again tells it once. 4. The JobSet shows it too: one more, and no more after it."""
    world = start()
    world.fail_pod(1, 3)
    for _ in range(3):
        world.reconcile()
    assert [event.reason for event in world.events] == ["NonZeroExit"]
    world.settle()
    for _ in range(3):
        world.reconcile()
    assert [event.reason for event in world.events] == ["NonZeroExit", "FailedJobs"]


def test_b013_a_finished_launcher_ends_the_workers() -> None:
    launcher = step("launcher", dependsOn=[{"name": "node", "status": "Ready"}])
    rt = runtime(
        step(ancestor=None), launcher, successPolicy={"operator": "All", "targetReplicatedJobs": ["launcher"]}
    )
    world = start(train_job(), rt)
    world.run_pods()
    world.settle()
    world.finish_pods("launcher")
    world.settle()
    assert world.conditions() == {"Complete": ("True", "AllJobsCompleted")}
    assert world.counters() == {"node": (0, 0, 0, 0, 0), "launcher": (0, 1, 0, 0, 0)}
    assert [pod for pod in world.pods("node") if pod["status"]["phase"] == "Running"] == []


def test_b014_pods_that_are_left_when_any_success_counts_end_before_the_ttl() -> None:
    rt = runtime(step(), step("other", ancestor=None), successPolicy={"operator": "Any"})
    world = start(train_job(ttl_seconds_after_finished=600), rt)
    world.finish_pods("other")
    world.settle()
    assert world.conditions() == {"Complete": ("True", "AllJobsCompleted")}
    assert world.pods("node") == []
    assert world.requeue == 600


def test_a_deadline_counts_from_the_last_resume() -> None:
    world = start(train_job(num_nodes=2, active_deadline_seconds=100))
    world.wait(90)
    suspend(world)
    assert world.requeue is None
    world.wait(1000)
    resume(world)
    assert world.requeue == 100
    world.wait(100)
    world.settle()
    assert world.conditions() == {}
    world.wait(1)
    world.settle()
    assert world.conditions() == {"Failed": ("True", "DeadlineExceeded")}
    assert world.job_set is None
    assert world.counters() == {"node": (0, 0, 0, 0, 0)}


def test_a_suspended_job_has_no_deadline() -> None:
    world = World(train_job(suspend=True, active_deadline_seconds=1), runtime())
    world.settle()
    world.wait(5)
    world.settle()
    assert world.conditions() == {"Suspended": ("True", "Suspended")}


def test_completion_that_is_seen_in_the_same_pass_wins_over_the_deadline_and_a_stop() -> None:
    world = start(train_job(active_deadline_seconds=8))
    world.finish_pods()
    world.run_controllers()
    world.wait(9)
    world.annotate_job(**{STOP_ANNOTATION: "now"})
    world.settle()
    assert world.conditions() == {"Complete": ("True", "AllJobsCompleted")}


def test_failure_that_is_seen_in_the_same_pass_wins_over_the_deadline() -> None:
    world = start(train_job(active_deadline_seconds=8))
    world.fail_pod(0, 1)
    world.run_controllers()
    world.wait(9)
    world.settle()
    assert world.conditions() == {"Failed": ("True", "FailedJobs")}


@pytest.mark.parametrize("seconds", [2**31, 10**12, 2**63 - 1])
def test_a_huge_deadline_is_a_far_one(seconds: int) -> None:
    world = start(train_job(active_deadline_seconds=seconds))
    assert world.conditions() == {}
    assert world.requeue == 86400


def test_r07_the_job_set_is_deleted_again_as_long_as_it_is_there_after_the_deadline() -> None:
    world = start(train_job(active_deadline_seconds=8))
    world.refuse = lambda action: ("Forbidden", "no delete for you") if isinstance(action, Delete) else None
    world.wait(9)
    world.reconcile()
    assert world.conditions() == {"Failed": ("True", "DeadlineExceeded")}
    assert world.counters() == {"node": (0, 0, 0, 0, 0)}
    assert world.job_set is not None
    assert world.requeue == 1
    world.refuse = lambda _: None
    world.settle()
    assert world.job_set is None


def test_the_job_set_of_an_unfinished_job_is_made_again_when_somebody_deletes_it() -> None:
    world = start()
    before = world.job_set
    world.delete("JobSet", JOB)
    world.settle()
    assert world.job_set is not None
    assert before is not None
    assert world.job_set["metadata"]["uid"] != before["metadata"]["uid"]
    assert world.counters() == {"node": (0, 0, 0, 1, 0)}


def test_a_job_set_that_finished_and_was_swept_at_once_still_finishes_the_job() -> None:
    world = start()
    world.finish_pods()
    world.run_controllers()
    last = msgspec.convert(world.job_set, JobSet)
    world.delete("JobSet", JOB)
    seen = msgspec.structs.replace(world.seen(), deleted_job_set=last)
    [patch] = decide(seen, world.now)
    assert isinstance(patch, PatchStatus)
    assert patch.status.phase == "Complete"
    [counters] = patch.status.jobs_status or ()
    assert (counters.succeeded, counters.active, counters.ready) == (1, 0, 0)


def test_restarts_are_told_while_the_job_runs() -> None:
    world = start(rt=runtime(failurePolicy={"maxRestarts": 2}))
    assert world.status.restarts == 0
    world.fail_pod(0, 1)
    world.settle()
    assert (world.status.restarts, world.status.phase) == (1, "Running")


def test_a_snapshot_that_somebody_deletes_is_written_again() -> None:
    world = start()
    name = f"trainer-runtime-{world.status.runtime_snapshot.hash}"  # type: ignore[union-attr]
    world.delete("ConfigMap", name)
    world.settle()
    assert ("ConfigMap", name) in world.objects


def test_a_snapshot_that_is_lost_with_its_runtime_edited_is_not_replaced_under_a_job_that_began() -> None:
    world = start()
    suspend(world)
    world.delete("ConfigMap", f"trainer-runtime-{world.status.runtime_snapshot.hash}")  # type: ignore[union-attr]
    world.put(as_json(runtime(step(image="two:2"))))
    resume(world)
    assert world.conditions() == {"ResourcesCreated": ("False", "SnapshotLost")}
    assert get_image(world) == "registry.example/img:1"


def test_finished_jobs_of_the_peer_get_phase_and_times_and_so_a_ttl() -> None:
    job = train_job(ttl_seconds_after_finished=60)
    world = World(job, runtime())
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": "FailedJobs",
        "message": "m",
        "lastTransitionTime": world.now.isoformat(),
    }
    world.merge("TrainJob", JOB, {"status": {"conditions": [condition]}})
    world.settle()
    assert (world.status.phase, world.status.completion_time) == ("Failed", world.now)
    assert world.writes == ["patch status"]
    assert world.requeue == 60


def test_a_running_job_of_the_peer_goes_on_and_gets_a_snapshot() -> None:
    world = start()
    del world.objects["TrainJob", JOB]["status"]
    world.objects = {key: obj for key, obj in world.objects.items() if key[0] != "ConfigMap"}
    world.writes.clear()
    world.settle()
    assert world.writes == ["apply ConfigMap", "patch status"]
    assert world.status.phase == "Running"


def test_never_are_two_job_sets_made_for_one_run() -> None:
    """1. Decide makes the JobSet. 2. The cache does not show it yet. 3. Decide makes it again: by the same
    name, so it is the same one."""
    world = World(train_job(), runtime())
    world.reconcile()
    actions = decide(msgspec.structs.replace(world.seen(), job_set=None), world.now)
    assert {a.object["metadata"]["name"] for a in actions if isinstance(a, Apply)} <= {JOB}


def test_b032_a_job_of_multikueue_is_not_run_here() -> None:
    world = World(train_job(managed_by=MULTIKUEUE_CONTROLLER_NAME), runtime())
    world.settle()
    assert world.writes == []
