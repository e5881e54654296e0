"""`trainwright list` with many jobs."""

import asyncio
import time

import pytest

from trainwright.cluster.local.store import LocalCluster

COUNT = 10_000
# Measured: 0.3 s on two busy cores. A bound that only a change of the kind of work can reach.
SECONDS = 8.0


@pytest.mark.slow
def test_ten_thousand_jobs_are_listed_in_reasonable_time(program):
    async def fill() -> None:
        program.state.mkdir()
        with LocalCluster(program.state / "store.db") as cluster:
            for number in range(COUNT):
                await cluster.create(
                    {
                        "apiVersion": "trainer.kubeflow.org/v1alpha1",
                        "kind": "TrainJob",
                        "metadata": {"name": f"job-{number:05}", "namespace": "default"},
                        "spec": {"runtimeRef": {"name": "plain"}, "trainer": {"command": ["true"]}},
                    }
                )

    asyncio.run(fill())
    begin = time.monotonic()
    lines = program.succeed("list").splitlines()
    assert time.monotonic() - begin < SECONDS
    assert len(lines) == COUNT + 1
    assert lines[-1].split()[:4] == ["job-09999", "Created", "plain", "1"]
