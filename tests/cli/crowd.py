"""Many commands at once on one job, some of them interrupted: whatever comes of it, nobody sees a traceback.

`test_crowd.py` plays a few rounds. For more of them, as after a change of what commands share:

    PYTHONPATH=tests .venv/bin/python tests/cli/crowd.py SECONDS [SEED]
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from cli.program import Program

SCRIPT = """\
import sys, time
for step in range(int(sys.argv[1])):
    print(step, flush=True)
    time.sleep(0.05)
"""
JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: job}
spec:
  runtimeRef: {name: plain}
  trainer: {numNodes: 2, command: [python3, train.py, "40"]}
"""
_RUN = ("run", "--name", "job", "--runtime", "plain", "train.py")
COMMANDS: tuple[tuple[str, ...], ...] = (
    (*_RUN, "--", "5"),
    (*_RUN, "--nodes", "2", "--", "40"),
    (*_RUN, "--detach", "--", "400"),
    (*_RUN, "--ttl", "0", "--", "1"),
    ("apply", "-f", "job.yaml"),
    ("delete", "job"),
    ("delete", "job", "-o", "json"),
    ("stop", "job"),
    ("suspend", "job"),
    ("resume", "job"),
    ("resume", "job", "-o", "yaml"),
    ("scale", "job", "--nodes", "3"),
    ("wait", "job", "--for", "running", "--timeout", "5"),
    ("wait", "job", "--for", "complete", "--timeout", "5"),
    ("logs", "job"),
    ("logs", "job", "--tail", "2"),
    ("logs", "job", "--follow"),
    ("logs", "job", "--rank", "0"),
    ("get", "job"),
    ("get", "job", "-o", "json"),
    ("explain", "job"),
    ("list", "-A"),
    ("list", "-o", "json"),
)
# What may become of one. None: it is left alone. What closes its output reads one line first.
_ENDS = (None, None, None, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, "close")
_EXIT_CODES = {0, 1, 2, 3, 130, 143, 141, -signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGKILL}
PATIENCE_SECONDS = 90.0


class Wrong(AssertionError):
    """A command did what none may do."""


def play_round(program: Program, choice: random.Random, size: int) -> Counter[tuple[str, int | None]]:
    """Let so many commands, of which some are ended early, loose on one job; return how they ended."""
    program.write("train.py", SCRIPT)
    program.write("job.yaml", JOB)
    started = []
    for words in choice.choices(COMMANDS, k=size):
        started.append((words, _start(program, words), choice.choice(_ENDS)))
        time.sleep(choice.choice((0, 0, 0.05, 0.3)))
    for _, process, end in started:
        if isinstance(end, signal.Signals):
            time.sleep(choice.choice((0, 0.05, 0.2)))
            process.send_signal(end)
    for _, process, end in started:
        if end == "close":
            assert process.stdout is not None
            process.stdout.readline()
            process.stdout.close()
    ended: Counter[tuple[str, int | None]] = Counter()
    for words, process, end in started:
        try:
            out, err = _wait(process)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Wrong(f"{words} ended by {end} does not end:\n{_wait(process)[1]}") from None
        if process.returncode not in _EXIT_CODES or _has_traceback(err):
            raise Wrong(f"{words} ended by {end}: exit code {process.returncode}\n{out}\n{err}")
        if process.returncode == 0 and words[-2:] == ("-o", "json") and end is None:
            json.loads(out)
        ended[words[0], process.returncode] += 1
    return ended


def clean_up(program: Program) -> None:
    """Delete what is there; raises Wrong where that leaves anything behind."""
    done = program.run("delete", "job")
    if done.returncode not in {0, 3}:
        raise Wrong(f"delete: {done.returncode}\n{done.stderr}")
    # A job whose object was deleted by a command that was killed is swept by another one later.
    program.succeed("list", "-A")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := [*_list_left(program)]:
        if time.monotonic() > deadline:
            raise Wrong(f"left behind: {left}")
        time.sleep(0.1)


def _start(program: Program, words: Sequence[str]) -> subprocess.Popen[str]:
    return program.start(*words)


def _wait(process: subprocess.Popen[str]) -> tuple[str, str]:
    if process.stdout is not None and process.stdout.closed:
        process.stdout = None
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return out or "", err or ""


def _has_traceback(err: str) -> bool:
    if "Traceback" not in err and "Exception ignored" not in err:
        return False
    # Ctrl-C while the interpreter itself starts, before it runs a line of ours.
    return "KeyboardInterrupt" not in err or "/trainwright/cli/" in err


def _list_left(program: Program) -> Iterator[str]:
    """Yield what no job has any more: marks of supervisors, and processes in the folder of the scripts."""
    with suppress(FileNotFoundError):
        yield from (path.name for path in (program.state / "supervised").iterdir())
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cwd() == str(program.folder) and process.status() != psutil.STATUS_ZOMBIE:
                yield str(process.cmdline())


def main() -> None:
    """Play rounds for so many seconds, and count how commands ended."""
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 10**6
    choice = random.Random(seed)
    ended: Counter[tuple[str, int | None]] = Counter()
    rounds, deadline = 0, time.monotonic() + seconds
    print("seed", seed)
    while time.monotonic() < deadline:
        with tempfile.TemporaryDirectory() as folder:
            program = Program(folder=Path(folder) / "work", state=Path(folder) / "state")
            program.folder.mkdir()
            for _ in range(3):
                ended += play_round(program, choice, 8)
                rounds += 1
            clean_up(program)
    print(rounds, "rounds")
    for (verb, code), count in sorted(ended.items(), key=str):
        print(f"{verb:10} {code!s:>5} {count:6}")


if __name__ == "__main__":
    main()
