"""The JobSet controller: what it makes, and what becomes of it (spec 02, section 14)."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.world import NOW, World, job_set, replicated_job
from trainwright.runner.controllers.jobset import decide_job_set

PREFIX = "jobset.sigs.k8s.io/"


def test_a_child_job_is_the_template_with_jobsets_labels_and_annotations() -> None:
    world = World(
        job_set(
            replicated_job("init"),
            replicated_job(
                "node",
                replicas=2,
                pods=3,
                groupName="workers",
                metadata={"labels": {"mine": "1"}, "annotations": {"note": "x"}},
                pod={"unknownField": {"kept": True}},
            ),
        )
    )
    world.step()

    labels = {
        f"{PREFIX}jobset-name": "demo",
        f"{PREFIX}jobset-uid": "js-uid",
        f"{PREFIX}replicatedjob-name": "node",
        f"{PREFIX}replicatedjob-replicas": "2",
        f"{PREFIX}global-replicas": "3",
        f"{PREFIX}job-index": "1",
        f"{PREFIX}job-global-index": "2",
        f"{PREFIX}job-key": hashlib.sha1(b"ns/demo-node-1").hexdigest(),
        f"{PREFIX}group-name": "workers",
        f"{PREFIX}group-replicas": "2",
        f"{PREFIX}job-group-index": "1",
        f"{PREFIX}restart-attempt": "0",
    }
    job = world.jobs()["demo-node-1"]
    assert {key: value for key, value in job.items() if key != "status"} == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "demo-node-1",
            "namespace": "ns",
            "uid": job["metadata"]["uid"],
            "labels": {"mine": "1", **labels},
            "annotations": {"note": "x", **labels},
            "ownerReferences": [
                {
                    "apiVersion": "jobset.x-k8s.io/v1alpha2",
                    "kind": "JobSet",
                    "name": "demo",
                    "uid": "js-uid",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "backoffLimit": 0,
            "completionMode": "Indexed",
            "parallelism": 3,
            "completions": 3,
            "suspend": False,
            "template": {
                "metadata": {"labels": labels, "annotations": labels},
                "spec": {
                    "restartPolicy": "Never",
                    "subdomain": "demo",
                    "unknownField": {"kept": True},
                    "containers": [{"name": "node", "image": "i"}],
                },
            },
        },
    }


def test_a_template_that_says_nothing_is_indexed_and_restarts_on_failure() -> None:
    bare = {"name": "node", "template": {"spec": {"template": {"spec": {"containers": []}}}}}
    world = World(job_set(bare))
    world.perform(decide_job_set(world.job_set, [], NOW))

    spec = world.jobs()["demo-node-0"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["template"]["spec"]["restartPolicy"] == "OnFailure"


def test_a_coordinator_is_named_on_every_job() -> None:
    coordinator = {"replicatedJob": "node", "podIndex": 1}
    world = World(job_set(coordinator=coordinator, network={"subdomain": "net"}))
    world.step()

    labels = world.jobs()["demo-node-0"]["metadata"]["labels"]
    assert labels[f"{PREFIX}coordinator"] == "demo-node-0-1.net"


def test_host_names_can_be_switched_off() -> None:
    world = World(job_set(network={"enableDNSHostnames": False}))
    world.step()

    assert "subdomain" not in world.jobs()["demo-node-0"]["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("manager", "jobs"), [("jobset.sigs.k8s.io/jobset-controller", 1), ("kueue.x/other", 0)]
)
def test_a_jobset_that_another_controller_manages_is_left_alone(manager: str, jobs: int) -> None:
    world = World(job_set(managedBy=manager))
    world.settle()

    assert len(world.jobs()) == jobs


def test_a_job_of_the_same_name_that_is_not_ours_is_neither_counted_nor_deleted() -> None:
    world = World(job_set())
    foreign = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "demo-node-0"},
        "spec": {"template": {}},
    }
    world.create(foreign)
    world.perform(decide_job_set(world.job_set, world.of_kind("Job"), NOW))

    assert world.counters() == {"node": (0, 0, 0, 0, 0)}


def test_all_counters_are_written_in_descending_order_of_names() -> None:
    world = World(job_set(replicated_job("a"), replicated_job("c"), replicated_job("b")))
    world.settle()

    assert world.job_set["status"] == {
        "replicatedJobsStatus": [
            {"name": name, "ready": 0, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
            for name in ("c", "b", "a")
        ]
    }


def test_a_job_is_ready_while_all_its_pods_are_ready_or_succeeded() -> None:
    world = World(job_set(replicated_job(pods=2)))
    world.settle()
    first, second = world.pods()
    world.set_pod(first, "Running")
    world.settle()
    assert world.counters() == {"node": (0, 0, 0, 1, 0)}

    world.set_pod(second, "Succeeded")
    world.settle()
    assert world.counters() == {"node": (1, 0, 0, 1, 0)}


class TestSuccess:
    def test_all_jobs_of_all_replicated_jobs_have_to_succeed(self) -> None:
        world = World(job_set(replicated_job("a"), replicated_job("b", replicas=2)))
        world.settle()
        world.set_pods("Succeeded", "demo-a-0")
        world.set_pods("Succeeded", "demo-b-0")
        world.settle()
        assert world.conditions() == {}

        world.set_pods("Succeeded", "demo-b-1")
        world.settle()
        assert world.conditions() == {
            "Completed": ("True", "AllJobsCompleted", "jobset completed successfully")
        }
        assert world.job_set["status"]["terminalState"] == "Completed"
        assert world.counters() == {"a": (0, 1, 0, 0, 0), "b": (0, 2, 0, 0, 0)}

    def test_only_the_targets_have_to_succeed_and_the_rest_is_deleted(self) -> None:
        policy = {"operator": "All", "targetReplicatedJobs": ["launcher"]}
        world = World(job_set(replicated_job("launcher"), replicated_job("node"), successPolicy=policy))
        world.settle()
        world.set_pods("Running", "demo-node-0")
        world.set_pods("Succeeded", "demo-launcher-0")
        world.settle()

        assert world.conditions()["Completed"][1] == "AllJobsCompleted"
        assert set(world.jobs()) == {"demo-launcher-0"}
        assert world.pods("demo-node-0") == []
        assert world.counters() == {"launcher": (0, 1, 0, 0, 0), "node": (0, 0, 0, 0, 0)}

    def test_any_job_is_enough_with_operator_any_case_b014(self) -> None:
        policy = {"operator": "Any"}
        spec = {"successPolicy": policy, "ttlSecondsAfterFinished": 600}
        world = World(job_set(replicated_job("a"), replicated_job("b"), **spec))
        world.settle()
        world.set_pods("Running", "demo-b-0")
        world.set_pods("Succeeded", "demo-a-0")
        world.settle()

        assert "Completed" in world.conditions()
        assert set(world.jobs()) == {"demo-a-0"}


class TestStartup:
    def test_complete_waits_for_every_job_of_the_dependency(self) -> None:
        depends = [{"name": "init", "status": "Complete"}]
        world = World(job_set(replicated_job("init", replicas=2), replicated_job("node", dependsOn=depends)))
        world.settle()
        world.set_pods("Succeeded", "demo-init-0")
        world.settle()
        assert set(world.jobs()) == {"demo-init-0", "demo-init-1"}

        world.set_pods("Succeeded", "demo-init-1")
        world.settle()
        assert set(world.jobs()) == {"demo-init-0", "demo-init-1", "demo-node-0"}

    def test_ready_waits_until_the_dependency_is_ready(self) -> None:
        depends = [{"name": "server", "status": "Ready"}]
        world = World(job_set(replicated_job("server"), replicated_job("node", dependsOn=depends)))
        world.settle()
        assert set(world.jobs()) == {"demo-server-0"}

        world.set_pods("Running")
        world.settle()
        assert set(world.jobs()) == {"demo-server-0", "demo-node-0"}

    def test_what_depends_on_a_failed_job_never_starts(self) -> None:
        depends = [{"name": "init", "status": "Complete"}]
        world = World(job_set(replicated_job("init"), replicated_job("node", dependsOn=depends)))
        world.settle()
        world.set_pods("Failed")
        world.settle()

        assert set(world.jobs()) == {"demo-init-0"}
        assert world.conditions()["Failed"][2].endswith("(first failed job: demo-init-0)")

    def test_in_order_starts_one_replicated_job_after_the_other(self) -> None:
        policy = {"startupPolicyOrder": "InOrder"}
        world = World(job_set(replicated_job("a"), replicated_job("b"), startupPolicy=policy))
        world.settle()
        assert set(world.jobs()) == {"demo-a-0"}
        assert world.conditions() == {
            "StartupPolicyInProgress": (
                "True",
                "InOrderStartupPolicyInProgress",
                "in order startup policy is in progress",
            )
        }

        world.set_pods("Running")
        world.settle()
        assert set(world.jobs()) == {"demo-a-0", "demo-b-0"}

        world.set_pods("Running")
        world.settle()
        conditions = world.conditions()
        assert conditions["StartupPolicyInProgress"][0] == "False"
        assert conditions["StartupPolicyCompleted"] == (
            "True",
            "InOrderStartupPolicyCompleted",
            "in order startup policy has completed",
        )


class TestSuspend:
    def test_a_suspended_jobset_has_suspended_jobs_and_no_pods(self) -> None:
        depends = [{"name": "a", "status": "Complete"}]
        world = World(job_set(replicated_job("a"), replicated_job("b", dependsOn=depends), suspend=True))
        world.settle()

        assert {name: job["spec"]["suspend"] for name, job in world.jobs().items()} == {"demo-a-0": True}
        assert world.pods() == []
        assert world.conditions() == {"Suspended": ("True", "SuspendedJobs", "jobset is suspended")}
        assert world.counters() == {"a": (0, 0, 0, 0, 1), "b": (0, 0, 0, 0, 0)}

    def test_suspending_stops_the_pods_and_resuming_makes_new_ones(self) -> None:
        world = World(job_set(replicated_job(pods=2)))
        world.settle()
        world.set_pods("Running")
        world.settle()
        before = {pod["metadata"]["name"] for pod in world.pods()}

        world.patch("JobSet", "demo", {"spec": {"suspend": True}})
        world.settle()
        assert world.pods() == []
        assert world.counters() == {"node": (0, 0, 0, 0, 1)}

        world.patch("JobSet", "demo", {"spec": {"suspend": False}})
        world.settle()
        assert len(world.pods()) == 2
        assert before.isdisjoint(pod["metadata"]["name"] for pod in world.pods())
        assert world.conditions() == {"Suspended": ("False", "ResumeJobs", "jobset is resumed")}

    def test_resuming_merges_what_changed_in_the_template_meanwhile(self) -> None:
        toleration = {"key": "a"}
        world = World(
            job_set(
                replicated_job(pod={"nodeSelector": {"old": "1"}, "tolerations": [toleration]}), suspend=True
            )
        )
        world.settle()
        changed = replicated_job(
            pod={"nodeSelector": {"new": "2"}, "tolerations": [toleration, {"key": "b"}]}
        )
        changed["template"]["spec"]["template"]["metadata"] = {"labels": {"queue": "q"}}
        world.patch("JobSet", "demo", {"spec": {"suspend": False, "replicatedJobs": [changed]}})
        world.settle()

        template = world.jobs()["demo-node-0"]["spec"]["template"]
        assert template["spec"]["nodeSelector"] == {"old": "1", "new": "2"}
        assert template["spec"]["tolerations"] == [toleration, {"key": "b"}]
        assert template["metadata"]["labels"]["queue"] == "q"
        assert template["metadata"]["labels"][f"{PREFIX}jobset-name"] == "demo"

    def test_a_jobset_that_was_never_suspended_has_no_such_condition(self) -> None:
        world = World(job_set(suspend=False))
        world.settle()

        assert world.conditions() == {}


class TestTimeToLive:
    def test_a_finished_jobset_goes_after_its_time(self) -> None:
        world = World(job_set(ttlSecondsAfterFinished=60))
        world.settle()
        world.set_pods("Succeeded")
        world.settle()
        world.wait(59)
        world.settle()
        assert world.of_kind("JobSet")

        world.wait(1)
        world.settle()
        assert world.objects == {}

    def test_zero_seconds_delete_at_once_but_not_before_it_was_seen_to_finish(self) -> None:
        world = World(job_set(ttlSecondsAfterFinished=0))
        world.settle()
        world.set_pods("Succeeded")
        world.step()
        assert world.of_kind("JobSet")
        world.settle()
        assert world.objects == {}


POLICY = {"templates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]}
MOUNT = {"containers": [{"name": "node", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}


class TestClaims:
    def test_a_claim_is_made_once_and_mounted_by_who_asks_for_it(self) -> None:
        world = World(
            job_set(replicated_job("a", pod=MOUNT), replicated_job("b"), volumeClaimPolicies=[POLICY])
        )
        world.settle()

        (claim,) = world.of_kind("PersistentVolumeClaim")
        assert claim["metadata"]["name"] == "data-demo"
        assert claim["metadata"]["labels"] == {f"{PREFIX}jobset-name": "demo"}
        assert claim["metadata"]["ownerReferences"][0]["uid"] == "js-uid"
        spec = {name: job["spec"]["template"]["spec"] for name, job in world.jobs().items()}
        volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data-demo"}}
        assert spec["demo-a-0"]["volumes"] == [volume]
        assert "volumes" not in spec["demo-b-0"]

    def test_a_claim_that_is_retained_has_no_owner(self) -> None:
        policy = {**POLICY, "retentionPolicy": {"whenDeleted": "Retain"}}
        world = World(job_set(volumeClaimPolicies=[policy]))
        world.settle()

        (claim,) = world.of_kind("PersistentVolumeClaim")
        assert "ownerReferences" not in claim["metadata"]


@st.composite
def histories(draw: st.DrawFn) -> tuple[dict, list[tuple[str, int]]]:
    """Return a JobSet and a list of (what happens to which pod)."""
    replicated = [
        replicated_job(
            f"r{number}",
            replicas=draw(st.integers(1, 2)),
            pods=draw(st.integers(1, 3)),
            job={"backoffLimit": draw(st.integers(0, 2))},
            **(
                {"dependsOn": [{"name": "r0", "status": draw(st.sampled_from(["Ready", "Complete"]))}]}
                if number
                else {}
            ),
        )
        for number in range(draw(st.integers(1, 2)))
    ]
    spec = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "failurePolicy": st.fixed_dictionaries(
                    {
                        "maxRestarts": st.integers(0, 2),
                        "restartStrategy": st.sampled_from(["Recreate", "BlockingRecreate"]),
                    }
                ),
                "successPolicy": st.fixed_dictionaries({"operator": st.sampled_from(["All", "Any"])}),
            },
        )
    )
    events = st.tuples(
        st.sampled_from(["Running", "Succeeded", "Failed", "toggle", "wait"]), st.integers(0, 7)
    )
    return job_set(*replicated, **spec), draw(st.lists(events, max_size=12))


@given(histories())
def test_any_history_comes_to_rest_within_its_limits(history: tuple[dict, list[tuple[str, int]]]) -> None:
    start, events = history
    world = World(start)
    finished = False
    for event, number in events:
        world.settle()
        finished = _check_invariants(world, finished)
        if event == "toggle":
            world.patch(
                "JobSet", "demo", {"spec": {"suspend": not world.job_set["spec"].get("suspend", False)}}
            )
        elif event == "wait":
            world.wait(120)
        elif open_pods := [
            p for p in world.pods() if (p.get("status") or {}).get("phase") in {None, "Running"}
        ]:
            world.set_pod(open_pods[number % len(open_pods)], event)
    world.settle()
    _check_invariants(world, finished)
    assert not world.step(), "the controllers write although nothing changed"


def _check_invariants(world: World, finished: bool) -> bool:
    status = world.job_set.get("status") or {}
    ended = {"Completed", "Failed"} & {c for c, (state, *_) in world.conditions().items() if state == "True"}
    assert len(ended) <= 1
    assert not finished or ended, "a finished JobSet came back to life"
    limit = (world.job_set["spec"].get("failurePolicy") or {}).get("maxRestarts", 0)
    assert status.get("restarts", 0) <= limit
    for job in world.of_kind("Job"):
        active = [
            pod
            for pod in world.pods(job["metadata"]["name"])
            if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}
        ]
        assert len(active) <= job["spec"]["parallelism"]
        indexes = [pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in active]
        assert len(set(indexes)) == len(indexes), "two pods of one rank"
        assert set(map(int, indexes)) <= set(range(job["spec"]["completions"]))
        assert not (active and (ended or world.job_set["spec"].get("suspend")))
    return bool(ended)
