"""Many short jobs in a row leave nothing: no process, descriptor, lock or temporary file.

`TRAINWRIGHT_SHORT_JOBS` says how many; 1,000 take two to three minutes on two cores.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from runner.lab import Lab, replicated_job

DRIVER = Path(__file__).parents[1] / "driver.py"
COUNT = int(os.environ.get("TRAINWRIGHT_SHORT_JOBS", "40"))


@pytest.mark.timeout(600)
async def test_short_jobs_in_a_row_leave_nothing(lab: Lab, tmp_path: Path) -> None:
    """A program starts them one after the other, some failing, and deletes every second one."""
    job = replicated_job("node", '[ "$JOB_COMPLETION_INDEX" = 0 ]', step="trainer")
    await lab.submit(job, name="model", nodes=1, suspend=True)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(DRIVER),
        str(lab.paths.root),
        str(lab.work),
        "churn",
        "model",
        env={**os.environ, "TMPDIR": str(temporary), "COUNT": str(COUNT)},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    answer = json.loads(out)
    assert isinstance(answer, dict), answer
    print(f"{COUNT} jobs in {answer['seconds']:.1f} s")  # shown with -rP

    assert answer["ends"] == {"Complete": COUNT - COUNT // 3, "Failed": COUNT // 3}
    assert answer["descriptors_after"] == answer["descriptors_before"]
    assert lab.processes() == set()
    assert list(temporary.iterdir()) == []
    root = lab.paths.root
    assert {folder.name for folder in root.iterdir()} <= {
        "jobs",
        "open",
        "ports",
        "python",
        "supervised",
        "supervisor-start.log",
        "store.db",
        "store.db-wal",
        "store.db-shm",
        "store.lock",
    }
    assert list((root / "ports").iterdir()) == []
    assert list((root / "supervised").iterdir()) == []
    kept = {job["metadata"]["uid"] for job in await lab.list("TrainJob")} - {
        (await lab.get(name="model"))["metadata"]["uid"]
    }
    assert {folder.name for folder in (root / "jobs").iterdir()} == kept
    assert len(kept) == COUNT - COUNT // 2
    assert (root / "supervisor-start.log").read_text() == ""
