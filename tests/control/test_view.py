"""Whose JobSet it is, and which Jobs and pods belong to it."""

from __future__ import annotations

from typing import Any

import pytest

from control.builders import train_job
from trainwright.api.batch import Job, JobSpec
from trainwright.api.core import Pod, PodStatus
from trainwright.api.jobset import JobSet, JobSetStatus
from trainwright.api.meta import ObjectMeta, build_owner_reference
from trainwright.control import Seen
from trainwright.control.view import (
    Place,
    build_view,
    find_place,
    is_of_current_attempt,
    is_ours,
)

UID = "jobset.sigs.k8s.io/jobset-uid"


def meta(name: str, **labels: str) -> ObjectMeta:
    return ObjectMeta(name=name, namespace="ns", labels=labels or None)


def pod(name: str, phase: str = "Running", **labels: str) -> Pod:
    return Pod(metadata=meta(name, **labels), status=PodStatus(phase=phase))


def child(name: str, **labels: str) -> Job:
    return Job(metadata=meta(name, **labels), spec=JobSpec(template={}))


def job_set(uid: str = "u-2", *, owned: bool = True) -> JobSet:
    owner = build_owner_reference("v1", "TrainJob", train_job().metadata)
    return JobSet(
        metadata=ObjectMeta(name="demo", namespace="ns", uid=uid, owner_references=[owner] if owned else None)
    )


def test_children_of_a_job_set_that_is_gone_are_leftovers() -> None:
    old, new, silent = pod("old", **{UID: "u-1"}), pod("new", **{UID: "u-2"}), pod("silent")
    jobs = (child("old", **{UID: "u-1"}), child("new", **{UID: "u-2"}))
    view = build_view(Seen(train_job=train_job(), job_set=job_set(), pods=(old, new, silent), jobs=jobs))
    assert (view.pods, view.leftover_pods) == ((new, silent), (old,))
    assert (view.jobs, view.leftover_jobs) == ((jobs[1],), (jobs[0],))


def test_without_a_job_set_all_children_are_leftovers_and_pods_that_ended_do_not_count() -> None:
    running, ended = pod("a"), pod("b", "Succeeded")
    view = build_view(Seen(train_job=train_job(), pods=(running, ended), jobs=(child("j"),)))
    assert (view.pods, view.leftover_pods) == ((), (running,))
    assert [job.metadata.name for job in view.leftover_jobs] == ["j"]


def test_children_of_a_foreign_job_set_are_nobody_of_ours() -> None:
    view = build_view(
        Seen(train_job=train_job(), job_set=job_set(owned=False), pods=(pod("a"),), jobs=(child("j"),))
    )
    assert view.job_set is None
    assert view.foreign_job_set is not None
    assert (view.pods, view.live_pods, view.jobs, view.leftover_pods, view.leftover_jobs) == (
        (),
        (),
        (),
        (),
        (),
    )


@pytest.mark.parametrize(("phase", "live"), [("Pending", 1), ("Running", 1), ("Unknown", 1), ("Failed", 0)])
def test_a_pod_lives_until_it_has_ended(phase: str, live: int) -> None:
    view = build_view(Seen(train_job=train_job(), job_set=job_set(), pods=(pod("a", phase),)))
    assert len(view.live_pods) == live


PLACES: list[tuple[ObjectMeta, Place]] = [
    (ObjectMeta(name="p"), Place("", 0, 0)),
    (
        ObjectMeta(
            name="p",
            labels={
                "jobset.sigs.k8s.io/replicatedjob-name": "node",
                "jobset.sigs.k8s.io/job-index": "2",
                "batch.kubernetes.io/job-completion-index": "11",
            },
        ),
        Place("node", 2, 11),
    ),
    (
        ObjectMeta(name="p", annotations={"batch.kubernetes.io/job-completion-index": "4"}),
        Place("", 0, 4),
    ),
    (ObjectMeta(name="p", labels={"jobset.sigs.k8s.io/job-index": "x"}), Place("", 0, 0)),
]


@pytest.mark.parametrize(("metadata", "place"), PLACES)
def test_a_place_is_read_from_the_labels(metadata: ObjectMeta, place: Place) -> None:
    assert find_place(metadata) == place


def test_ranks_sort_as_numbers() -> None:
    assert Place("node", 0, 2) < Place("node", 0, 10)


@pytest.mark.parametrize(
    ("attempt", "restarts", "current"), [("1", 1, True), ("0", 1, False), (None, 1, True)]
)
def test_pods_of_an_earlier_attempt_are_told_by_their_label(
    attempt: str | None, restarts: int, current: bool
) -> None:
    labels = {"jobset.sigs.k8s.io/restart-attempt": attempt} if attempt else {}
    restarted = JobSet(metadata=ObjectMeta(name="demo"), status=JobSetStatus(restarts=restarts))
    assert is_of_current_attempt(meta("p", **labels), restarted) is current


@pytest.mark.parametrize(
    ("managed_by", "ours"),
    [(None, True), ("", True), ("trainer.kubeflow.org/trainjob-controller", True), ("example.org/x", False)],
)
def test_who_manages_the_job_is_in_its_spec(managed_by: Any, ours: bool) -> None:
    assert is_ours(train_job(managed_by=managed_by)) is ours
