"""Real distributed training from the command line."""

from __future__ import annotations

import json
import re
import textwrap

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(500)]

# A bound, not an expectation: six processes that import torch take long beside other tests on two cores.
SECONDS = 300

TRAIN = """\
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} sums to {int(total)}", flush=True)
if dist.get_rank() == int(os.environ.get("FAILING_RANK", -1)):
    raise SystemExit("this rank has had enough")
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def torch_program(program, training_environment):
    """The program, called from a shell in which the training environment is active."""
    program.path = (str(training_environment / "bin"), "/usr/bin", "/bin")
    program.write("train.py", textwrap.dedent(TRAIN))
    return program


def test_a_script_runs_under_torchrun_on_two_nodes_and_each_rank_has_its_log(torch_program):
    done = torch_program.run(
        "run", "train.py", "--nodes", "2", "--nproc-per-node", "2", "--name", "ranks", seconds=SECONDS
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "sums to" in line]
    assert sorted(lines) == [f"[rank {rank}] rank {rank} of 4 sums to 10" for rank in range(4)]
    assert "rank 3 of 4 sums to 10" in torch_program.succeed("logs", "ranks", "--rank", "3").splitlines()
    missing = torch_program.run("logs", "ranks", "--rank", "4")
    assert missing.returncode == 3
    assert "ranks has ranks 0, 1, 2, 3" in missing.stderr
    spec = json.loads(torch_program.succeed("get", "ranks", "-o", "json"))["spec"]
    assert spec["runtimeRef"]["name"] == "torch-distributed"
    assert spec["trainer"]["command"] == ["torchrun", "train.py"]


def test_a_rank_that_prints_nothing_is_told_from_one_that_is_not_there(torch_program):
    torch_program.write(
        "speak.py", "import os\nif os.environ['RANK'] == '0':\n    print('alone', flush=True)\n"
    )
    torch_program.succeed("run", "speak.py", "--nproc-per-node", "2", "--nodes", "1", "--name", "alone")
    assert torch_program.succeed("logs", "alone", "--rank", "0") == "alone\n"
    silent = torch_program.run("logs", "alone", "--rank", "1")
    assert (silent.returncode, silent.stdout) == (0, "")
    assert "rank 1 of alone has printed nothing; the job is Complete" in silent.stderr
    missing = torch_program.run("logs", "alone", "--rank", "2")
    assert missing.returncode == 3
    assert "alone has ranks 0, 1" in missing.stderr


def test_a_rank_that_fails_is_named_with_its_last_words(torch_program):
    done = torch_program.run(
        "run",
        "train.py",
        "--nodes",
        "1",
        "--nproc-per-node",
        "2",
        "--env",
        "FAILING_RANK=1",
        "--name",
        "broken",
        seconds=SECONDS,
    )
    assert done.returncode == 1
    assert "this rank has had enough" in done.stderr
    assert re.search(r"^cause: ", torch_program.succeed("explain", "broken"), re.MULTILINE)


def test_two_jobs_at_once_do_not_disturb_each_other(torch_program):
    names = ["one", "two"]
    for name in names:
        torch_program.succeed("run", "--detach", "--name", name, "train.py", "--nodes", "2")
    for name in names:
        waiting = ("wait", name, "--for", "complete", "--timeout", f"{SECONDS}")
        assert torch_program.run(*waiting, seconds=SECONDS + 30).returncode == 0
        assert torch_program.succeed("logs", name).count("of 2 sums to 3") == 2
