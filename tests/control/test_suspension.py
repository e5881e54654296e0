"""Suspending and resuming, by hand and by Kueue; cases by their number."""

from __future__ import annotations

import copy
from typing import Any

from control.builders import runtime, step, train_job
from control.lives import as_json, get_image, resume, start, suspend
from control.world import World
from trainwright.control.actions import Patch
from trainwright.runner.controllers.jobset import decide_job_set

_TOLERATION = {"spec": {"template": {"spec": {"tolerations": [{"key": "tax", "operator": "Exists"}]}}}}


def test_a_queued_job_costs_one_write_and_two_more_when_it_is_resumed() -> None:
    first = World(train_job(suspend=True), runtime())
    first.settle()
    world = World(train_job(suspend=True), runtime())
    world.objects |= {key: obj for key, obj in first.objects.items() if key[0] == "ConfigMap"}
    world.settle()
    assert world.writes == ["patch status"]
    assert world.events == []
    world.writes.clear()
    world.patch_job(suspend=False)
    world.rest()
    assert world.writes == ["patch status", "apply JobSet"]


def test_b006_a_resumed_job_has_no_condition_and_runs_once_all_its_pods_do() -> None:
    world = World(train_job(suspend=True, num_nodes=2), runtime())
    world.settle()
    assert world.conditions() == {"Suspended": ("True", "Suspended")}
    resume(world)
    assert (world.status.phase, world.conditions()) == ("Created", {})
    [first, _] = world.pods()
    world.set_pod(
        first,
        {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": []},
    )
    world.settle()
    assert world.status.phase == "Created"
    world.run_pods()
    world.settle()
    assert (world.status.phase, world.conditions()) == ("Running", {})


def test_b010_running_and_suspended_take_turns() -> None:
    world = start()
    for _ in range(3):
        suspend(world)
        assert world.status.phase == "Suspended"
        resume(world)
        world.run_pods()
        world.settle()
        assert (world.status.phase, world.conditions()) == ("Running", {})


def test_b017_a_runtime_that_is_edited_while_the_job_queues_does_not_reach_it() -> None:
    world = World(train_job(suspend=True), runtime(step(image="one:1")))
    world.settle()
    world.put(as_json(runtime(step(image="two:2"))))
    resume(world)
    assert get_image(world) == "one:1"


def test_a_runtime_that_is_deleted_while_the_job_queues_is_not_missed() -> None:
    world = World(train_job(suspend=True), runtime(step(image="one:1")))
    world.settle()
    world.delete("TrainingRuntime", "rt")
    resume(world)
    assert get_image(world) == "one:1"
    assert world.conditions() == {}


def test_b018_patches_and_unsuspension_in_one_update_go_together() -> None:
    world = start()
    suspend(world)
    resume(world, runtimePatches=[_selector_patch("blue")])
    [job] = world.of_kind("Job")
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "blue"}


def test_b019_a_node_selector_that_is_taken_back_while_suspended_is_gone_from_the_pods() -> None:
    """JobSet merges selectors into a Job on resume and takes none away; a renewed Job starts clean."""
    world = World(train_job(suspend=True, num_nodes=2), runtime())
    world.settle()
    resume(world, runtimePatches=[_selector_patch("blue")])
    world.run_pods()
    suspend(world)
    resume(world, runtimePatches=[_selector_patch("green", "shade")])
    for pod in world.pods():
        assert pod["spec"]["nodeSelector"] == {"shade": "green"}


def test_kueue_moves_a_job_to_another_flavor_with_one_job_set_write() -> None:
    """1. Admitted on blue. 2. Evicted: suspend. 3. The pods end, `active` is zero. 4. Kueue takes its patch
    away: the clean template is applied, the Jobs are renewed. 5. Admitted on green, in two writes. 6. Only
    the unsuspending apply follows, and nothing of blue is left."""
    world = World(train_job(suspend=True, num_nodes=2), runtime())
    world.settle()
    world.patch_job(runtimePatches=[_selector_patch("blue")])
    resume(world)
    world.run_pods()
    world.settle()
    suspend(world)
    assert world.counters() == {"node": (0, 0, 0, 0, 1)}
    world.patch_job(runtimePatches=[{"manager": "kueue.x-k8s.io/manager"}])
    world.settle()
    world.writes.clear()
    world.patch_job(runtimePatches=[_selector_patch("green", "shade")])
    world.settle()
    assert world.writes == []
    world.patch_job(suspend=False)
    world.rest()
    assert world.writes == ["patch status", "apply JobSet"]
    world.settle()
    assert [pod["spec"]["nodeSelector"] for pod in world.pods()] == [{"shade": "green"}] * 2


