"""The shell around the real `decide`, over the real embedded store. Children are moved by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from cluster.samples import event_about, owned_by, pod, train_job
from trainwright.api.constants import JOBSET_NAME
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Condition, Json, ObjectKey, ObjectMeta
from trainwright.api.trainjob import Cause, TrainerStatus, TrainJob, TrainJobStatus
from trainwright.cluster.local.store import LocalCluster
from trainwright.cluster.perform import Outcome, build_status_patch, perform
from trainwright.cluster.reconcile import observe, reconcile, sweep_snapshots
from trainwright.control.actions import Delete, Emit, Patch, PatchStatus, RequeueAfter
from trainwright.control.seen import Refusal
from trainwright.errors import Forbidden, NotFound
from trainwright.frameworks import FRAMEWORKS, is_chosen
from trainwright.frameworks.plain import Plain
from trainwright.render import render
from trainwright.runner.controllers.actions import Create
from trainwright.runner.controllers.jobset import decide_job_set

KEY = ObjectKey("TrainJob", "default", "demo")
JOB_SET = ObjectKey("JobSet", "default", "demo")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUNTIME: Json = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "plain"},
    "spec": {
        "mlPolicy": {"numNodes": 1},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {
                                "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                            },
                            "spec": {
                                "template": {
                                    "spec": {
                                        "restartPolicy": "Never",
                                        "containers": [{"name": "node", "image": "python"}],
                                    }
                                }
                            },
                        },
                    }
                ]
            }
        },
    },
}


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


class Scripted(LocalCluster):
    """A store with a will of its own.

    It refuses the kinds in `refused`, as an API server with a quota or without rights does, and somebody
    patches the object (`meddling`, once each) just before its status is written.
    """

    refused: frozenset[str] = frozenset()
    meddling: tuple[Json, ...] = ()

    async def patch_status(self, key, merge):
        if self.meddling:
            first, *self.meddling = self.meddling
            await self.patch(key, first)
        return await super().patch_status(key, merge)

    async def apply(self, obj, field_manager, *, force=True):
        self.check(obj["kind"])
        return await super().apply(obj, field_manager, force=force)

    async def record_event(self, event):
        self.check("Event")
        await super().record_event(event)

    def check(self, kind):
        if kind in self.refused:
            raise Forbidden(f"{kind} is forbidden: exceeded quota")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cluster(tmp_path, clock):
    with Scripted(tmp_path / "store.db", clock) as opened:
        yield opened


def demo(name="demo", **spec):
    return {**train_job(name), "spec": {"runtimeRef": {"name": "plain"}, **spec}}


async def submit(cluster, **spec):
    await cluster.create(RUNTIME)
    return await cluster.create(demo(**spec))


async def read_version(cluster):
    return (await cluster.list("TrainJob")).resource_version


async def settle(cluster, clock):
    """Reconcile until nothing is written any more; at most five passes."""
    for _ in range(5):
        before = await read_version(cluster)
        requeue = await reconcile(cluster, KEY, clock)
        if await read_version(cluster) == before:
            return requeue
    raise AssertionError("reconcile goes on writing")


async def finish_job_set(cluster, type_="Completed"):
    condition = {
        "type": type_,
        "status": "True",
        "reason": "AllJobsCompleted" if type_ == "Completed" else "FailedJobs",
        "message": "done",
        "lastTransitionTime": "2026-01-01T00:10:00Z",
    }
    await cluster.patch_status(JOB_SET, {"status": {"conditions": [condition]}})


async def get_conditions(cluster):
    status = (await cluster.get(KEY)).get("status", {})
    return {c["type"]: c["status"] for c in status.get("conditions", [])}


async def test_a_job_gets_a_snapshot_a_job_set_and_a_status(cluster, clock):
    job = await submit(cluster)
    await settle(cluster, clock)
    job_set = await cluster.get(JOB_SET)
    assert [ref["uid"] for ref in job_set["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
    status = (await cluster.get(KEY))["status"]
    (snapshot,) = (await cluster.list("ConfigMap", "default")).items
    assert snapshot["metadata"]["name"] == f"trainer-runtime-{status['runtimeSnapshot']['hash']}"


class Others(Plain):
    """A framework of another package that needs nothing."""

    name = "others"

    def is_active(self, policy):
        return is_chosen(policy, self.name)


async def test_frameworks_of_other_packages_come_with_the_render(cluster, clock):
    chosen = {**RUNTIME["spec"], "mlPolicy": {"custom": {"framework": "others"}}}
    await cluster.create({**RUNTIME, "spec": chosen})
    await cluster.create(demo())
    await reconcile(cluster, KEY, clock)
    with pytest.raises(NotFound):
        await cluster.get(JOB_SET)
    clock.now += timedelta(minutes=1)
    await reconcile(cluster, KEY, clock, render=partial(render, frameworks=(*FRAMEWORKS, Others())))
    assert (await cluster.get(JOB_SET))["metadata"]["name"] == "demo"


async def test_reconciling_twice_writes_nothing(cluster, clock):
    await submit(cluster)
    await settle(cluster, clock)
    before = await read_version(cluster)
    for _ in range(3):
        await reconcile(cluster, KEY, clock)
        clock.now += timedelta(seconds=90)
    assert await read_version(cluster) == before


async def test_a_suspended_job_that_never_ran_has_no_children(cluster, clock):
    await submit(cluster, suspend=True)
    await settle(cluster, clock)
    assert await get_conditions(cluster) == {"Suspended": "True"}
    for kind in ("JobSet", "Job", "Pod"):
        assert (await cluster.list(kind)).items == []


async def test_suspend_and_resume_reach_the_job_set_and_the_status(cluster, clock):
    await submit(cluster)
    await settle(cluster, clock)
    await cluster.patch(KEY, {"spec": {"suspend": True}})
    await settle(cluster, clock)
    assert (await cluster.get(JOB_SET))["spec"]["suspend"] is True
    assert await get_conditions(cluster) == {"Suspended": "True"}
    suspended = {
        "type": "Suspended",
        "status": "True",
        "reason": "Suspended",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await cluster.patch_status(JOB_SET, {"status": {"conditions": [suspended]}})
    # JobSet makes the Jobs of one that is suspended, too.
    for action in decide_job_set(await cluster.get(JOB_SET), [], clock.now):
        if isinstance(action, Create):
            await cluster.create(action.object)
    await settle(cluster, clock)
    assert (await cluster.list("Job")).items == []  # they have run
    for action in decide_job_set(await cluster.get(JOB_SET), [], clock.now):
        if isinstance(action, Create):
            await cluster.create(action.object)
    await cluster.patch(KEY, {"spec": {"suspend": False}})
    await settle(cluster, clock)
    assert not (await cluster.get(JOB_SET))["spec"].get("suspend")
    assert await get_conditions(cluster) == {}


async def test_a_finished_job_stays_finished_and_keeps_what_the_training_reported(cluster, clock):
    await submit(cluster)
    await settle(cluster, clock)
    await cluster.patch_status(KEY, {"status": {"trainerStatus": {"progressPercentage": 40}}})
    await finish_job_set(cluster)
    await settle(cluster, clock)
    status = (await cluster.get(KEY))["status"]
    assert await get_conditions(cluster) == {"Complete": "True"}
    assert status["trainerStatus"]["progressPercentage"] == 40
    await cluster.delete(JOB_SET)
    await settle(cluster, clock)
    assert (await cluster.get(KEY))["status"] == status
    with pytest.raises(NotFound):
        await cluster.get(JOB_SET)


async def test_what_the_training_reported_is_kept_while_a_job_rests_and_goes_before_it_runs_again(
    cluster, clock
):
    """No pod of the new run can have reported yet: the JobSet is still suspended when it goes."""
    await submit(cluster)
    await settle(cluster, clock)
    reported = {"progressPercentage": 40, "estimatedRemainingSeconds": 60}
    await cluster.patch_status(KEY, {"status": {"trainerStatus": reported}})
    await cluster.patch(KEY, {"spec": {"suspend": True}})
    await settle(cluster, clock)
    assert (await cluster.get(KEY))["status"]["trainerStatus"] == reported

    await cluster.patch(KEY, {"spec": {"suspend": False}})
    await reconcile(cluster, KEY, clock)
    assert "trainerStatus" not in (await cluster.get(KEY))["status"]
    assert (await cluster.get(JOB_SET))["spec"]["suspend"] is True

    await cluster.patch_status(KEY, {"status": {"trainerStatus": {"progressPercentage": 41}}})
    await settle(cluster, clock)
    assert (await cluster.get(KEY))["status"]["trainerStatus"] == {"progressPercentage": 41}


async def test_an_expired_job_is_deleted_with_all_it_owns(cluster, clock):
    await submit(cluster, ttlSecondsAfterFinished=60)
    await settle(cluster, clock)
    await finish_job_set(cluster)
    clock.now += timedelta(minutes=10)
    requeue = await settle(cluster, clock)
    assert requeue is not None
    clock.now += timedelta(seconds=requeue + 1)
    assert await reconcile(cluster, KEY, clock) is None
    assert (await cluster.list("TrainJob")).items == []
    assert (await cluster.list("JobSet")).items == []


async def test_an_expiry_that_is_disturbed_is_not_forgotten(cluster, clock):
    """1. A job ended while nobody looked, long ago. 2. Each try to write its verdict meets another edit.
    3. The pass asks to be called again, and then the job goes.
    """
    await submit(cluster, ttlSecondsAfterFinished=60)
    await settle(cluster, clock)
    await finish_job_set(cluster)
    clock.now += timedelta(hours=1)
    cluster.meddling = tuple({"metadata": {"labels": {"edit": str(number)}}} for number in range(4))
    wait = await reconcile(cluster, KEY, clock)
    assert wait is not None
    for _ in range(3):
        if wait is not None:
            clock.now += timedelta(seconds=wait)
            wait = await reconcile(cluster, KEY, clock)
    assert wait is None
    assert (await cluster.list("TrainJob")).items == []


async def test_the_deadline_asks_to_be_looked_at_again(cluster, clock):
    await submit(cluster, activeDeadlineSeconds=100)
    requeue = await settle(cluster, clock)
    assert requeue == pytest.approx(100, abs=2)
    clock.now += timedelta(seconds=101)
    await settle(cluster, clock)
    assert await get_conditions(cluster) == {"Failed": "True"}
    assert (await cluster.list("JobSet")).items == []


async def test_a_job_that_does_not_exist_needs_nothing(cluster, clock):
    assert await reconcile(cluster, KEY, clock) is None


async def test_a_missing_runtime_is_told_and_asked_for_again(cluster, clock):
    await cluster.create(demo())
    requeue = await settle(cluster, clock)
    assert requeue is not None
    assert await get_conditions(cluster) == {"ResourcesCreated": "False"}
    await cluster.create(RUNTIME)
    await settle(cluster, clock)
    assert await get_conditions(cluster) == {}
    assert (await cluster.get(JOB_SET))["kind"] == "JobSet"


# Refusals


async def test_a_refusal_is_told_in_the_status_in_the_words_of_the_target(cluster, clock):
    cluster.refused = frozenset({"JobSet"})
    await submit(cluster)
    requeue = await reconcile(cluster, KEY, clock)
    (condition,) = (await cluster.get(KEY))["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "ResourcesCreated",
        "False",
        "Forbidden",
    )
    assert "JobSet is forbidden: exceeded quota" in condition["message"]
    assert requeue == pytest.approx(1, abs=0.5)


async def test_a_refusal_that_goes_on_is_one_write_and_is_tried_ever_more_seldom(cluster, clock):
    cluster.refused = frozenset({"JobSet"})
    await submit(cluster)
    waits = [await settle(cluster, clock)]
    before = await read_version(cluster)
    for _ in range(5):
        clock.now += timedelta(seconds=waits[-1])
        waits.append(await reconcile(cluster, KEY, clock))
    assert await read_version(cluster) == before
    assert waits == sorted(waits)
    assert waits[-1] > waits[0]


async def test_a_refusal_is_forgotten_once_the_write_went_through(cluster, clock):
    cluster.refused = frozenset({"JobSet"})
    await submit(cluster)
    wait = await settle(cluster, clock)
    cluster.refused = frozenset()
    clock.now += timedelta(seconds=wait)
    await settle(cluster, clock)
    assert await get_conditions(cluster) == {}
    assert (await cluster.get(JOB_SET))["kind"] == "JobSet"


async def test_an_event_that_is_refused_keeps_nothing_from_happening(cluster, clock):
    cluster.refused = frozenset({"JobSet", "Event"})
    await submit(cluster)
    await reconcile(cluster, KEY, clock)
    assert await get_conditions(cluster) == {"ResourcesCreated": "False"}


# Perform


async def test_actions_stop_at_the_first_refusal(cluster):
    await submit(cluster)
    missing = ObjectKey("JobSet", "default", "missing")
    label = Patch(key=KEY, merge={"metadata": {"labels": {"done": "yes"}}})
    outcome = await perform(cluster, [Patch(key=missing, merge={}), label, RequeueAfter(seconds=5)], NOW)
    assert outcome.refusal == Refusal(
        key=missing,
        reason="NotFound",
        message="JobSet 'missing' does not exist; there is none of that name in namespace 'default'",
        since=NOW,
    )
    assert outcome.requeue_after is None
    assert "labels" not in (await cluster.get(KEY))["metadata"]


async def test_deleting_what_is_gone_or_is_another_is_no_refusal(cluster):
    job = await submit(cluster)
    gone = Delete(key=ObjectKey("Pod", "default", "gone"))
    another = Delete(key=KEY, uid="of-an-earlier-one")
    outcome = await perform(cluster, [gone, another, RequeueAfter(seconds=7)], NOW)
    assert (outcome.refusal, outcome.requeue_after) == (None, 7)
    assert await cluster.get(KEY) == job


async def test_a_status_is_not_written_to_a_later_job_of_the_same_name(cluster):
    """1. A pass observes a job. 2. The job is deleted and made again. 3. The pass writes its verdict."""
    earlier = parse_object(await submit(cluster), TrainJob)
    await cluster.delete(KEY)
    later = await cluster.create(demo())
    status = PatchStatus(key=KEY, status=TrainJobStatus(phase="Running"))
    label = Patch(key=KEY, merge={"metadata": {"labels": {"done": "yes"}}})
    outcome = await perform(cluster, [status, label], NOW, observed=earlier)
    assert outcome == Outcome(is_stale=True)
    assert await cluster.get(KEY) == later


async def test_a_status_of_a_deleted_job_is_no_refusal(cluster):
    outcome = await perform(cluster, [PatchStatus(key=KEY, status=TrainJobStatus(phase="Complete"))], NOW)
    assert outcome == Outcome(is_stale=True)


async def test_a_verdict_about_a_job_that_changed_meanwhile_is_decided_again(cluster, clock):
    """1. The JobSet completes. 2. Between observing and writing somebody edits a label.
    3. The verdict is not written, the next attempt of the same call writes it.
    """
    await submit(cluster)
    await settle(cluster, clock)
    await finish_job_set(cluster)
    cluster.meddling = ({"metadata": {"labels": {"edited": "1"}}},)
    await reconcile(cluster, KEY, clock)
    assert await get_conditions(cluster) == {"Complete": "True"}
    assert (await cluster.get(KEY))["metadata"]["labels"] == {"edited": "1"}


CAUSE = Cause(layer="Pod", kind="Pod", name="p", reason="R", message="m", hint="h", since=NOW)
VERDICT = [Condition(type="Failed", status="True", reason="R", message="m", last_transition_time=NOW)]
SEEN = TrainJob(metadata=ObjectMeta(name="demo", uid="u1", resource_version="7"))


def test_a_status_patch_removes_what_went_away_and_leaves_trainer_status_alone():
    assert build_status_patch(TrainJobStatus(phase="Running", cause=CAUSE), SEEN) == {
        "metadata": {"uid": "u1"},
        "status": {
            "conditions": None,
            "jobsStatus": None,
            "phase": "Running",
            "startTime": None,
            "completionTime": None,
            "restarts": None,
            "cause": {
                "layer": "Pod",
                "kind": "Pod",
                "name": "p",
                "reason": "R",
                "message": "m",
                "hint": "h",
                "since": "2026-01-01T00:00:00Z",
            },
            "runtimeSnapshot": None,
        },
    }


def test_a_trainer_status_is_mentioned_only_where_it_has_to_go():
    reported = TrainJobStatus(phase="Running", trainer_status=TrainerStatus(progress_percentage=40))
    seen = TrainJob(metadata=SEEN.metadata, status=reported)
    assert "trainerStatus" not in build_status_patch(reported, seen)["status"]
    gone = build_status_patch(TrainJobStatus(phase="Running"), seen)["status"]
    assert gone["trainerStatus"] is None


def test_only_a_verdict_is_bound_to_the_resource_version():
    finished = TrainJob(metadata=SEEN.metadata, status=TrainJobStatus(conditions=VERDICT))
    verdict = TrainJobStatus(conditions=VERDICT)
    assert build_status_patch(verdict, SEEN)["metadata"] == {"uid": "u1", "resourceVersion": "7"}
    assert build_status_patch(verdict, finished)["metadata"] == {"uid": "u1"}
    assert build_status_patch(TrainJobStatus(phase="Running"), SEEN)["metadata"] == {"uid": "u1"}
    assert "metadata" not in build_status_patch(verdict)


async def test_an_event_is_one_that_the_public_sdk_shows(cluster):
    job = await submit(cluster)
    about = ObjectMeta(name="demo", namespace="default", uid=job["metadata"]["uid"])
    await perform(cluster, [Emit(about=about, kind="TrainJob", type="Warning", reason="R", message="m")], NOW)
    (event,) = (await cluster.list("Event")).items
    del event["metadata"]
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "namespace": "default",
            "name": "demo",
            "uid": job["metadata"]["uid"],
        },
        "type": "Warning",
        "reason": "R",
        "message": "m",
        "reportingComponent": "trainer.kubeflow.org/trainjob-controller",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }


# Observe


async def test_what_is_seen_is_what_belongs_to_the_job(cluster, clock):
    job = await submit(cluster)
    await settle(cluster, clock)
    job_set = await cluster.get(JOB_SET)
    labels = {JOBSET_NAME: "demo"}
    ours = await cluster.create(pod("demo-node-0-0", labels=labels, ownerReferences=owned_by(job_set)))
    await cluster.create(pod("stranger", labels={JOBSET_NAME: "other"}))
    child = {**train_job("demo-node-0", labels=labels), "apiVersion": "batch/v1", "kind": "Job"}
    child["spec"] = {"template": {}}
    await cluster.create(child)
    await cluster.record_event(event_about(ours, reason="FailedMount"))
    await cluster.record_event(event_about(ours, reason="Started", type_="Normal"))
    await cluster.record_event(event_about(job, reason="AboutTheTrainJob"))
    seen = await observe(cluster, KEY)
    assert seen is not None
    assert seen.train_job.metadata.uid == job["metadata"]["uid"]
    assert seen.runtime is not None
    assert seen.snapshot is not None
    assert seen.snapshot.spec == seen.runtime.spec
    assert seen.snapshot_problem is None
    assert seen.job_set is not None
    assert seen.job_set.metadata.uid == job_set["metadata"]["uid"]
    assert [p.metadata.name for p in seen.pods] == ["demo-node-0-0"]
    assert [j.metadata.name for j in seen.jobs] == ["demo-node-0"]
    assert [event.reason for event in seen.events] == ["FailedMount"]


async def test_a_runtime_of_the_namespace_is_found(cluster):
    runtime = {**RUNTIME, "kind": "TrainingRuntime", "metadata": {"name": "own", "namespace": "default"}}
    await cluster.create(runtime)
    await cluster.create({**demo(), "spec": {"runtimeRef": {"name": "own", "kind": "TrainingRuntime"}}})
    seen = await observe(cluster, KEY)
    assert seen is not None
    assert seen.runtime is not None
    assert seen.runtime.kind == "TrainingRuntime"


async def test_a_kind_that_is_no_runtime_is_not_looked_for(cluster):
    await cluster.create({**demo(), "spec": {"runtimeRef": {"name": "demo", "kind": "TrainJob"}}})
    seen = await observe(cluster, KEY)
    assert seen is not None
    assert seen.runtime is None


# Snapshots


async def test_a_runtime_edit_does_not_reach_a_job_that_began(cluster, clock):
    await submit(cluster)
    await settle(cluster, clock)
    before = await cluster.get(JOB_SET)
    await cluster.patch(
        ObjectKey("ClusterTrainingRuntime", "", "plain"), {"spec": {"mlPolicy": {"numNodes": 7}}}
    )
    await settle(cluster, clock)
    assert await cluster.get(JOB_SET) == before


async def test_a_snapshot_goes_when_the_last_job_that_names_it_is_gone(cluster, clock):
    await submit(cluster)
    await settle(cluster, clock)
    other = ObjectKey("TrainJob", "default", "other")
    await cluster.create(demo("other"))
    await reconcile(cluster, other, clock)
    clock.now += timedelta(hours=1)
    await cluster.delete(KEY)
    assert await reconcile(cluster, KEY, clock) is None
    assert len((await cluster.list("ConfigMap")).items) == 1
    await cluster.delete(other)
    await reconcile(cluster, other, clock)
    assert (await cluster.list("ConfigMap")).items == []


async def test_config_maps_of_others_are_not_swept(cluster, clock):
    await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}, "data": {}})
    clock.now += timedelta(days=1)
    await sweep_snapshots(cluster, "default", clock())
    assert len((await cluster.list("ConfigMap")).items) == 1
