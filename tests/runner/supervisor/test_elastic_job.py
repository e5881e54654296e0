"""A torch job in a range of nodes, with real torchruns: what happens when its processes fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.lab import Lab, replicated_job

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# Both ranks fail in the first attempt, at the same time, after they have met; then they meet again.
TRAINING = """
import os, pathlib, torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
attempt, work = os.environ["TORCHELASTIC_RESTART_COUNT"], pathlib.Path(os.environ["WORK"])
(work / f"attempt-{attempt}-rank-{dist.get_rank()}").write_text(str(int(total)))
dist.barrier()
if attempt == "0":
    os._exit(1)
"""


async def test_training_goes_on_after_all_ranks_have_failed(lab: Lab, training_environment: Path) -> None:
    """1. Two torchruns meet, and their ranks do. 2. All ranks fail. 3. The torchruns meet again and start
    new ranks, which find each other and not those before.
    """
    lab.bound_seconds = 240.0
    lab.environment |= {"PATH": f"{training_environment}/bin:{lab.environment['PATH']}"}
    script = lab.work / "train.py"
    script.write_text(TRAINING)
    job = replicated_job("node", "", step="trainer", job={"backoffLimit": 3})
    container = job["template"]["spec"]["template"]["spec"]["containers"][0]
    del container["env"]
    container["command"] = ["torchrun", str(script)]
    elastic = {"minNodes": 1, "maxNodes": 2, "maxRestarts": 1}
    trainer = {"numProcPerNode": 1}
    await lab.submit(job, nodes=2, policy={"torch": {"elastic": elastic}}, trainer=trainer)
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}
    assert {file.name: file.read_text() for file in lab.work.glob("attempt-*")} == {
        f"attempt-{attempt}-rank-{rank}": "2" for attempt in (0, 1) for rank in (0, 1)
    }
    assert lab.processes() == set()
