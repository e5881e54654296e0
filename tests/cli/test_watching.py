"""A job that changes, ends and is deleted while somebody watches it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from trainwright.api.meta import ObjectKey
from trainwright.cli.job_rows import get_phase
from trainwright.cli.targets.local import LocalTarget
from trainwright.cli.watching import watch_train_job
from trainwright.cluster.local.paths import StatePaths

KEY = ObjectKey("TrainJob", "default", "digits")
JOB = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {"name": "digits", "namespace": "default"},
    "spec": {"suspend": True, "runtimeRef": {"name": "plain"}},
}


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[LocalTarget]:
    target = LocalTarget(StatePaths(tmp_path / "state"), "default")
    yield target
    target.close()


async def set_phase(target: LocalTarget, phase: str) -> None:
    await target.cluster.patch_status(KEY, {"status": {"phase": phase}})


async def test_each_change_is_seen_until_the_job_is_deleted(target: LocalTarget) -> None:
    await target.cluster.create(JOB)
    watch = watch_train_job(target, KEY)
    seen = [await anext(watch)]
    await set_phase(target, "Running")
    seen.append(await anext(watch))
    await target.cluster.delete(KEY)
    assert [get_phase(job) for job in seen if job] == ["Created", "Running"]
    assert [job async for job in watch] == [None]


@pytest.mark.parametrize(
    ("phase", "phases"), [("Complete", ["Complete"]), ("Failed", ["Failed"]), ("Running", [])]
)
async def test_how_a_job_ended_is_seen_although_it_is_deleted_before_anybody_looks(
    target: LocalTarget, phase: str, phases: list[str]
) -> None:
    """1. Somebody watches. 2. The job ends, and 3. is deleted before the watch looks again."""
    await target.cluster.create(JOB)
    watch = watch_train_job(target, KEY)
    await anext(watch)
    await set_phase(target, phase)
    await target.cluster.delete(KEY)
    *seen, last = [job async for job in watch]
    assert [get_phase(job) for job in seen if job] == phases
    assert last is None


async def test_a_later_job_of_the_same_name_is_not_followed(target: LocalTarget) -> None:
    await target.cluster.create(JOB)
    watch = watch_train_job(target, KEY)
    await anext(watch)
    await target.cluster.delete(KEY)
    await target.cluster.create(JOB)
    await set_phase(target, "Complete")
    assert [job async for job in watch] == [None]
