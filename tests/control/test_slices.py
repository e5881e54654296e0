"""The counters of slices are told as those of one Job."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.constants import ANCESTOR_LABEL
from trainwright.api.jobset import JobSet, JobSetSpec, ReplicatedJob
from trainwright.api.meta import ObjectMeta
from trainwright.api.trainjob import JobStatus
from trainwright.control.slices import fold_slices


def counters(name: str = "node", **states: int) -> JobStatus:
    return JobStatus(
        **{"name": name, "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0, **states}
    )


def job_set(replicas: int, step: str = "trainer") -> JobSet:
    template = {"metadata": {"labels": {ANCESTOR_LABEL: step}}}
    replicated_job = ReplicatedJob(name="node", replicas=replicas, template=template)
    return JobSet(metadata=ObjectMeta(name="demo"), spec=JobSetSpec(replicated_jobs=[replicated_job]))


FOLDED: dict[str, tuple[JobStatus, JobStatus]] = {
    "nothing yet": (counters(), counters()),
    "two of three are ready": (counters(active=3, ready=2), counters(active=1)),
    "all are ready": (counters(active=3, ready=3), counters(active=1, ready=1)),
    "the first is done": (
        counters(active=2, ready=2, succeeded=1),
        counters(active=1, ready=1),
    ),
    "the first is done, another is gone": (counters(active=2, ready=1, succeeded=1), counters(active=1)),
    "all are done": (counters(succeeded=3), counters(succeeded=1)),
    "one failed": (counters(active=2, ready=2, failed=1), counters(active=1, failed=1)),
    "all are suspended": (counters(suspended=3), counters(suspended=1)),
}


@pytest.mark.parametrize(("counted", "told"), FOLDED.values(), ids=FOLDED)
def test_what_is_told_of_three_slices(counted: JobStatus, told: JobStatus) -> None:
    assert fold_slices([counted], job_set(3)) == [told]


STATES = st.builds(
    counters,
    **{state: st.integers(0, 4) for state in ("ready", "succeeded", "failed", "active", "suspended")},
)


@given(STATES)
def test_all_else_is_told_as_it_is(counted: JobStatus) -> None:
    assert fold_slices([counted], job_set(1)) == [counted]
    assert fold_slices([counted], job_set(3, step="something-else")) == [counted]
    assert fold_slices([counted], None) == [counted]
