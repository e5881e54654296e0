"""What must hold in every history: hypothesis plays the world in any order and looks after each step."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from control.builders import QUEUE_LABELS, runtime, step, train_job
from control.world import JOB, World, refuse_kind
from trainwright.api.constants import STOP_ANNOTATION
from trainwright.api.trainjob import TrainJobStatus
from trainwright.control import decide
from trainwright.control.actions import Apply, Patch
from trainwright.control.status import find_finished_condition

TWO_STEPS = runtime(
    step("setup", ancestor="dataset-initializer"),
    step(dependsOn=[{"name": "setup", "status": "Complete"}]),
    failurePolicy={"maxRestarts": 1},
)


class Life(RuleBasedStateMachine):
    """A TrainJob among users, controllers, a kubelet and an API server that act in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world: World
        self.was_resumed = False
        self.final: TrainJobStatus | None = None
        self.may_end_early = False

    @initialize(
        suspend=st.booleans(),
        queued=st.booleans(),
        deadline=st.none() | st.integers(1, 3000),
        ttl=st.none() | st.integers(0, 300),
        forgets=st.booleans(),
        may_end_early=st.booleans(),
    )
    def begin(
        self,
        suspend: bool,
        queued: bool,
        deadline: int | None,
        ttl: int | None,
        forgets: bool,
        may_end_early: bool,
    ) -> None:
        job = train_job(
            num_nodes=2,
            suspend=suspend,
            labels=QUEUE_LABELS if queued else None,
            active_deadline_seconds=deadline,
            ttl_seconds_after_finished=ttl,
        )
        self.world = World(job, TWO_STEPS)
        self.world.forgets_refusals = forgets
        self.was_resumed = not suspend
        self.may_end_early = may_end_early

    def is_there(self) -> bool:
        return ("TrainJob", JOB) in self.world.objects

    # --- what may happen

    @precondition(is_there)
    @rule()
    def decide(self) -> None:
        self.world.reconcile()

    @precondition(is_there)
    @rule(suspend=st.booleans())
    def suspend_or_resume(self, suspend: bool) -> None:
        self.world.patch_job(suspend=suspend)
        self.was_resumed = self.was_resumed or not suspend

    @precondition(is_there)
    @rule(nodes=st.integers(1, 3))
    def rescale(self, nodes: int) -> None:
        spec = self.world.job.spec
        if spec is not None and spec.suspend:
            self.world.patch_job(trainer={"numNodes": nodes})

    @precondition(is_there)
    @rule(pool=st.sampled_from(["blue", "green"]) | st.none())
    def patch(self, pool: str | None) -> None:
        spec = self.world.job.spec
        if spec is not None and spec.suspend:
            self.world.patch_job(runtimePatches=[_selector(pool)] if pool else None)

    @rule()
    def controllers(self) -> None:
        self.world.run_controllers()

    @precondition(is_there)
    @rule(ends_pods=st.booleans(), role=st.sampled_from(["setup", "node"]) | st.none())
    def all_is_well_for_a_while(self, ends_pods: bool, role: str | None) -> None:
        self.world.settle(ends_pods=ends_pods)
        self.world.run_pods()
        self.world.settle(ends_pods=ends_pods)
        if role is not None:
            self.world.finish_pods(role)

    @rule()
    def grace_ends(self) -> None:
        self.world.end_pods()

    @rule()
    def pods_run(self) -> None:
        self.world.run_pods()

    @rule(role=st.sampled_from(["setup", "node"]))
    def pods_succeed(self, role: str) -> None:
        self.world.finish_pods(role)

    @precondition(lambda self: self.may_end_early)
    @rule(rank=st.integers(0, 2), code=st.sampled_from([1, 137, 143]))
    def pod_fails(self, rank: int, code: int) -> None:
        self.world.fail_pod(rank, code)

    @rule(seconds=st.sampled_from([0.4, 1, 7, 120]))
    def time_passes(self, seconds: float) -> None:
        self.world.wait(seconds)

    @rule()
    def somebody_deletes_the_job_set(self) -> None:
        self.world.delete("JobSet", JOB)

    @rule()
    def somebody_deletes_the_snapshots(self) -> None:
        for kind, name in list(self.world.objects):
            if kind == "ConfigMap":
                self.world.delete(kind, name)

    @rule(image=st.sampled_from(["one:1", "two:2"]))
    def somebody_edits_the_runtime(self, image: str) -> None:
        self.world.merge("TrainingRuntime", "rt", {"metadata": {"annotations": {"image": image}}})

    @precondition(lambda self: self.is_there() and self.may_end_early)
    @rule()
    def stop(self) -> None:
        self.world.annotate_job(**{STOP_ANNOTATION: "2026-01-01T12:00:00Z"})

    @rule(kind=st.sampled_from(["JobSet", "ConfigMap"]) | st.none())
    def quota(self, kind: str | None) -> None:
        self.world.refuse = refuse_kind(kind) if kind else lambda _: None

    # --- what must hold

    @invariant()
    def a_job_that_was_never_unsuspended_has_no_child(self) -> None:
        if hasattr(self, "world") and not self.was_resumed:
            assert self.world.job_set is None

    @invariant()
    def terminal_is_final(self) -> None:
        if not hasattr(self, "world") or not self.is_there():
            return
        status = self.world.status
        if self.final is not None:
            assert status == self.final
        elif find_finished_condition(status) is not None:
            self.final = status

    @invariant()
    def conditions_are_of_four_types_and_each_once(self) -> None:
        if not hasattr(self, "world") or not self.is_there():
            return
        types = [c.type for c in self.world.status.conditions or ()]
        assert len(types) == len(set(types))
        assert set(types) <= {"Suspended", "ResourcesCreated", "Complete", "Failed"}

    @invariant()
    def no_two_pods_of_one_rank_work_at_once(self) -> None:
        """An old and a new run side by side would be the one job run twice."""
        if not hasattr(self, "world"):
            return
        working = [
            (pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"])
            for pod in self.world.pods()
            if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]
        assert len(set(working)) <= 1

    def teardown(self) -> None:
        """Left alone, the world comes to rest, and a further look writes nothing."""
        if not hasattr(self, "world"):
            return
        self.world.refuse = lambda _: None
        for _ in range(6):
            if not self.is_there():
                return
            self.world.wait(61)  # the longest pause before a refused write is tried again
            self.world.settle()
        if not self.is_there():
            return
        before = list(self.world.writes)
        self.world.reconcile()
        assert self.world.writes == before
        if self.final is not None:
            assert self.world.status == self.final


def _selector(pool: str) -> dict[str, Any]:
    pod = {"spec": {"nodeSelector": {"pool": pool}}}
    node = {"name": "node", "template": {"spec": {"template": pod}}}
    spec = {"template": {"spec": {"replicatedJobs": [node]}}}
    return {"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": spec}


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

# One run: what happens to its pods. The order of looks in between is what varies.
STORIES = {
    "complete": ["run", "finish"],
    "failed": ["run", "fail"],
    "restarted, then complete": ["run", "fail", "run", "finish"],
    "suspended, resumed, complete": ["run", "suspend", "resume", "run", "finish"],
}


def _play(story: list[str], looks: list[int]) -> TrainJobStatus:
    """Play the story; between two steps, `decide` looks as often as told, at least once where it must act."""
    restarts = {"maxRestarts": 1} if "restarted" in str(story) or story.count("run") > 1 else None
    world = World(train_job(num_nodes=2), runtime(**({"failurePolicy": restarts} if restarts else {})))
    world.settle()
    for event, count in zip(story, looks, strict=True):
        match event:
            case "run":
                world.run_pods()
            case "finish":
                world.finish_pods()
            case "fail":
                world.fail_pod(1, 3)
            case "suspend" | "resume":
                world.patch_job(suspend=event == "suspend")
                world.settle()
        for _ in range(count):
            world.reconcile()
        world.run_controllers()
        for _ in range(count):
            world.reconcile()
        world.end_pods()
        world.run_controllers()
    world.settle()
    return world.status


@given(data=st.data(), story=st.sampled_from(list(STORIES.values())))
def test_however_often_one_looked_on_the_way_the_end_is_the_same(
    data: st.DataObject, story: list[str]
) -> None:
    looks = data.draw(st.lists(st.integers(0, 3), min_size=len(story), max_size=len(story)))
    assert _play(story, looks) == _play(story, [1] * len(story))


@given(order=st.permutations(range(4)), repeat=st.lists(st.integers(0, 3), max_size=3))
def test_the_order_and_repetition_of_what_is_observed_is_no_matter(
    order: list[int], repeat: list[int]
) -> None:
    """Four ranks fail in one second; their pods are seen in any order, some of them again."""
    world = World(train_job(num_nodes=4), runtime())
    world.settle()
    for rank, code in enumerate((1, 5, 143, 3)):
        world.fail_pod(rank, code)
    world.run_controllers()
    seen = world.seen()
    pods = tuple(seen.pods[index] for index in order) + tuple(seen.pods[index] for index in repeat)
    shuffled = msgspec.structs.replace(seen, pods=pods, jobs=seen.jobs * 2)
    assert decide(shuffled, world.now) == decide(seen, world.now)


@given(st.integers(0, 5))
def test_a_pass_after_the_actions_writes_nothing(looks: int) -> None:
    world = World(train_job(num_nodes=2), runtime())
    world.reconcile()
    for _ in range(looks):
        assert [a for a in world.reconcile() if isinstance(a, Apply | Patch)] == []
