"""A container that the kubelet starts again and again is one cause, until it runs for longer than it did."""

from __future__ import annotations

from datetime import timedelta

import pytest

from control.builders import runtime as build_runtime
from control.builders import step, train_job
from control.troubled_pods import POD, WHO, container
from control.world import JOB, World
from trainwright.api.meta import Json
from trainwright.api.trainjob import Cause
from trainwright.control.hints import HINTS


class Kubelet:
    """A world with one pod, and what the kubelet writes of its container as it fails and runs again."""

    def __init__(self, policy: str = "OnFailure") -> None:
        self.world = World(train_job(), build_runtime(step(pod={"restartPolicy": policy})))
        self.world.settle()
        self.started = self.world.now
        self.restarts = 0
        self.last: Json = {}

    def fail(self, after_seconds: int = 5, code: int = 3, reason: str = "Error") -> None:
        self.world.wait(after_seconds)
        ended = {
            "exitCode": code,
            "reason": reason,
            "startedAt": self.started.isoformat(),
            "finishedAt": self.world.now.isoformat(),
        }
        self._write({"terminated": ended})
        self.last = {"terminated": ended}

    def back_off(self) -> None:
        self._write({"waiting": {"reason": "CrashLoopBackOff", "message": f"back-off {self.restarts}0s"}})

    def start(self, after_seconds: int = 10) -> None:
        self.world.wait(after_seconds)
        self.restarts += 1
        self.started = self.world.now
        self._write({"running": {"startedAt": self.started.isoformat()}}, ready=True)

    def _write(self, state: Json, *, ready: bool = False) -> None:
        status = {**container(state), "ready": ready, "restartCount": self.restarts, "lastState": self.last}
        self.world.set_pods({"phase": "Running", "containerStatuses": [status]})
        self.world.rest()

    @property
    def cause(self) -> Cause | None:
        return self.world.status.cause


def crash_cause(times: str, since: object) -> Cause:
    return Cause(
        layer="Container",
        kind="Pod",
        name=POD,
        reason="CrashLoopBackOff",
        message=f"{WHO}: container node exited with code 3 (failed {times}, restarted in place)",
        hint=HINTS["CrashLoopBackOff"].replace("NAME", JOB),
        since=since,  # type: ignore[arg-type]
    )


def test_a_failure_its_pause_and_the_next_start_are_one_cause_and_one_write() -> None:
    kubelet = Kubelet()
    kubelet.world.writes.clear()
    kubelet.fail()
    first = kubelet.world.now
    assert kubelet.cause == crash_cause("once", first)
    kubelet.back_off()
    kubelet.start()
    assert kubelet.cause == crash_cause("once", first)
    assert kubelet.world.writes == ["patch status"]


def test_restarts_are_counted_in_few_writes_and_since_stays() -> None:
    kubelet = Kubelet()
    kubelet.world.writes.clear()
    for number in range(1, 16):
        kubelet.fail()
        if number == 1:
            first = kubelet.world.now
        kubelet.back_off()
        kubelet.start()
    assert kubelet.cause == crash_cause("8 or more times", first)
    assert kubelet.world.writes == ["patch status"] * 5  # 1, 2, 3, 4 and 8 failures
    assert [event.reason for event in kubelet.world.events] == ["CrashLoopBackOff"]


@pytest.mark.parametrize(
    ("ran", "recovered_after"),
    [(1, 60), (100, 200), (1_000, 600)],
    ids=["a minute at the least", "twice as long as it ran", "ten minutes at the most"],
)
def test_a_container_that_runs_on_has_recovered_after(ran: int, recovered_after: int) -> None:
    kubelet = Kubelet()
    kubelet.fail(after_seconds=ran)
    kubelet.back_off()
    kubelet.start()
    assert kubelet.world.requeue == recovered_after
    kubelet.world.wait(recovered_after - 1)
    kubelet.world.rest()
    assert kubelet.cause is not None
    kubelet.world.wait(1)
    kubelet.world.rest()
    assert kubelet.cause is None
    assert kubelet.world.requeue is None


def test_one_that_fails_again_before_it_has_recovered_never_looks_well() -> None:
    kubelet = Kubelet()
    for _ in range(3):
        kubelet.fail(after_seconds=200)
        kubelet.back_off()
        kubelet.start(after_seconds=300)
        kubelet.world.wait(199)
        kubelet.world.rest()
        assert kubelet.cause is not None


def test_a_trouble_with_a_name_of_its_own_keeps_it() -> None:
    kubelet = Kubelet()
    kubelet.fail(code=137, reason="OOMKilled")
    kubelet.back_off()
    kubelet.start()
    assert kubelet.cause is not None
    assert (kubelet.cause.reason, kubelet.cause.message) == (
        "OOMKilled",
        f"{WHO}: container node ran out of memory (OOMKilled, exit code 137) (failed once, restarted in "
        "place)",
    )


def test_a_container_of_a_pod_that_is_never_restarted_has_ended() -> None:
    kubelet = Kubelet(policy="Never")
    kubelet.fail()
    assert kubelet.cause is not None
    assert (kubelet.cause.reason, kubelet.cause.message) == (
        "NonZeroExit",
        f"{WHO}: container node exited with code 3",
    )


def test_the_last_words_survive_the_deletion_that_ends_the_new_run() -> None:
    """1. The program fails and starts again. 2. The Job has had enough of restarts and deletes the pod.

    3. The new run ends by SIGKILL, which nobody would take for the cause.
    """
    kubelet = Kubelet()
    kubelet.fail()
    kubelet.back_off()
    kubelet.start()
    told = kubelet.cause
    world = kubelet.world
    world.wait(1)
    began = world.now
    for pod in world.pods():
        meta = {
            "deletionTimestamp": (began + timedelta(seconds=30)).isoformat(),
            "deletionGracePeriodSeconds": 30,
        }
        world.merge("Pod", pod["metadata"]["name"], {"metadata": meta})
    kubelet.fail(after_seconds=30, code=137)
    assert kubelet.cause == told
