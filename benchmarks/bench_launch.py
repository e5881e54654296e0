"""How much does `trainwright run` add to bare torchrun for the same script?

Data: a script that initialises gloo over 2 processes, makes one all-reduce and ends; started alternately by
`torchrun` and by `trainwright run`, the best of each, since whatever else the machine does only adds.
Baseline: torchrun. Bias: the script is so short that the launcher is all there is to see; a real training
hides it. Needs the training environment (TRAINWRIGHT_TRAIN_ENV).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import Figure, show

ROUNDS = 7
SCRIPT = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
assert value.item() == 2
dist.destroy_process_group()
"""


def measure() -> list[Figure]:
    """Time both launchers in turn."""
    binaries = Path(os.environ["TRAINWRIGHT_TRAIN_ENV"]) / "bin"
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    bare: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        environment["TRAINWRIGHT_STATE"] = str(Path(folder) / "state")
        ways = [
            (bare, [binaries / "torchrun", "--standalone", "--nproc-per-node", "2", script]),
            (ours, [sys.executable, "-m", "trainwright", "run", script, "--nproc-per-node", "2"]),
        ]
        for _ in range(ROUNDS):
            for durations, command in ways:
                start = time.perf_counter()
                subprocess.run(
                    command, env=environment, check=True, capture_output=True, cwd=folder, timeout=120
                )
                durations.append(time.perf_counter() - start)
    return [
        Figure(
            name="`trainwright run`, what it adds to torchrun",
            ours=max(min(ours) - min(bare), 0.0),
            baseline_name="torchrun",
            baseline=min(bare),
            limit=0.3,
        )
    ]


if __name__ == "__main__":
    show(measure())
