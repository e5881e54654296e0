"""A job that is paused, resized, resumed, stopped and deleted, from outside; and jobs that were lost."""

import concurrent.futures
import contextlib
import json
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from cli.program import Program

SLEEPS = "import os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def sleeper(program):
    """A job that would run for ten minutes; nothing of it is left after the test."""
    program.write("train.py", SLEEPS)
    program.succeed("run", "--detach", "--name", "sleeper", "--runtime", "plain", "--nodes", "2", "train.py")
    assert program.run("wait", "sleeper", "--for", "running", "--timeout", "60").returncode == 0
    yield program
    program.run("delete", "sleeper")


def get(program: Program, name: str = "sleeper") -> dict:
    return json.loads(program.succeed("get", name, "-o", "json"))


def list_processes(program: Program) -> list[psutil.Process]:
    """Return the processes that run with this test's directory as their own."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(program.folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def read_supervisor_pid(program: Program) -> int:
    (file,) = program.state.glob("jobs/*/supervisor.json")
    return json.loads(file.read_text())["process"]["pid"]


def kill_supervisor(program: Program) -> None:
    """Kill it, and wait until it is gone: until then it holds the lock of its job, and is not lost."""
    process = psutil.Process(read_supervisor_pid(program))
    process.kill()
    deadline = time.monotonic() + 60
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_job_is_paused_resized_and_resumed(sleeper):
    assert len(list_processes(sleeper)) >= 2

    assert "sleeper suspended" in sleeper.run("suspend", "sleeper").stderr
    assert list_processes(sleeper) == []
    assert get(sleeper)["status"]["phase"] == "Suspended"

    assert "scaled to 1 training node" in sleeper.run("scale", "sleeper", "--nodes", "1").stderr
    assert sleeper.run("resume", "sleeper").returncode == 0
    assert sleeper.run("wait", "sleeper", "--for", "running", "--timeout", "60").returncode == 0
    assert sum("train.py" in process.cmdline() for process in list_processes(sleeper)) == 1
    assert get(sleeper)["spec"]["trainer"]["numNodes"] == 1


def test_a_running_job_is_not_resized(sleeper):
    done = sleeper.run("scale", "sleeper", "--nodes", "1")
    assert done.returncode == 2
    assert "spec.trainer" in done.stderr
    assert get(sleeper)["spec"]["trainer"]["numNodes"] == 2


def test_a_stopped_job_is_over_for_good_and_keeps_its_output(sleeper):
    assert sleeper.run("stop", "sleeper").returncode == 0
    assert list_processes(sleeper) == []
    assert get(sleeper)["status"]["cause"]["reason"] == "Stopped"
    assert "pid" in sleeper.succeed("logs", "sleeper")
    assert "is already Failed" in sleeper.run("stop", "sleeper").stderr
    assert sleeper.run("wait", "sleeper", "--for", "complete").returncode == 1


def test_a_deleted_job_leaves_nothing(sleeper):
    assert sleeper.run("delete", "sleeper").returncode == 0
    assert list_processes(sleeper) == []
    assert sleeper.succeed("list", "-o", "name") == ""
    assert list((sleeper.state / "jobs").iterdir()) == []


def test_one_wrong_name_deletes_nothing(sleeper):
    done = sleeper.run("delete", "sleeper", "sleepr")
    assert done.returncode == 3
    assert "TrainJob 'sleepr' does not exist; did you mean sleeper?" in done.stderr
    assert get(sleeper)["status"]["phase"] == "Running"


def test_a_job_whose_supervisor_was_killed_is_reported_as_lost_and_its_processes_are_gone(sleeper):
    kill_supervisor(sleeper)
    assert "Failed" in sleeper.succeed("list")
    assert list_processes(sleeper) == []
    assert "SupervisorLost" in sleeper.succeed("explain", "sleeper")
    assert sleeper.run("run", "--name", "next", "--", "true").returncode == 0


def test_a_command_that_waits_sees_that_the_supervisor_was_killed(sleeper):
    process = sleeper.start("wait", "sleeper", "--for", "complete")
    kill_supervisor(sleeper)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "SupervisorLost" in stderr


def test_two_commands_at_once_on_one_job_both_come_to_their_end(sleeper):
    """Stop wins for good; whether suspend and resume came before it, or too late, they end without a bug."""
    words = [["stop", "sleeper"], ["suspend", "sleeper"], ["stop", "sleeper"], ["resume", "sleeper"]]
    with concurrent.futures.ThreadPoolExecutor(len(words)) as pool:
        done = list(pool.map(lambda one: sleeper.run(*one), words))
    assert all("Traceback" not in result.stderr for result in done), [result.stderr for result in done]
    assert done[0].returncode == done[2].returncode == 0
    assert get(sleeper)["status"]["phase"] == "Failed"
    assert list_processes(sleeper) == []


def test_a_job_that_has_finished_is_not_said_to_be_changed(program):
    program.succeed("run", "--name", "done", "--", "true")
    assert program.run("suspend", "done").stderr == "done is already Complete\n"
    for words in (["resume", "done"], ["scale", "done", "--nodes", "2"]):
        refused = program.run(*words)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "done is Complete, and a finished job never runs again" in refused.stderr
    assert program.run("wait", "done", "--for", "running").stderr == "done is complete\n"
    assert "suspend" not in get(program, "done")["spec"]


def test_waiting_ends_when_the_time_is_over(sleeper):
    done = sleeper.run("wait", "sleeper", "--for", "complete", "--timeout", "1s")
    assert done.returncode == 1
    assert "sleeper is not complete after 1s: it is Running" in done.stderr


def test_waiting_for_a_job_that_is_deleted_ends(sleeper):
    process = sleeper.start("wait", "sleeper", "--for", "complete")
    assert sleeper.run("delete", "sleeper").returncode == 0
    process.communicate(timeout=60)
    assert process.returncode == 3


def test_following_right_after_the_start_waits_for_the_output(program):
    program.write(
        "train.py",
        textwrap.dedent("""
        import time
        time.sleep(1)
        for step in range(3):
            print("step", step, flush=True)
    """),
    )
    program.succeed("run", "--detach", "--name", "slow", "--runtime", "plain", "train.py")
    assert program.succeed("logs", "slow", "--follow").splitlines() == [
        f"[node-0-0] step {n}" for n in range(3)
    ]
    assert program.succeed("logs", "slow", "--tail", "1") == "[node-0-0] step 2\n"
    lines = program.succeed("logs", "slow", "-o", "json").splitlines()
    assert json.loads(lines[0]) == {"source": "node-0-0", "text": "step 0"}


NEEDY = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: needy}
spec:
  runtimeRef: {name: plain}
  trainer:
    command: [sh, -c, echo $TOKEN]
    env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: absent, key: token}}}]
"""
SECRET = "{apiVersion: v1, kind: Secret, metadata: {name: absent}, stringData: {token: here}}"


