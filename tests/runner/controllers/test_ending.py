"""How a job ends whose processes are gone: at every layer, with one reason and message."""

from __future__ import annotations

from runner.world import NOW, World, job_set, replicated_job
from trainwright.runner.controllers.actions import WriteStatus
from trainwright.runner.controllers.ending import End, build_end

END = End("SupervisorLost", "the supervisor (pid 7) died")
NOW_TEXT = "2026-01-01T12:00:00Z"


def build(world: World) -> dict[tuple[str, str], dict]:
    writes = build_end(world.job_set, world.of_kind("Job"), world.of_kind("Pod"), END, NOW)
    assert all(isinstance(write, WriteStatus) for write in writes)
    assert [write.key.kind for write in writes] == sorted(
        (write.key.kind for write in writes), key=["Pod", "Job", "JobSet"].index
    )
    return {(write.key.kind, write.key.name): write.status for write in writes}


def test_pods_jobs_and_the_jobset_fail_with_the_same_reason() -> None:
    world = World(job_set(replicated_job(pods=1)))
    world.settle()
    world.set_pods("Running")
    world.settle()
    (pod,) = world.pods()

    assert build(world) == {
        ("Pod", pod["metadata"]["name"]): {
            "phase": "Failed",
            "reason": "SupervisorLost",
            "message": "the supervisor (pid 7) died",
            "containerStatuses": [
                {
                    "name": "node",
                    "state": {
                        "terminated": {
                            "exitCode": 137,
                            "reason": "SupervisorLost",
                            "message": "the supervisor (pid 7) died",
                            "finishedAt": NOW_TEXT,
                        }
                    },
                    "lastState": {},
                }
            ],
        },
        ("Job", "demo-node-0"): {
            "failed": 1,
            "startTime": NOW_TEXT,
            "conditions": [
                {
                    "type": kind,
                    "status": "True",
                    "reason": "SupervisorLost",
                    "message": "the supervisor (pid 7) died",
                    "lastTransitionTime": NOW_TEXT,
                }
                for kind in ("FailureTarget", "Failed")
            ],
        },
        ("JobSet", "demo"): {
            "terminalState": "Failed",
            "conditions": [
                {
                    "type": "Failed",
                    "status": "True",
                    "reason": "SupervisorLost",
                    "message": "the supervisor (pid 7) died",
                    "lastTransitionTime": NOW_TEXT,
                }
            ],
            "replicatedJobsStatus": [
                {"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
            ],
        },
    }


def test_what_had_ended_before_stays_as_it_was() -> None:
    world = World(job_set(replicated_job("a"), replicated_job("b")))
    world.settle()
    world.set_pods("Succeeded", "demo-a-0")
    world.settle()

    written = build(world)
    assert ("Job", "demo-a-0") not in written
    assert [key for key in written if key[0] == "Pod"] == [
        ("Pod", world.pods("demo-b-0")[0]["metadata"]["name"])
    ]


def test_a_finished_jobset_is_left_alone() -> None:
    world = World(job_set())
    world.settle()
    world.set_pods("Succeeded")
    world.settle()

    assert build(world) == {}


def test_a_job_set_that_was_ended_asks_for_nothing_more() -> None:
    """The pod failed, and its backoff limit of 3 would allow another: nothing comes of that."""
    world = World(job_set(replicated_job(job={"backoffLimit": 3})))
    world.settle()
    world.set_pods("Running")
    world.settle()
    world.perform(build_end(world.job_set, world.of_kind("Job"), world.of_kind("Pod"), END, NOW))
    world.wait(600)
    world.settle()

    assert len(world.pods()) == 1
    assert set(world.conditions()) == {"Failed"}
    assert world.counters() == {"node": (0, 0, 1, 0, 0)}
