"""A program that stands for `flux`, which no package registry has: it notes how it is called.

It does what our scripts rely on. `flux start` runs its initial program and ends with that one's exit code;
without one it follows: it waits for the end of the leader and ends with 0. As with Flux the leader waits for
all others first, unless STAND_IN_ALONE is set. So each that follows has one leader, also where pods are tried
again. `flux run` becomes its command or, where STAND_IN_TASKS is "all", runs all tasks, beside it. By
`flux exec` a command runs in all pods. All pods share one folder, which STAND_IN names:

    calls              a line for each call
    joined-ID          somebody follows
    ended-ID           its leader has ended; what `flux exec` was told, if anything
    codes              with what those that follow end, where a test says so
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec

_PROGRAM = """#!{python} -IS
import json, os, pathlib, re, signal, subprocess, sys, time

folder = pathlib.Path(os.environ["STAND_IN"])
host = subprocess.check_output(["uname", "-n"], text=True).strip()
kept = ("PYTHONPATH", "FLUX_RC_EXTRA")
verb, *words = sys.argv[1:]

def note(**fields):
    line = json.dumps({{"host": host, "verb": verb, "words": words, **fields}}) + "\\n"
    with (folder / "calls").open("a") as calls:
        calls.write(line)

note(env={{name: os.environ[name] for name in kept if name in os.environ}})

def wait_for(what, holds):
    end = time.monotonic() + 120
    while not holds():
        if time.monotonic() > end:
            sys.exit("stand-in: " + what + " in time")
        time.sleep(0.01)

def list_followers():
    joined = {{path.name.partition("-")[2] for path in folder.glob("joined-*")}}
    return joined - {{path.name.partition("-")[2] for path in folder.glob("ended-*")}}

def count_hosts():
    [config] = [word[len("-o,-c"):] for word in words if word.startswith("-o,-c")]
    [hosts] = re.findall("-.([0-9]+-?[0-9]*)]", (pathlib.Path(config) / "broker.toml").read_text())
    first, _, last = hosts.partition("-")
    return int(last or first) - int(first) + 1

def lead(program):
    if "STAND_IN_ALONE" not in os.environ:
        others = count_hosts() - 1
        wait_for("not all others came", lambda: len(list_followers()) >= others)
    told = folder / "exec"
    told.unlink(missing_ok=True)
    code = subprocess.run(program).returncode
    for name in list_followers():
        draft = folder / (".ended-" + name)
        draft.write_text(told.read_text() if told.exists() else "[]")
        draft.rename(folder / ("ended-" + name))
    return code

def follow():
    name = host + "." + str(time.time_ns()) + "." + str(os.getpid())
    ended = folder / ("ended-" + name)
    (folder / ("joined-" + name)).touch()
    wait_for("nothing to be seen of the leader's end", ended.exists)
    command = json.loads(ended.read_text())
    if command:
        subprocess.run(command, check=True)
    return 0

def start():
    program = [word for word in words if not word.startswith("-o,")]
    codes = folder / "codes"
    if "-o,-Sbroker.rc2_none=1" in words:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        (folder / "waiting").touch()
        signal.sigwait([signal.SIGTERM])
        return 7
    if program:
        return lead(program)
    if codes.exists():
        first, *rest = json.loads(codes.read_text())
        codes.write_text(json.dumps(rest or [first]))
        return first
    return follow()

def run():
    rest, flags = list(words), {{}}
    while rest[0].startswith("-"):
        flags[rest[0]] = rest[1]
        del rest[:2]
    if os.environ.get("STAND_IN_TASKS") != "all":
        os.execvp(rest[0], rest)
    size = flags["-n"]
    ranks = [{{"FLUX_TASK_RANK": str(rank), "FLUX_JOB_SIZE": size}} for rank in range(int(size))]
    tasks = [subprocess.Popen(rest, env={{**os.environ, **rank}}) for rank in ranks]
    return max(task.wait() for task in tasks)

def execute():
    command = words[1:] if words[0] == "-n" else words
    (folder / "exec").write_text(json.dumps(command))
    return subprocess.run(command).returncode

def describe():
    print(json.dumps(words))
    return 0

sys.exit({{"start": start, "run": run, "exec": execute, "R": describe}}[verb]())
"""


class Call(msgspec.Struct, frozen=True):
    """One call of the stand-in."""

    host: str
    verb: str
    words: list[str]
    env: dict[str, str]


def write_stand_in(path: Path, python: str | None = None) -> None:
    """Write the program, for this Python or the one of an image."""
    write_program(path, _PROGRAM.format(python=python or os.path.realpath(sys.executable)))


def write_program(path: Path, text: str) -> None:
    """Write a program that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def read_calls(folder: Path, verb: str | None = None) -> list[Call]:
    """Return the calls of the stand-in in their order, or those of one verb."""
    lines = (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []
    calls = [msgspec.convert(_parse(line), Call) for line in lines]
    return [call for call in calls if verb in (None, call.verb)]


def _parse(line: str) -> Any:
    return json.loads(line)
