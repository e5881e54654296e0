"""What a person sees: a bar while the job runs, colours of the script, ctrl-C once and twice."""

from __future__ import annotations

import json
import re
import time

import pexpect
import psutil
import pytest

from cli.program import Program

# Goes on when whoever looks at it has seen enough, and ends when what it reported has arrived.
REPORTS = """\
import time
from pathlib import Path
from trainwright.progress import flush, report
for epoch in range(1, 5):
    print("epoch", epoch, "\\x1b[32mgreen\\x1b[0m", flush=True)
    report(step=epoch, total=4, metrics={"epoch": epoch, "loss": 1 / epoch})
    while not Path(f"seen-{epoch}").exists():
        time.sleep(0.02)
flush(60)
"""
DEAF = """\
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""
LISTENS = """\
import time
print("ready", flush=True)
time.sleep(60)
"""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def spawn(program: Program, *words: str, **environment: str) -> pexpect.spawn:
    command, *rest = program.command
    return pexpect.spawn(
        command,
        [*rest, *words],
        cwd=str(program.folder),
        env={**program.environment, "TERM": "xterm-256color", **environment},
        encoding="utf-8",
        dimensions=(30, 160),
        timeout=60,
    )


def let_go_on(program: Program, *epochs: int) -> None:
    """Let the script of REPORTS begin the epoch after each of these."""
    for epoch in epochs:
        program.write(f"seen-{epoch}", "")


def finish(child: pexpect.spawn) -> tuple[int, str]:
    """Wait for the end; return the exit code and what has been shown since the last match."""
    child.expect(pexpect.EOF)
    shown = child.before
    child.close()
    return child.exitstatus, shown


def test_a_terminal_shows_a_bar_with_percent_time_left_and_metrics(program):
    program.write("train.py", REPORTS)
    child = spawn(program, "run", "train.py", "--runtime", "plain", "--name", "digits")
    child.expect(r"\[node-0-0\] epoch 1 \x1b\[32mgreen\x1b\[0m")
    child.expect("digits Running")
    let_go_on(program, 1)
    child.expect(r"━.*50%")
    child.expect(r"left")
    child.expect(r"loss=0\.")
    let_go_on(program, 2, 3, 4)
    code, shown = finish(child)
    assert code == 0
    assert re.search(r"digits: Complete after \d+s; step=4 epoch=4 loss=0.25\s*$", _ESCAPES.sub("", shown))


@pytest.mark.parametrize(
    "environment", [{"TERM": "dumb"}, {"TERM": ""}], ids=["dumb terminal", "terminal without a name"]
)
def test_a_terminal_that_cannot_redraw_gets_lines(program, environment):
    child = spawn(program, "run", "--name", "plain-lines", "--", "echo", "hello", **environment)
    code, shown = finish(child)
    assert code == 0
    assert "\x1b" not in shown
    assert "[node-0-0] hello" in shown


def test_output_into_a_file_has_no_bar_and_no_colour_while_the_terminal_has_the_bar(program):
    program.write("train.py", REPORTS)
    line = " ".join(
        [*program.command, "run", "train.py", "--runtime", "plain", "--name", "digits", ">", "out.txt"]
    )
    child = pexpect.spawn(
        "/bin/sh",
        ["-c", line],
        cwd=str(program.folder),
        env={**program.environment, "TERM": "xterm-256color"},
        encoding="utf-8",
        dimensions=(30, 160),
        timeout=60,
    )
    child.expect("digits Running")
    let_go_on(program, 1, 2, 3, 4)
    code, shown = finish(child)
    assert code == 0
    assert "[node-0-0]" not in shown
    written = (program.folder / "out.txt").read_text()
    assert written.splitlines() == [f"[node-0-0] epoch {n} \x1b[32mgreen\x1b[0m" for n in range(1, 5)]


def test_ctrl_c_asks_the_job_to_stop_and_the_terminal_is_as_it_was(program):
    program.write("train.py", LISTENS)
    child = spawn(program, "run", "train.py", "--runtime", "plain", "--name", "mine")
    child.expect("ready")
    child.sendintr()
    child.expect("stopping mine; ctrl-C again kills it")
    code, shown = finish(child)
    assert code == 130
    assert "mine: Failed after" in shown
    assert "\x1b[?25h" in shown  # the cursor is shown again
    assert "Traceback" not in shown


def test_a_second_ctrl_c_kills_a_job_that_does_not_listen(program):
    program.write("train.py", DEAF)
    child = spawn(program, "run", "train.py", "--runtime", "plain", "--name", "deaf")
    child.expect("ready")
    child.sendintr()
    child.expect("stopping deaf")
    child.sendintr()
    child.expect("killing deaf")
    child.timeout = 20  # less than the grace period of 30 seconds
    code, _ = finish(child)
    assert code == 130
    assert json.loads(program.succeed("get", "deaf", "-o", "json"))["status"]["phase"] == "Failed"


def wait_until_at_work(program: Program, pid: int) -> None:
    """Wait until a command that prints nothing has opened the store: it waits for its job, or soon will."""
    process, store = psutil.Process(pid), str(program.state / "store.db")
    deadline = time.monotonic() + 60
    while store not in {file.path for file in process.open_files()}:
        assert time.monotonic() < deadline, process.status()
        time.sleep(0.02)


@pytest.mark.parametrize("words", [["logs", "mine", "--follow"], ["wait", "mine", "--for", "complete"]])
def test_ctrl_c_ends_a_command_that_watches_and_leaves_the_job_alone(program, words):
    program.write("train.py", LISTENS)
    program.succeed("run", "train.py", "--runtime", "plain", "--name", "mine", "--detach")
    assert program.run("wait", "mine", "--for", "running", "--timeout", "60").returncode == 0
    child = spawn(program, *words)
    if words[0] == "logs":
        child.expect("ready")
    else:
        wait_until_at_work(program, child.pid)
    child.sendintr()
    code, shown = finish(child)
    assert code == 130
    assert "Traceback" not in shown
    assert json.loads(program.succeed("get", "mine", "-o", "json"))["status"]["phase"] == "Running"
    program.succeed("delete", "mine")


def test_metrics_are_shown_as_a_course_and_drawn_into_a_picture(program):
    # Each of the four has arrived before the next one is reported.
    program.write("train.py", REPORTS.replace("    while not", "    flush(60)\n    while not"))
    let_go_on(program, 1, 2, 3, 4)
    assert program.run("run", "train.py", "--runtime", "plain", "--name", "digits").returncode == 0
    card = program.succeed("get", "digits")
    assert re.search(r"^State:\s+Complete$", card, re.MULTILINE)
    assert re.search(r"^loss\s+0\.25\s+[▁▂▃▄▅▆▇█]+$", card, re.MULTILINE)
    done = program.run("get", "digits", "--plot", "out.png")
    assert "drawn in out.png" in done.stderr
    assert (program.folder / "out.png").read_bytes().startswith(b"\x89PNG")
    assert program.run("get", "digits", "--plot", "out.doc").returncode == 2
    assert "100%" in program.succeed("list")