def test_who_follows_a_job_that_cannot_start_is_told_what_it_waits_for(program):
    program.write("job.yaml", NEEDY)
    program.write("secret.yaml", SECRET)
    program.succeed("apply", "-f", "job.yaml")
    with program.start("logs", "needy", "--follow") as following:
        told = following.stderr.readline()
        program.succeed("apply", "-f", "secret.yaml")
        output, _ = following.communicate(timeout=60)
    assert told.startswith("waiting for needy: Pod needy-node-0-0-")
    assert told.endswith('container node: secret "absent" not found\n')
    assert output == "[node-0-0] here\n"


def test_a_node_is_a_rank_where_torchrun_starts_none(program):
    program.write("train.py", "import os\nprint('node', os.environ['JOB_COMPLETION_INDEX'], flush=True)\n")
    program.succeed("run", "--name", "nodes", "--runtime", "plain", "--nodes", "2", "train.py")
    assert program.succeed("logs", "nodes", "--rank", "1") == "node 1\n"
    missing = program.run("logs", "nodes", "--rank", "2")
    assert missing.returncode == 3
    assert "nodes has ranks 0, 1" in missing.stderr


def test_output_that_is_not_there_is_explained(program):
    program.succeed("run", "--name", "quiet", "--", "true")
    done = program.run("logs", "quiet")
    assert (done.returncode, done.stdout) == (0, "")
    assert "quiet is Complete and has printed nothing" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["get"], ["logs"], ["wait", "--for", "running"], ["suspend"], ["resume"], ["scale", "--nodes", "2"],
        ["stop"], ["delete"], ["explain"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_an_unknown_name_is_not_found(program, words):
    done = program.run(*words, "digits")
    assert (done.returncode, done.stdout) == (3, "")
    assert (
        done.stderr
        == "Error: TrainJob 'digits' does not exist; there are no TrainJobs in namespace 'default'\n"
    )


def test_a_state_directory_that_cannot_be_used_is_a_target_that_is_not_reachable(program):
    Path(program.state).write_text("a file")
    for words in (["list"], ["run", "--", "true"], ["get", "x"]):
        done = program.run(*words)
        assert (done.returncode, done.stdout) == (4, ""), words
        assert str(program.state) in done.stderr
        assert "Traceback" not in done.stderr


def test_jobs_of_other_namespaces_are_told_apart(program):
    assert program.run("run", "--name", "a", "-n", "team", "--", "true").returncode == 0
    assert "add `-n team`" in program.run("get", "a").stderr
    assert program.succeed("list", "-n", "team", "-o", "name") == "trainjob.trainer.kubeflow.org/a\n"
    assert program.succeed("list", "-A").splitlines()[1].split()[:2] == ["team", "a"]
    assert "no TrainJobs in namespace 'default'" in program.run("list").stderr


def test_a_job_with_a_time_to_live_is_swept_by_a_command_after_its_end(program):
    assert program.run("run", "--name", "brief", "--ttl", "0", "--", "true").returncode == 0
    deadline = time.monotonic() + 30
    while program.succeed("list", "-o", "name") and time.monotonic() < deadline:
        pass  # times are kept in whole seconds
    assert program.succeed("list", "-o", "name") == ""
    assert list((program.state / "jobs").iterdir()) == []
