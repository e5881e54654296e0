"""Pods as real processes, with namespaces and without. What the status says is what a kubelet would say.

Volumes are in `test_process_volumes.py`; several containers, restarts and probes in
`test_process_containers.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from runner.executors.pods import (
    complete,
    context,
    end,
    list_processes,
    pod,
    read_log,
    shell,
    terminated,
    until_exists,
)
from trainwright.errors import UsageError
from trainwright.runner.executors.process import ProcessExecutor


def exists(path: str) -> bool:
    return Path(path).exists()


def list_descriptors() -> Counter[str]:
    """Return what this process has open: each file, socket or pipe by its own name."""
    found: Counter[str] = Counter()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one of the listing itself
            found[str(descriptor.readlink())] += 1
    return found


def read_parent(pid: int) -> int | None:
    """Return the parent of a process, None for one that has gone: those of other tests come and go."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


# Exit codes and messages (cause-layers.md, section 2).


@pytest.mark.parametrize(
    ("script", "exit_code", "reason"),
    [
        ("exit 0", 0, "Completed"),
        ("exit 17", 17, "Error"),
        ("kill -9 $$$$", 137, "Error"),
        ("kill -11 $$$$", 139, "Error"),
        ("kill -15 $$$$", 143, "Error"),
        ("exec nothing-of-that-name", 127, "Error"),
    ],
)
async def test_the_exit_code_is_passed_on_and_a_signal_counts_from_128(
    executor, folder, script, exit_code, reason
):
    status = await complete(executor, pod(shell(script)), context(folder))
    assert status.phase == ("Succeeded" if exit_code == 0 else "Failed")
    assert (terminated(status).exit_code, terminated(status).reason) == (exit_code, reason)
    assert terminated(status).signal is None


async def test_a_program_that_does_not_exist_is_a_start_error(executor, folder):
    status = await complete(executor, pod(shell("", command=["no-such-program"])), context(folder))
    assert (terminated(status).exit_code, terminated(status).reason) == (128, "StartError")
    assert terminated(status).message == 'exec: "no-such-program": executable file not found in $PATH'


async def test_a_script_without_a_first_line_says_what_is_missing(executor, folder, tmp_path):
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    status = await complete(executor, pod(shell("", command=[str(script)])), context(folder))
    assert terminated(status).reason == "StartError"
    assert "a script needs a #! line" in terminated(status).message


async def test_a_working_directory_that_does_not_exist_is_a_start_error(executor, folder):
    status = await complete(executor, pod(shell("true", workingDir="/no/such/folder")), context(folder))
    assert terminated(status).reason == "StartError"
    assert '"/no/such/folder"' in terminated(status).message


async def test_a_container_without_a_command_says_that_images_mean_nothing_here(executor, folder):
    status = await complete(
        executor, pod({"name": "node", "image": "busybox", "args": ["x"]}), context(folder)
    )
    assert (terminated(status).exit_code, terminated(status).reason) == (128, "StartError")
    assert "set command" in terminated(status).message


async def test_the_last_lines_of_the_log_are_the_message_of_a_failure(executor, folder):
    body = shell("seq 1 1000; exit 3", terminationMessagePolicy="FallbackToLogsOnError")
    status = await complete(executor, pod(body), context(folder))
    assert terminated(status).message == "\n".join(str(n) for n in range(921, 1001))


async def test_success_needs_no_words(executor, folder):
    body = shell("echo fine", terminationMessagePolicy="FallbackToLogsOnError")
    assert terminated(await complete(executor, pod(body), context(folder))).message == ""


async def test_a_termination_message_file_is_read(namespaces, folder):
    path = "/etc/trainwright-test-message"
    body = shell(f"printf because > {path}; exit 1", terminationMessagePath=path)
    assert terminated(await complete(namespaces, pod(body), context(folder))).message == "because"
    assert not exists(path)


# Names, environment, programs.


async def test_a_pod_has_the_names_of_a_cluster(namespaces, folder):
    script = "hostname; hostname -f; getent hosts demo-node-0-1.demo | cut -d' ' -f1; echo $HOSTNAME"
    await complete(namespaces, pod(shell(script)), context(folder))
    assert read_log(folder).split() == ["demo-node-0-0", "demo-node-0-0.demo", "127.1.0.2", "demo-node-0-0"]


async def test_without_namespaces_addresses_are_rewritten(processes, folder):
    body = shell("echo $PET_MASTER_ADDR $1", env=[{"name": "PET_MASTER_ADDR", "value": "demo-node-0-0.demo"}])
    body["command"] += ["sh", "tcp://demo-node-0-1.demo:29500"]
    await complete(processes, pod(body), context(folder, ports={29500: 41000}))
    assert read_log(folder).split() == ["127.0.0.1", "tcp://127.0.0.1:41000"]


async def test_the_program_is_found_on_the_callers_path_and_never_with_our_python(executor, folder, tmp_path):
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text("#!/bin/sh\necho the caller\n")
    (programs / "python").chmod(0o755)
    surroundings = context(
        folder, environment={"PATH": os.environ["PATH"], "VIRTUAL_ENV": str(tmp_path / "venv")}
    )
    await complete(executor, pod(shell("", command=["python"])), surroundings)
    assert read_log(folder) == "the caller\n"