def test_jobs_that_job_set_makes_from_what_it_knew_before_are_made_once_more() -> None:
    """1. Admitted on blue. 2. Evicted; Kueue takes its patch away. 3. The clean template is applied, and the
    Jobs are deleted. 4. JobSet hears of the Jobs first, and makes them of blue again. 5. Admitted on green:
    nothing of blue is left."""
    world = World(train_job(suspend=True, num_nodes=2), runtime())
    world.settle()
    resume(world, runtimePatches=[_selector_patch("blue")])
    world.run_pods()
    suspend(world)
    before = copy.deepcopy(world.job_set)
    assert before is not None
    world.patch_job(runtimePatches=[{"manager": "kueue.x-k8s.io/manager"}])
    world.rest()
    assert world.of_kind("Job") == []
    world.carry_out(decide_job_set(before, [], world.now))
    [stale] = world.of_kind("Job")
    assert stale["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "blue"}
    resume(world, runtimePatches=[_selector_patch("green", "shade")])
    assert [pod["spec"]["nodeSelector"] for pod in world.pods()] == [{"shade": "green"}] * 2


def test_a_job_goes_on_only_when_job_set_has_made_its_jobs_again() -> None:
    """Otherwise it might still make them from what it knew before, and merge the new into that."""
    world = World(train_job(suspend=True, num_nodes=2), runtime())
    world.settle()
    resume(world, runtimePatches=[_selector_patch("blue")])
    world.run_pods()
    suspend(world)
    world.patch_job(runtimePatches=None)
    world.rest()
    assert world.of_kind("Job") == []
    world.patch_job(suspend=False)
    world.rest()
    assert world.job_set is not None
    assert world.job_set["spec"]["suspend"] is True
    assert world.status.cause is not None
    assert world.status.cause.reason == "WaitingForJobs"
    world.settle()
    assert world.job_set["spec"]["suspend"] is False
    assert world.status.cause is None


def test_jobs_to_which_somebody_adds_whenever_they_are_made_are_not_made_anew_for_ever() -> None:
    world = start()
    suspend(world)
    world.writes.clear()
    for _ in range(10):
        for job in world.of_kind("Job"):
            world.merge("Job", job["metadata"]["name"], _TOLERATION)
        world.settle()
    assert 0 < world.writes.count("delete Job") < 5
    resume(world)
    assert world.counters() == {"node": (0, 0, 0, 1, 0)}


def test_labels_that_somebody_else_adds_to_the_job_set_cause_one_write_not_many() -> None:
    """An apply does not take away what another field manager owns, so the two never become the same."""
    world = start()
    suspend(world)
    _label_pods(world)
    world.writes.clear()
    world.rest()
    assert world.writes[0] == "apply JobSet"
    _label_pods(world)
    world.writes.clear()
    world.rest()
    assert world.writes == []


def test_b027_a_job_that_never_ran_has_no_child_object() -> None:
    world = World(train_job(suspend=True), runtime())
    world.settle()
    kinds = {kind for kind, _ in world.objects}
    assert kinds == {"TrainJob", "TrainingRuntime", "ConfigMap"}


def test_b028_labels_that_a_patch_gives_reach_the_pods_of_a_resumed_job_and_r02_leave_no_empty_map() -> None:
    world = start()
    suspend(world)
    resume(world, runtimePatches=[_label_patch({"kueue.x-k8s.io/podset": "node"})])
    assert [pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] for pod in world.pods()] == ["node"] * 2
    world.run_pods()
    suspend(world)
    resume(world, runtimePatches=None)
    assert len(world.pods()) == 2
    assert not [pod for pod in world.pods() if "kueue.x-k8s.io/podset" in pod["metadata"]["labels"]]
    assert world.job_set is not None
    assert "metadata" not in world.job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


def test_b030_a_paused_job_goes_on_with_another_node_count() -> None:
    world = start()
    suspend(world)
    resume(world, trainer={"numNodes": 5})
    assert len(world.pods()) == 5
    assert world.conditions() == {}
    assert [job["metadata"]["name"] for job in world.of_kind("Job")] == ["demo-node-0"]


