"""`trainwright run`, with real processes of the runtime that needs no torch."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest
import yaml

from cli.program import Program

WAITS = """\
import pathlib, signal, sys, time
def end(number, frame):
    print("asked to end", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, {handler})
print("ready", flush=True)
time.sleep(60)
"""


def write_script(program: Program, text: str, name: str = "train.py") -> str:
    return program.write(name, textwrap.dedent(text)).name


def test_a_script_is_run_and_its_output_is_data(program):
    script = write_script(
        program, "import sys\nprint('args', sys.argv[1:])\nprint('to stderr', file=sys.stderr)"
    )
    done = program.run("run", script, "--name", "first", "--", "--epochs", "3", "--", "x y")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "[node-0-0] args ['--epochs', '3', '--', 'x y']",
        "[node-0-0] to stderr",
    ]
    assert re.fullmatch(r"first: Complete after \d+s", done.stderr.splitlines()[-1])


def test_every_node_runs_and_is_told_apart(program):
    script = write_script(program, "import os\nprint(os.environ['JOB_COMPLETION_INDEX'])")
    done = program.run("run", script, "--nodes", "3")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[node-0-0] 0", "[node-0-1] 1", "[node-0-2] 2"]


def test_a_failed_job_is_exit_code_1_with_its_last_words_and_what_to_do(program):
    done = program.run("run", "--name", "broken", "--", "sh", "-c", "echo no such dataset: digitz; exit 3")
    assert done.returncode == 1
    assert "NonZeroExit" in done.stderr
    assert "exited with code 3" in done.stderr
    assert "no such dataset: digitz" in done.stderr
    assert "to do: " in done.stderr
    explained = program.succeed("explain", "broken")
    assert "exited with code 3" in explained
    assert "Container  node" in explained
    cause = json.loads(program.succeed("get", "broken", "-o", "json"))["status"]["cause"]
    assert cause["reason"] == "NonZeroExit"


def test_the_environment_comes_from_file_flags_and_shell_in_that_order(program):
    program.write("train.env", "A=file\nB=file\n# c\n")
    shown = "import os; print(*(os.environ.get(n) for n in 'ABCD'))"
    done = program.run(
        "run", "--env", "B=flag", "-e", "C", "--env-file", "train.env", "--", sys.executable, "-c", shown,
        environment={"C": "shell", "D": "inherited"},
    )  # fmt: skip
    assert done.stdout == "[node-0-0] file flag shell inherited\n"


def test_a_module_is_found_in_the_directory_of_the_caller(program):
    (program.folder / "pkg").mkdir()
    write_script(program, "import sys; print('module', sys.argv[1:])", "pkg/train.py")
    done = program.run("run", "-m", "pkg.train", "--", "-x")
    assert done.stdout == "[node-0-0] module ['-x']\n"


def test_scripts_run_with_the_python_of_the_callers_shell(program, tmp_path):
    for name in ("python", "python3"):
        fake = tmp_path / "mine" / name
        fake.parent.mkdir(exist_ok=True)
        # Has no torch (exit code 9 to every question), and says so when it is started with a script.
        fake.write_text('#!/bin/sh\n[ "$1" = -c ] && exit 9\necho my own python runs "$@"\n')
        fake.chmod(0o755)
    program.path = (str(tmp_path / "mine"), "/usr/bin", "/bin")
    script = write_script(program, "")
    assert program.run("run", script, "--", "a").stdout == "[node-0-0] my own python runs train.py a\n"


def test_a_torch_runtime_without_torch_starts_nothing(program, tmp_path):
    fake = tmp_path / "mine" / "python"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexit 9\n")
    fake.chmod(0o755)
    program.path = (str(fake.parent), "/usr/bin", "/bin")
    done = program.run("run", write_script(program, ""), "--runtime", "torch-distributed")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'python' cannot import torch" in done.stderr
    assert program.succeed("list", "-o", "name") == ""


def test_a_dry_run_prints_what_would_be_applied_and_changes_nothing(program):
    script = write_script(program, "")
    words = [
        "run",
        script,
        "--name",
        "dry",
        "--nodes",
        "2",
        "--deadline",
        "1h",
        "--ttl",
        "0",
        "--runtime",
        "plain",
    ]
    printed = program.succeed(*words, "--dry-run")
    assert yaml.safe_load(printed)["spec"] == {
        "runtimeRef": {"name": "plain"},
        "trainer": {
            "command": ["python", "train.py"],
            "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}],
            "numNodes": 2,
        },
        "activeDeadlineSeconds": 3600,
        "ttlSecondsAfterFinished": 0,
    }
    assert program.succeed("list", "-o", "name") == ""
    assert "is valid" in program.run("validate", "-f", "-", stdin=printed).stderr


def test_mpirun_starts_scripts_of_runtimes_of_mpi(program):
    script = write_script(program, "")
    said = program.succeed(
        "run", script, "--runtime", "mpi-distributed", "--nodes", "2", "--dry-run", "--", "x"
    )
    assert yaml.safe_load(said)["spec"]["trainer"] == {
        "command": ["mpirun", "python", "train.py"],
        "args": ["x"],
        "env": [{"name": "PYTHONUNBUFFERED", "value": "1"}],
        "numNodes": 2,
    }


def test_a_detached_job_is_found_again_by_the_name_that_was_printed(program):
    script = write_script(program, "print('done')")
    name = program.succeed("run", "--detach", script).strip()
    assert re.fullmatch(r"train-[a-z0-9]{5}", name)
    assert program.run("wait", name, "--for", "complete", "--timeout", "60").returncode == 0
    assert program.succeed("logs", name) == "[node-0-0] done\n"
    assert program.succeed("list", "-o", "name") == f"trainjob.trainer.kubeflow.org/{name}\n"


def test_the_object_may_be_the_data_and_output_is_talk_then(program):
    done = program.run("run", "-o", "json", "--", "echo", "hello")
    assert json.loads(done.stdout)["status"]["phase"] == "Complete"
    assert "[node-0-0] hello" in done.stderr


def test_a_name_that_is_taken_is_refused_and_the_job_is_left_alone(program):
    assert program.run("run", "--name", "mine", "--", "true").returncode == 0
    done = program.run("run", "--name", "mine", "--", "true")
    assert done.returncode == 2
    assert "TrainJob 'mine' already exists" in done.stderr


MISTAKES = {
    "no such script": (["nope.py"], 2, "script 'nope.py' does not exist in "),
    "nothing to run": ([], 2, "nothing to run"),
    "a queue": (["--queue", "a", "--", "true"], 2, "--queue names a queue of Kueue, which a cluster has"),
    "unknown runtime": (
        ["--runtime", "plian", "--", "true"],
        3,
        "Runtime 'plian' does not exist; did you mean plain?",
    ),
    "invalid name": (["--name", "Bad_Name", "--", "true"], 2, "metadata.name"),
    "name too long for pods": (["--name", "a" * 60, "--", "true"], 2, "metadata.name"),
    "no such variable": (["--env", "NOPE", "--", "true"], 2, "NOPE is not set in your environment"),
    "no such variables file": (["--env-file", "nope.env", "--", "true"], 2, "nope.env: no such file in "),
    "elastic range": (["--nodes", "1:4", "--", "true"], 2, "elastic range"),
    "no length of time": (["--ttl", "soon", "--", "true"], 2, "--ttl: 'soon' is not a length of time"),
    "option of the script": (["train.py", "--epochs", "3"], 2, "options of the script stand after --"),
}


@pytest.mark.parametrize(("words", "code", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_and_nothing_is_started(program, words, code, message):
    done = program.run("run", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert program.succeed("list", "-o", "name") == ""


def test_the_image_has_no_effect_here_and_one_line_says_so(program):
    done = program.run("run", "--image", "acme/train:3", "--", "true")
    assert [line for line in done.stderr.splitlines() if "image" in line] == [
        "image acme/train:3 is ignored for processes on this machine"
    ]


def wait_for_line(process, text: str) -> None:
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"{text!r} was never printed: {process.stderr.read()}")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_signal_asks_the_job_to_stop_and_waits_for_it(program, number, code):
    script = write_script(program, WAITS.format(handler="end"))
    process = program.start("run", script, "--name", "stopped", "--runtime", "plain")
    wait_for_line(process, "ready")
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == code
    assert "[node-0-0] asked to end" in stdout
    assert "stopping stopped" in stderr
    status = json.loads(program.succeed("get", "stopped", "-o", "json"))["status"]
    assert status["phase"] == "Failed"
    assert status["cause"]["reason"] == "Stopped"


def test_a_second_signal_kills_a_job_that_does_not_listen(program):
    script = write_script(
        program, "import os\nprint('pid', os.getpid(), flush=True)\n" + WAITS.format(handler="signal.SIG_IGN")
    )
    process = program.start("run", script, "--name", "deaf", "--runtime", "plain")
    wait_for_line(process, "ready")
    process.send_signal(signal.SIGINT)
    for line in process.stderr:
        if "stopping deaf" in line:
            break
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=25)  # less than the grace period of 30 seconds
    assert process.returncode == 130
    assert "killing deaf" in stderr
    assert json.loads(program.succeed("get", "deaf", "-o", "json"))["status"]["phase"] == "Failed"


def test_output_that_nobody_reads_any_more_ends_the_command_quietly(program):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*program.command, "runtimes", "get", "plain"],
        cwd=program.folder,
        env=program.environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")