async def test_a_pod_inherits_nothing_of_our_own_environment(executor, folder, monkeypatch):
    monkeypatch.setenv("OURS_ALONE", "1")
    await complete(executor, pod(shell("env; tr '\\0' ' ' < /proc/$PPID/environ")), context(folder))
    assert "OURS_ALONE" not in read_log(folder)


async def test_secrets_are_in_no_command_line(executor, folder, tmp_path):
    body = shell(f"echo up > {tmp_path}/up; exec sleep 1000")
    body["env"] = [{"name": "TOKEN", "value": "very-secret-value"}]
    run = await executor.start(pod(body), context(folder))
    await until_exists(tmp_path / "up")
    assert list_processes("very-secret-value") == []
    await run.stop(0)


async def test_a_container_has_no_descriptors_but_the_standard_ones(executor, folder):
    leaked = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        script = "ls -l /proc/self/fd | awk 'NF>3 {print $9, $11}'"
        await complete(executor, pod(shell(script)), context(folder))
    finally:
        os.close(leaked)
    lines = read_log(folder).splitlines()
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "3"]  # 3 is the folder that ls reads
    assert lines[0] == "0 /dev/null"


async def test_signals_have_their_default_meaning(executor, folder):
    await complete(executor, pod(shell("grep -E 'Sig(Blk|Ign)' /proc/self/status")), context(folder))
    _, blocked, _, ignored = read_log(folder).split()
    # glibc ignores 32 and 33, its own, in what posix_spawn starts (make does): nobody can set them back.
    own = 1 << 31 | 1 << 32
    assert (int(blocked, 16) & ~own, int(ignored, 16) & ~own) == (0, 0)


async def test_the_temporary_folder_is_short_private_and_gone_afterwards(executor, folder):
    await complete(executor, pod(shell("echo $TMPDIR; stat -c %a $TMPDIR; touch $TMPDIR/x")), context(folder))
    path, mode = read_log(folder).split()
    assert len(path) < 64
    assert mode == "700"
    assert not exists(path)


# Stopping.


async def test_a_stop_asks_first_and_takes_the_exit_code_that_the_program_gives(executor, folder, tmp_path):
    body = shell(f"trap 'exit 7' TERM; echo up > {tmp_path}/up; while :; do sleep 0.01; done")
    run = await executor.start(pod(body), context(folder))
    await until_exists(tmp_path / "up")
    await run.stop(60)
    assert terminated(run.status).exit_code == 7


async def test_a_program_that_ignores_the_request_is_killed_after_the_grace_period(
    executor, folder, tmp_path
):
    body = shell(f"trap '' TERM; echo up > {tmp_path}/up; while :; do sleep 0.01; done")
    run = await executor.start(pod(body), context(folder))
    await until_exists(tmp_path / "up")
    await run.stop(0.1)
    assert (run.status.phase, terminated(run.status).exit_code) == ("Failed", 137)


async def test_a_second_stop_may_be_more_impatient(executor, folder, tmp_path):
    body = shell(f"trap '' TERM; echo up > {tmp_path}/up; while :; do sleep 0.01; done")
    run = await executor.start(pod(body), context(folder))
    await until_exists(tmp_path / "up")
    patient = asyncio.create_task(run.stop(1000))
    await asyncio.sleep(0)
    await run.stop(0)
    await patient
    assert terminated(run.status).exit_code == 137


async def test_a_stop_during_an_init_container_starts_nothing_more(executor, folder, tmp_path):
    init = shell(f"echo up > {tmp_path}/up; exec sleep 1000", name="prepare")
    run = await executor.start(pod(shell(f"touch {tmp_path}/main"), initContainers=[init]), context(folder))
    await until_exists(tmp_path / "up")
    await run.stop(30)
    assert run.status.phase == "Failed"
    assert not (tmp_path / "main").exists()


async def test_the_end_is_final(executor, folder):
    run = await executor.start(pod(shell("true")), context(folder))
    status = await end(run)
    await run.stop(30)
    assert await run.changed() == status == run.status


async def test_no_descriptor_is_left_after_many_pods(executor, tmp_path):
    for number in range(3):
        await complete(executor, pod(shell("true")), context(tmp_path / f"warm-{number}"))
    before = list_descriptors()
    for number in range(20):
        await complete(executor, pod(shell("true")), context(tmp_path / f"pod-{number}"))
    assert list_descriptors() - before == Counter()


# Settings.


async def test_a_setting_that_does_not_exist_is_refused(folder):
    with pytest.raises(UsageError, match="use auto, namespaces or processes"):
        await ProcessExecutor({"TRAINWRIGHT_ISOLATION": "vm"}).start(pod(shell("true")), context(folder))


async def test_the_pids_of_other_pods_are_hidden_unless_gpus_are_shared(namespaces, folder):
    script = f"test -d /proc/{os.getpid()} && echo seen || echo hidden"
    await complete(namespaces, pod(shell(script)), context(folder))
    assert read_log(folder) == "hidden\n"
    other = folder.with_name("gpu")
    await complete(namespaces, pod(shell(script)), context(other, devices=("GPU-1",)))
    assert read_log(other) == "seen\n"


async def test_a_signal_that_ends_the_starter_itself_is_a_kill(processes, folder, tmp_path):
    run = await processes.start(pod(shell("exec sleep 1000")), context(folder))
    (starter,) = [pid for pid in list_processes("pod_init.main()") if read_parent(pid) == os.getpid()]
    os.kill(starter, signal.SIGKILL)
    assert terminated(await end(run)).exit_code == 137
