"""A state directory that is full for a while: the job goes on, and its end is written when there is room."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.lab import Lab, replicated_job


@pytest.fixture
async def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if shutil.which("mount") is None or await run(
        "mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)
    ):
        pytest.skip("NOT TESTED: a small file system cannot be mounted here (needs root)")
    yield disk
    await run("umount", "-l", str(disk))


async def run(*command: str) -> int:
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    return await process.wait()


async def test_a_job_survives_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    lab = Lab(small_disk)
    lab.work = tmp_path / "work"  # what the job writes goes elsewhere
    lab.work.mkdir()
    lab.environment["WORK"] = str(lab.work)
    script = (
        'echo runs > "$WORK/runs"; until [ -e "$WORK/go" ]; do sleep 0.02; done; echo done > "$WORK/done"'
    )
    uid = (await lab.submit(replicated_job("node", script, step="trainer")))["metadata"]["uid"]
    async with lab.supervising() as supervisor:
        await lab.until_file("runs")
        await lab.until(lab.running_pods, "the pod runs")
        fill(small_disk / "ballast")
        (lab.work / "go").touch()
        await lab.until_file("done")
        log = lab.paths.job(uid).supervisor_log
        # What did not fit into the log either is no reason to stop.
        before = log.stat().st_size
        await asyncio.wait({supervisor}, timeout=1.0)
        assert not supervisor.done(), "the supervisor gave up"
        assert await lab.running_pods() == 1, "the end could be written: the disk was not full"
        (small_disk / "ballast").unlink()
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}

    assert log.stat().st_size >= before
    assert lab.processes() == set()
    lab.close()


def fill(file: Path) -> None:
    """Write until nothing more fits."""
    with file.open("wb", buffering=0) as stream:
        for size in (65_536, 4_096, 1):
            try:
                while True:
                    stream.write(b"x" * size)
            except OSError:
                continue
