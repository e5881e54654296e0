"""A TrainJob from submission to its end, with the real store and real processes."""

from __future__ import annotations

from runner.lab import Lab, replicated_job
from runner.shell_executor import ShellExecutor


async def test_a_job_runs_to_its_end(lab: Lab) -> None:
    await lab.submit(replicated_job("node", 'echo "$RANK" > "$WORK/rank-$RANK"', step="trainer"), nodes=2)
    async with lab.supervising(ShellExecutor):
        conditions = await lab.until_finished()

    assert conditions == {"Complete": ("True", "AllJobsCompleted")}
    assert sorted(file.name for file in lab.work.iterdir()) == ["rank-0", "rank-1"]
    assert await lab.conditions("Job", "demo-node-0") == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }
