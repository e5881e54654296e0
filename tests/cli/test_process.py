"""How a command ends that is interrupted, or whose streams or directory are not what they should be."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from cli.program import Program

# Sends ctrl-C, as soon as a module is looked for, to the process that runs the command line.
INTERRUPTED = """\
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["trainwright", *{words!r}]
from trainwright.cli import main
main()
"""
# What is imported when: while there are no verbs yet, for a verb, for a target, and while the target is open.
MOMENTS = (
    "typer", "trainwright.cli.verbs.wait", "trainwright.cli.session", "asyncio.runners", "sqlite3",
    "trainwright.cli.reporting", "trainwright.cli.finding",
)  # fmt: skip


def call(program: Program, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program as the last command of a shell script."""
    return subprocess.run(
        ["/bin/sh", "-c", script, "sh", *program.command, *words],
        cwd=program.folder,
        env=program.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.parametrize("name", MOMENTS)
def test_ctrl_c_ends_a_command_at_whatever_moment_it_comes_and_shows_no_traceback(program, name):
    program.succeed("run", "--detach", "--name", "job", "--", "sleep", "600")
    code = INTERRUPTED.format(name=name, words=["wait", "job", "--for", "complete", "-o", "json"])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=program.folder,
        env=program.environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    program.succeed("delete", "job")
    assert (done.returncode in {130, -signal.SIGINT}, done.stdout, done.stderr) == (True, "", "")


# What a terminal does on ctrl-C, while a command forks the supervisor of its job: both processes get it.
INTERRUPTED_FORK = """\
import os, signal, sys
command = os.getpid()
def interrupt():
    if os.getppid() == command:
        os.kill(command, signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
os.register_at_fork(after_in_child=interrupt)
sys.argv = ["trainwright", "run", "--name", "job", "--", "sleep", "600"]
from trainwright.cli import main
main()
"""


def test_ctrl_c_while_a_supervisor_is_started_asks_the_job_to_stop_and_does_not_kill_it(program):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_FORK],
        cwd=program.folder,
        env=program.environment,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 130
    assert "stopping job" in done.stderr
    assert "killing" not in done.stderr
    assert "job: Failed" in done.stderr
    assert "Stopped" in program.succeed("explain", "job")


@pytest.mark.parametrize("words", [["run", "--", "true"], ["run", "-d", "--", "true"], ["list"]])
def test_a_command_that_is_to_ignore_ctrl_c_does(program, words):
    """As `&` in a script wants it: the ctrl-C that ends the script is not meant for it."""
    code = INTERRUPTED.format(name="sqlite3", words=words)
    done = call(program, f"""trap '' INT; exec "$1" -c '{code.replace("'", '"')}'""")
    assert done.returncode == 0, done.stderr
    assert "stopping" not in done.stderr


@pytest.mark.parametrize(
    "words", [["--help"], ["list"], ["runtimes", "get", "plain"], ["run", "--", "echo", "x"]]
)
def test_a_disk_that_is_full_is_told_in_one_line(program, words):
    if words == ["list"]:
        program.succeed("run", "--", "true")
    done = call(program, 'exec "$@" >/dev/full', *words)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    assert "No space left on device" in last
    assert "Traceback" not in done.stderr


CLOSED = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-"}


@pytest.mark.parametrize("closed", CLOSED.values(), ids=CLOSED)
def test_standard_streams_may_be_closed(program, closed):
    """What a command opens must not get their numbers: what is printed would be written into it."""
    done = call(program, f'exec "$@" {closed}', "run", "--name", "job", "--", "echo", "x")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    done = call(program, f'exec "$@" {closed}', "run", "--detach", "--name", "second", "--", "echo", "x")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert program.run("wait", "second", "--for", "complete").returncode == 0
    assert program.succeed("logs", "second") == "[node-0-0] x\n"
    assert program.succeed("list", "-o", "name").split() == [
        "trainjob.trainer.kubeflow.org/job",
        "trainjob.trainer.kubeflow.org/second",
    ]


def test_a_directory_that_was_removed_is_told_where_it_matters_and_else_does_not(program):
    program.succeed("run", "--detach", "--name", "job", "--", "sleep", "600")
    gone = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    for words in (["run", "--", "true"], ["run", "train.py"], ["apply", "-f", "job.yaml"]):
        done = call(program, gone, *words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert done.stderr == (
            "Error: the directory that this command is called in does not exist any more; "
            "`cd` to one that does\n"
        )
    for words in (["list"], ["suspend", "job"], ["resume", "job"], ["stop", "job"], ["delete", "job"]):
        assert call(program, gone, *words).returncode == 0, words
