"""What was written is waited for until a watch has brought it, and no longer."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.meta import ObjectKey
from trainwright.operator.expectations import PATIENCE_SECONDS, Expectations
from virtual_time import on_virtual_time

JOB = ObjectKey("TrainJob", "ns", "demo")
JOB_SET = ObjectKey("JobSet", "ns", "demo")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def build() -> tuple[Expectations, Clock, list[ObjectKey]]:
    clock, woken = Clock(), []
    expectations = Expectations(clock)
    expectations.on_met = woken.append
    return expectations, clock, woken


def test_a_job_without_writes_is_current() -> None:
    expectations, _, _ = build()
    assert expectations.is_current(JOB)


def test_a_written_version_is_waited_for_and_wakes_the_job() -> None:
    expectations, _, woken = build()
    expectations.begin(JOB_SET, JOB)
    expectations.finish(JOB_SET, "7", "")
    expectations.see(JOB_SET, "6")
    assert not expectations.is_current(JOB)
    expectations.see(JOB_SET, "7")
    assert expectations.is_current(JOB)
    assert woken == [JOB]


def test_a_version_that_a_watch_brings_before_the_answer_counts() -> None:
    """1. The write is sent. 2. The watch brings 7, and 8 of somebody else. 3. The answer says 7."""
    expectations, _, _ = build()
    expectations.begin(JOB_SET, JOB)
    expectations.see(JOB_SET, "7")
    expectations.see(JOB_SET, "8")
    expectations.finish(JOB_SET, "7", "8")
    assert expectations.is_current(JOB)


def test_a_write_that_changed_nothing_is_not_waited_for() -> None:
    expectations, _, _ = build()
    expectations.begin(JOB_SET, JOB)
    expectations.finish(JOB_SET, "5", "5")
    assert expectations.is_current(JOB)


def test_a_write_that_was_refused_is_not_waited_for() -> None:
    expectations, _, _ = build()
    expectations.begin(JOB_SET, JOB)
    expectations.finish(JOB_SET, "", "5")
    assert expectations.is_current(JOB)


def test_all_objects_of_a_job_are_waited_for() -> None:
    expectations, _, woken = build()
    for key in (JOB, JOB_SET):
        expectations.begin(key, JOB)
        expectations.finish(key, "7", "")
    expectations.see(JOB, "7")
    assert not expectations.is_current(JOB)
    expectations.see(JOB_SET, "7")
    assert expectations.is_current(JOB)
    assert woken == [JOB]


def test_the_end_of_an_object_settles_what_was_written_of_it() -> None:
    expectations, _, _ = build()
    expectations.begin(JOB_SET, JOB)
    expectations.finish(JOB_SET, "7", "")
    expectations.see(JOB_SET, "")
    assert expectations.is_current(JOB)


def test_a_deletion_is_shown_by_whatever_comes_next() -> None:
    expectations, _, _ = build()
    expectations.begin(JOB_SET, JOB)
    expectations.finish_deletion(JOB_SET)
    assert not expectations.is_current(JOB)
    expectations.see(JOB_SET, "9")
    assert expectations.is_current(JOB)


def test_a_complete_list_settles_what_was_written_before_it() -> None:
    expectations, _, _ = build()
    expectations.begin(JOB_SET, JOB)
    expectations.finish(JOB_SET, "7", "")
    expectations.see_list("Job")
    assert not expectations.is_current(JOB)
    expectations.see_list("JobSet")
    assert expectations.is_current(JOB)


def test_a_list_settles_nothing_that_is_still_under_way() -> None:
    expectations, _, _ = build()
    expectations.begin(JOB_SET, JOB)
    expectations.see_list("JobSet")
    assert not expectations.is_current(JOB)


def test_what_never_comes_is_waited_for_a_while_only() -> None:
    expectations, clock, _ = build()
    expectations.begin(JOB_SET, JOB)
    expectations.finish(JOB_SET, "7", "")
    clock.now = PATIENCE_SECONDS - 0.1
    assert not expectations.is_current(JOB)
    clock.now = PATIENCE_SECONDS
    assert expectations.is_current(JOB)


@on_virtual_time
async def test_waiting_ends_when_the_caches_show_it() -> None:
    loop = asyncio.get_running_loop()
    expectations = Expectations()
    expectations.begin(JOB_SET, JOB)
    expectations.finish(JOB_SET, "7", "")
    loop.call_later(1.0, expectations.see, JOB_SET, "7")
    await expectations.wait(JOB)
    assert loop.time() >= 1.0
    assert expectations.is_current(JOB)


@on_virtual_time
async def test_waiting_ends_when_patience_does() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    expectations = Expectations()
    expectations.begin(JOB_SET, JOB)
    expectations.finish(JOB_SET, "7", "")
    await expectations.wait(JOB)
    assert loop.time() - started >= PATIENCE_SECONDS


@given(st.lists(st.sampled_from(["write", "foreign", "see"]), max_size=30))
def test_once_every_version_was_seen_nothing_is_waited_for(steps: list[str]) -> None:
    """A server that gives versions, a watch that brings each of them in order, at any later moment."""
    expectations, _, _ = build()
    versions: list[str] = []
    seen = 0

    def see() -> None:
        nonlocal seen
        if seen < len(versions):
            expectations.see(JOB_SET, versions[seen])
            seen += 1

    for step in steps:
        if step == "write":
            expectations.begin(JOB_SET, JOB)
            versions.append(str(len(versions) + 1))
            expectations.finish(JOB_SET, versions[-1], str(seen) if seen else "")
        elif step == "foreign":
            versions.append(str(len(versions) + 1))
        else:
            see()
    while seen < len(versions):
        see()
    assert expectations.is_current(JOB)