def test_active_holds_until_the_last_pod_of_a_suspended_job_has_ended() -> None:
    world = start()
    world.patch_job(suspend=True)
    world.settle(ends_pods=False)
    assert world.counters() == {"node": (0, 0, 0, 1, 1)}
    first, second = world.pods()
    world.objects.pop(("Pod", first["metadata"]["name"]))
    world.settle(ends_pods=False)
    assert world.counters()["node"][3] == 1
    world.objects.pop(("Pod", second["metadata"]["name"]))
    world.settle(ends_pods=False)
    assert world.counters() == {"node": (0, 0, 0, 0, 1)}


def test_jobs_are_renewed_once_per_suspension_and_finished_ones_stay() -> None:
    setup = step("setup", ancestor="dataset-initializer")
    node = step(dependsOn=[{"name": "setup", "status": "Complete"}])
    world = World(train_job(), runtime(setup, node))
    world.settle()
    world.finish_pods("setup")
    world.settle()
    world.run_pods("node")
    for _ in range(2):
        world.settle()
        before = {job["metadata"]["name"]: job["metadata"]["uid"] for job in world.of_kind("Job")}
        world.writes.clear()
        suspend(world)
        assert world.writes.count("delete Job") == 1
        after = {job["metadata"]["name"]: job["metadata"]["uid"] for job in world.of_kind("Job")}
        assert after["demo-setup-0"] == before["demo-setup-0"]
        assert after["demo-node-0"] != before["demo-node-0"]
        resume(world)
        world.run_pods("node")


def test_a_pod_that_answers_sigterm_with_success_does_not_count_as_work_after_the_resume() -> None:
    world = start()
    world.patch_job(suspend=True)
    world.settle(ends_pods=False)
    for pod in world.pods():
        status = {"phase": "Succeeded", "containerStatuses": []}
        world.set_pod(pod, status)
    world.settle()
    resume(world)
    assert world.counters() == {"node": (0, 0, 0, 1, 0)}
    assert len([pod for pod in world.pods() if (pod.get("status") or {}).get("phase") != "Succeeded"]) == 2


def test_a_resume_that_comes_before_the_pods_have_ended_waits_for_them() -> None:
    """1. Suspended. 2. The pods get their grace period. 3. Resumed meanwhile. 4. Nothing is applied yet, the
    status says what it waits for. 5. The pods end. 6. The Jobs are renewed and the job runs."""
    world = start()
    world.patch_job(suspend=True)
    world.settle(ends_pods=False)
    world.patch_job(suspend=False)
    world.settle(ends_pods=False)
    assert world.job_set is not None
    assert world.job_set["spec"]["suspend"] is True
    assert world.status.cause is not None
    assert world.status.cause.reason == "WaitingForPods"
    world.settle()
    assert world.job_set["spec"]["suspend"] is False
    assert world.status.cause is None


def test_a_refused_suspension_is_told_and_tried_again() -> None:
    world = start()
    world.refuse = lambda action: ("Forbidden", "webhook says no") if isinstance(action, Patch) else None
    world.patch_job(suspend=True)
    world.reconcile()
    assert world.conditions() == {
        "Suspended": ("True", "Suspended"),
        "ResourcesCreated": ("False", "Forbidden"),
    }
    world.refuse = lambda _: None
    world.wait(2)
    world.settle()
    assert world.conditions() == {"Suspended": ("True", "Suspended")}
    assert world.pods() == []


def test_r09_a_trainer_block_that_is_added_while_suspended_makes_the_job_set_anew() -> None:
    world = start(train_job())
    suspend(world)
    resume(world, trainer={"image": "other:1"})
    assert get_image(world) == "other:1"
    assert world.conditions() == {}


def _label_pods(world: World) -> None:
    assert world.job_set is not None
    template = world.job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"] = {"labels": {"team": "x"}}


def _selector_patch(value: str, key: str = "pool") -> dict[str, Any]:
    pod = {"spec": {"nodeSelector": {key: value}}}
    node = {"name": "node", "template": {"spec": {"template": pod}}}
    spec = {"template": {"spec": {"replicatedJobs": [node]}}}
    return {"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": spec}


def _label_patch(labels: dict[str, str]) -> dict[str, Any]:
    node = {"name": "node", "template": {"spec": {"template": {"metadata": {"labels": labels}}}}}
    spec = {"template": {"spec": {"replicatedJobs": [node]}}}
    return {"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": spec}
