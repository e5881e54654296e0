"""What is deleted when its time is over, and what is not."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from runner.lab import Lab, replicated_job
from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import StatePaths
from trainwright.runner.pods.claim_folders import make_claim_folder
from trainwright.runner.supervisor.expiry import Expiring, forget_expiry, list_due, note_expiry
from trainwright.runner.supervisor.supervisor_lock import holding
from trainwright.runner.supervisor.sweep import FULL_SWEEP_SECONDS, sweep_expired, sweep_folders

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
KEY = ObjectKey("TrainJob", "default", "demo")


def test_a_job_is_due_from_its_time_on(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path)
    assert list(list_due(paths, NOW)) == []
    note_expiry(paths, "uid", KEY, NOW)
    note_expiry(paths, "later", KEY, NOW + timedelta(seconds=10))

    assert list(list_due(paths, NOW - timedelta(seconds=0.5))) == []
    assert list(list_due(paths, NOW)) == [Expiring("uid", KEY)]
    forget_expiry(paths, "uid")
    assert list(list_due(paths, NOW)) == []


def test_a_note_that_is_cut_off_is_dropped(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path)
    note_expiry(paths, "uid", KEY, NOW)
    (tmp_path / "expiring" / "uid").write_text("{")
    os.utime(tmp_path / "expiring" / "uid", (0, 0))

    assert list(list_due(paths, NOW)) == []
    assert list((tmp_path / "expiring").iterdir()) == []


async def finished_job(lab: Lab, **spec: Any) -> str:
    """Run a job to its end; return its uid."""
    await lab.submit(replicated_job("node", "exit 0", step="trainer"), **spec)
    async with lab.supervising():
        await lab.until_finished()
    return (await lab.get())["metadata"]["uid"]


async def test_a_job_is_deleted_after_its_time_and_not_before(lab: Lab) -> None:
    uid = await finished_job(lab, ttlSecondsAfterFinished=60)
    assert await sweep_expired(lab.cluster, lab.paths) == []
    assert await lab.exists()

    later = datetime.now(UTC) + timedelta(seconds=61)
    assert await sweep_expired(lab.cluster, lab.paths, clock=lambda: later) == [KEY]
    assert not await lab.exists()
    assert await lab.list("Pod") == []
    assert not lab.paths.job(uid).root.exists()


async def test_a_time_to_live_that_was_lengthened_meanwhile_counts(lab: Lab) -> None:
    await finished_job(lab, ttlSecondsAfterFinished=60)
    await lab.patch({"spec": {"ttlSecondsAfterFinished": 600}})
    later = datetime.now(UTC) + timedelta(seconds=61)
    assert await sweep_expired(lab.cluster, lab.paths, clock=lambda: later) == []

    latest = datetime.now(UTC) + timedelta(seconds=601)
    assert await sweep_expired(lab.cluster, lab.paths, clock=lambda: latest) == [KEY]


async def test_a_job_without_time_to_live_stays(lab: Lab) -> None:
    await finished_job(lab)
    latest = datetime.now(UTC) + timedelta(days=400)

    assert await sweep_expired(lab.cluster, lab.paths, clock=lambda: latest) == []
    assert await lab.exists()


async def test_a_job_whose_lock_is_held_is_left_to_its_holder(lab: Lab) -> None:
    uid = await finished_job(lab, ttlSecondsAfterFinished=60)
    later = datetime.now(UTC) + timedelta(seconds=61)
    with holding(lab.paths, uid):
        assert await sweep_expired(lab.cluster, lab.paths, clock=lambda: later) == []
    assert await sweep_expired(lab.cluster, lab.paths, clock=lambda: later) == [KEY]


async def test_folders_of_deleted_jobs_go_at_most_once_an_hour(lab: Lab) -> None:
    uid = await finished_job(lab)
    await sweep_expired(lab.cluster, lab.paths)
    await lab.cluster.delete(KEY)
    await sweep_expired(lab.cluster, lab.paths)
    assert lab.paths.job(uid).root.exists()

    later = datetime.now(UTC) + timedelta(seconds=FULL_SWEEP_SECONDS + 1)
    await sweep_expired(lab.cluster, lab.paths, clock=lambda: later)
    assert not lab.paths.job(uid).root.exists()


@pytest.mark.parametrize(("retention", "stays"), [("Delete", False), ("Retain", True)])
async def test_the_folder_of_a_claim_goes_with_its_jobset_unless_it_is_retained(
    lab: Lab, retention: str, stays: bool
) -> None:
    mount = {"name": "data", "mountPath": str(lab.work / "mounted")}
    job = replicated_job("node", f'echo kept > "{lab.work}/mounted/file"', step="trainer")
    job["template"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [mount]
    policy = {
        "templates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
        "retentionPolicy": {"whenDeleted": retention},
    }
    await lab.submit(job, template={"volumeClaimPolicies": [policy]})
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}
    folder = lab.paths.volume("default", "data-demo")
    assert (folder / "file").read_text() == "kept\n"
    await sweep_folders(lab.cluster, lab.paths)
    assert folder.exists()

    await lab.cluster.delete(KEY)
    await sweep_folders(lab.cluster, lab.paths)
    assert folder.exists() is stays


async def test_the_folder_of_a_claim_that_a_user_named_is_never_removed(lab: Lab) -> None:
    folder = make_claim_folder(lab.paths, "default", "mine", None)
    await sweep_folders(lab.cluster, lab.paths)

    assert folder.is_dir()


async def test_a_sweep_that_finds_nothing_due_is_cheap(lab: Lab) -> None:
    """With 300 jobs whose time is not over it reads no object."""
    for number in range(300):
        note_expiry(lab.paths, f"uid-{number}", KEY, datetime.now(UTC) + timedelta(days=1))
    await sweep_expired(lab.cluster, lab.paths)
    lab.cluster.close()  # whoever reads now fails
    began = time.process_time()
    assert await sweep_expired(lab.cluster, lab.paths) == []
    assert time.process_time() - began < 0.1
