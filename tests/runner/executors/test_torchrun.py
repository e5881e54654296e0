"""Two pods of torchrun with two processes each, on this machine, as the torch runtime renders them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from runner.executors.pods import TRAINING_SECONDS, context, end, list_processes, pod, read_log
from trainwright.runner.executors.process import ProcessExecutor
from trainwright.runner.executors.trial import try_namespaces
from trainwright.runner.pods.logs import list_ranks, read_logs
from trainwright.runner.pods.ports import reserve_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# Arguments of the script -> the pod that fails.
FAILING = {("fail",): 1, ("raise",): 0}
SCRIPT = """
import os, pathlib, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
total = torch.full((100_000,), float(rank + 1))
dist.all_reduce(total)
print(f"rank {rank} of {dist.get_world_size()} sum {total[0].item()} {total[-1].item()}")
print("x" * 100, end="")
print("y" * 100)
dist.barrier()
# Whoever leaves closes its connections, and who is still at the barrier fails, too: nobody leaves before all
# have passed it.
reached = pathlib.Path(__file__).parent / "reached"
reached.mkdir(exist_ok=True)
(reached / str(rank)).touch()
while len(list(reached.iterdir())) < dist.get_world_size():
    time.sleep(0.01)
if sys.argv[1:] == ["fail"] and rank == 3:
    sys.stdout.flush()
    os._exit(17)  # at once: gloo's threads, as the interpreter ends, may abort it before its code is told
if sys.argv[1:] == ["raise"] and rank == 1:
    raise ValueError("the weights are not finite")
print("last words of", rank)
dist.destroy_process_group()
"""


@pytest.fixture(params=["namespaces", "processes"])
async def executor(request):
    if request.param == "namespaces":
        found, refusal = await try_namespaces(os.geteuid())
        if not found.mount:
            pytest.skip(f"NO NAMESPACES ON THIS MACHINE: {refusal}")
    return ProcessExecutor({"TRAINWRIGHT_ISOLATION": request.param})


@pytest.fixture
def free_port(tmp_path):
    """A port as jobs get it: none that the system gives away for outgoing connections meanwhile."""
    reservation = reserve_port(tmp_path / "state")
    yield reservation.port
    reservation.release()


def torchrun_pod(rank: int, script: Path, training_environment: Path, *arguments: str) -> dict[str, Any]:
    container = {
        "name": "node",
        "command": ["python", "-m", "torch.distributed.run", str(script), *arguments],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [
            {"name": "PET_NNODES", "value": "2"},
            {"name": "PET_NPROC_PER_NODE", "value": "2"},
            {"name": "PET_NODE_RANK", "value": str(rank)},
            {"name": "PET_MASTER_ADDR", "value": "demo-node-0-0.demo"},
            {"name": "PET_MASTER_PORT", "value": "29500"},
        ],
    }
    return pod(container, name=f"demo-node-0-{rank}-abcde")


async def train(executor, tmp_path: Path, training_environment: Path, port: int, *arguments: str):
    """Run both pods to their end; with arguments, until the pod that fails has ended.

    The other one would wait for five minutes at torchrun's exit barrier.
    """
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    environment = {
        "PATH": f"{training_environment}/bin:/usr/bin:/bin",
        "HOME": os.environ.get("HOME", "/"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    runs = []
    for rank in range(2):
        body = torchrun_pod(rank, script, training_environment, *arguments)
        folder = tmp_path / "pods" / body["metadata"]["name"]
        runs.append(await executor.start(body, context(folder, environment=environment, ports={29500: port})))
    if arguments:
        await end(runs[FAILING[arguments]], TRAINING_SECONDS)
        await runs[1 - FAILING[arguments]].stop(0)
    statuses = await asyncio.gather(*(end(run, TRAINING_SECONDS) for run in runs))
    assert list_processes(str(script)) == []
    return statuses


async def test_two_nodes_reduce_together_and_every_rank_has_its_log(
    executor, tmp_path, training_environment, free_port
):
    statuses = await train(executor, tmp_path, training_environment, free_port)
    pods = tmp_path / "pods"
    logs = [read_log(pods / f"demo-node-0-{rank}-abcde") for rank in range(2)]
    assert [status.phase for status in statuses] == ["Succeeded", "Succeeded"], "\n".join(logs)
    assert sorted(list_ranks(pods)) == [0, 1, 2, 3]
    for rank, files in list_ranks(pods).items():
        assert files[0].read_text().splitlines() == [
            f"rank {rank} of 4 sum 10.0 10.0",
            "x" * 100 + "y" * 100,
            f"last words of {rank}",
        ]
    lines = [line async for line in read_logs(pods)]
    assert {line.rank for line in lines if line.text.startswith("last words")} == {0, 1, 2, 3}
    assert not any("\x1e" in line.text for line in lines)


async def test_a_worker_that_exits_17_is_torchruns_1_and_named_in_the_message(
    executor, tmp_path, training_environment, free_port
):
    statuses = await train(executor, tmp_path, training_environment, free_port, "fail")
    ended = statuses[1].container_statuses[0].state.terminated
    assert ended.exit_code == 1
    assert "rank      : 3 (local_rank: 1)" in ended.message
    assert "exitcode  : 17" in ended.message
    assert "exitcode  : 17" in read_log(tmp_path / "pods" / "demo-node-0-1-abcde")


async def test_the_message_of_a_failed_rank_is_its_own_traceback(
    executor, tmp_path, training_environment, free_port
):
    statuses = await train(executor, tmp_path, training_environment, free_port, "raise")
    message = statuses[0].container_statuses[0].state.terminated.message
    assert "ValueError: the weights are not finite" in message
    assert "rank      : 1 (local_rank: 1)" in message
