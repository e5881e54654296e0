"""What admission fills in: schema defaults, times of patches, and what older clients dropped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from template.builders import pod_patch, train_job
from trainwright.admission import default_train_job
from trainwright.api.meta import ObjectMeta
from trainwright.api.trainjob import RuntimePatch, RuntimeRef, Trainer, TrainJob, TrainJobSpec

NOW = datetime(2026, 1, 31, 12, 0, 0, 999, tzinfo=timezone(timedelta(hours=1)))
STAMP = datetime(2026, 1, 31, 11, 0, 0, tzinfo=UTC)
EARLIER = datetime(2025, 6, 1, tzinfo=UTC)
OTHER = datetime(2025, 7, 1, tzinfo=UTC)


def patched(*patches: RuntimePatch) -> TrainJob:
    return train_job(runtime_patches=list(patches))


def patch(manager: str, pool: str = "a", time: datetime | None = None) -> RuntimePatch:
    given = pod_patch({"nodeSelector": {"pool": pool}}, manager=f"example.com/{manager}")
    return msgspec.structs.replace(given, time=time)


def default_times(job: TrainJob, old: TrainJob | None) -> list[datetime | None]:
    spec = default_train_job(job, old, NOW).spec
    assert spec is not None
    return [given.time for given in spec.runtime_patches or ()]


def test_absent_fields_get_the_defaults_of_the_schema() -> None:
    job = TrainJob(
        metadata=ObjectMeta(name="a"), spec=TrainJobSpec(runtime_ref=RuntimeRef(name="rt"), trainer=Trainer())
    )

    assert default_train_job(job, None, NOW) == TrainJob(
        metadata=ObjectMeta(name="a"),
        spec=TrainJobSpec(
            runtime_ref=RuntimeRef(
                name="rt", api_group="trainer.kubeflow.org", kind="ClusterTrainingRuntime"
            ),
            trainer=Trainer(),
            suspend=False,
            managed_by="trainer.kubeflow.org/trainjob-controller",
        ),
    )


def test_given_fields_are_kept_and_defaulting_twice_changes_nothing() -> None:
    job = TrainJob(
        metadata=ObjectMeta(name="a"),
        spec=TrainJobSpec(
            runtime_ref=RuntimeRef(name="rt", api_group="x", kind="TrainingRuntime"),
            suspend=True,
            managed_by="kueue.x-k8s.io/multikueue",
            runtime_patches=[patch("one")],
        ),
    )
    filled = default_train_job(job, None, NOW)

    assert filled.spec == msgspec.structs.replace(job.spec, runtime_patches=[patch("one", time=STAMP)])
    assert default_train_job(filled, filled, NOW + timedelta(days=1)) == filled


def test_a_job_without_a_spec_stays_as_it_is() -> None:
    job = TrainJob(metadata=ObjectMeta(name="a"))

    assert default_train_job(job, None, NOW) == job


# Spec 01, sections 2.3 and 7.10: (patches, stored patches or None on creation, times)
TIMES: dict[str, tuple[list[RuntimePatch], list[RuntimePatch] | None, list[datetime | None]]] = {
    "created without time": ([patch("one"), patch("two")], None, [STAMP, STAMP]),
    "created with time": ([patch("one", time=EARLIER), patch("two")], None, [EARLIER, STAMP]),
    "unchanged": ([patch("one")], [patch("one", time=EARLIER)], [EARLIER]),
    "unchanged, caller has a time of its own": (
        [patch("one", time=OTHER)],
        [patch("one", time=EARLIER)],
        [EARLIER],
    ),
    "unchanged, stored without time": ([patch("one", time=OTHER)], [patch("one")], [None]),
    "changed": ([patch("one", "b")], [patch("one", "a", EARLIER)], [STAMP]),
    "changed, caller repeats the old time": (
        [patch("one", "b", EARLIER)],
        [patch("one", "a", EARLIER)],
        [STAMP],
    ),
    "new beside an old one": ([patch("one"), patch("two")], [patch("one", time=EARLIER)], [EARLIER, STAMP]),
    "new with time": (
        [patch("one"), patch("two", time=OTHER)],
        [patch("one", time=EARLIER)],
        [EARLIER, OTHER],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TIMES.values(), ids=TIMES)
def test_the_time_of_a_patch_is_when_its_content_last_changed(
    case: tuple[list[RuntimePatch], list[RuntimePatch] | None, list[datetime | None]],
) -> None:
    new, old, times = case

    assert default_times(patched(*new), None if old is None else patched(*old)) == times


def test_fields_that_an_older_client_drops_are_put_back() -> None:
    grace = pod_patch(
        {"terminationGracePeriodSeconds": 300, "nodeSelector": {"pool": "a"}}, manager="example.com/user"
    )
    without_grace = pod_patch({"nodeSelector": {"pool": "b"}}, manager="example.com/user")
    old = default_train_job(
        train_job(runtime_patches=[grace], ttl_seconds_after_finished=60, active_deadline_seconds=9),
        None,
        NOW,
    )

    spec = default_train_job(train_job(runtime_patches=[without_grace]), old, NOW).spec

    assert spec is not None
    assert (spec.ttl_seconds_after_finished, spec.active_deadline_seconds) == (60, 9)
    restored = pod_patch(
        {"terminationGracePeriodSeconds": 300, "nodeSelector": {"pool": "b"}}, manager="example.com/user"
    )
    assert spec.runtime_patches == [msgspec.structs.replace(restored, time=STAMP)]


def test_only_what_an_update_lacks_is_put_back() -> None:
    old = train_job(
        runtime_patches=[pod_patch({"terminationGracePeriodSeconds": 300}, manager="example.com/user")],
        ttl_seconds_after_finished=60,
    )
    new = train_job(
        runtime_patches=[
            pod_patch({"terminationGracePeriodSeconds": 10}, manager="example.com/user"),
            pod_patch({"nodeSelector": {"a": "b"}}, manager="example.com/other"),
            RuntimePatch(manager="kueue.x-k8s.io/manager"),
        ],
        ttl_seconds_after_finished=0,
    )

    spec = default_train_job(new, old, NOW).spec

    assert spec is not None
    assert new.spec is not None
    assert spec.ttl_seconds_after_finished == 0
    assert [msgspec.structs.replace(given, time=None) for given in spec.runtime_patches or ()] == (
        new.spec.runtime_patches
    )
