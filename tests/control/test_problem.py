"""Refused writes: told first, tried again later, cut to what a status can hold."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from control.builders import runtime, train_job
from control.lives import start
from control.world import JOB, NOW, World, refuse_kind
from trainwright.api.meta import ObjectKey
from trainwright.control import Refusal, Seen, decide
from trainwright.control.actions import Apply, Emit, PatchStatus, RequeueAfter
from trainwright.control.hints import HINTS
from trainwright.control.problem import build_refusal_problem
from trainwright.control.seen import KIND_NOT_SERVED
from trainwright.render import render_job_set

JOB_SET_KEY = ObjectKey("JobSet", "ns", JOB)


def test_a_refusal_that_the_status_does_not_tell_yet_is_told_before_the_write_is_repeated() -> None:
    rt = runtime()
    refusal = Refusal(key=JOB_SET_KEY, reason="Forbidden", message="no", since=NOW - timedelta(hours=1))
    actions = decide(Seen(train_job=train_job(), snapshot=rt, refusal=refusal), NOW)
    assert [type(action) for action in actions] == [PatchStatus, Emit, RequeueAfter]


def test_a_refusal_that_is_told_is_tried_again_after_a_second() -> None:
    rt = runtime()
    world = World(train_job(), rt)
    world.refuse = refuse_kind("JobSet")
    world.reconcile()
    assert decide(world.seen(), world.now) == [RequeueAfter(seconds=1.0)]
    world.wait(1)
    assert decide(world.seen(), world.now) == [Apply(object=render_job_set(world.job, rt))]


def test_a_refusal_of_what_is_not_asked_for_any_more_is_forgotten() -> None:
    world = start()
    refusal = Refusal(key=JOB_SET_KEY, reason="Forbidden", message="no", since=NOW)
    assert decide(msgspec.structs.replace(world.seen(), refusal=refusal), NOW) == []


def test_a_long_refusal_is_cut_and_a_reason_that_is_no_word_replaced() -> None:
    refusal = Refusal(key=JOB_SET_KEY, reason="not a word", message="x" * 5000, since=NOW)
    patch, *_ = decide(Seen(train_job=train_job(), snapshot=runtime(), refusal=refusal), NOW)
    assert isinstance(patch, PatchStatus)
    [condition] = patch.status.conditions or ()
    assert condition.reason == "Refused"
    assert len(condition.message) == 1004


@pytest.mark.parametrize(
    ("api_version", "reason"),
    [
        ("scheduling.x-k8s.io/v1alpha1", "CoschedulingNotInstalled"),
        ("scheduling.volcano.sh/v1beta1", "VolcanoNotInstalled"),
        ("scheduling.k8s.io/v1alpha2", "NativeGangsNotServed"),
        ("jobset.x-k8s.io/v1alpha2", "JobSetNotInstalled"),
        ("example.com/v1", "KindNotServed"),
    ],
)
def test_a_kind_that_is_not_served_names_what_is_not_installed(api_version: str, reason: str) -> None:
    refusal = Refusal(
        key=ObjectKey("PodGroup", "ns", JOB),
        reason=KIND_NOT_SERVED,
        message=f"PodGroup of {api_version} is not known here",
        since=NOW,
        api_version=api_version,
    )
    problem = build_refusal_problem(refusal)
    assert problem.reason == reason
    assert problem.message == f"PodGroup ns/demo: PodGroup of {api_version} is not known here"
    assert reason in HINTS


def test_a_job_that_is_edited_while_its_runtime_is_missing_says_so_of_its_new_self() -> None:
    """The condition has held all the time; that the edit was looked at can be told from its generation."""
    [first, *_] = decide(Seen(train_job=train_job()), NOW)
    assert isinstance(first, PatchStatus)
    metadata = msgspec.structs.replace(train_job().metadata, generation=2)
    edited = msgspec.structs.replace(train_job(), metadata=metadata, status=first.status)
    [second, *_] = decide(Seen(train_job=edited), NOW + timedelta(seconds=9))
    assert isinstance(second, PatchStatus)
    [condition] = second.status.conditions or ()
    assert (condition.observed_generation, condition.last_transition_time) == (2, NOW)
