"""Pods as real processes, with namespaces and without. What the status says is what a kubelet would say."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
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
    until,
    until_exists,
)
from trainwright.api.core import PodStatus
from trainwright.errors import UsageError
from trainwright.runner.executors.container_run import Backoff
from trainwright.runner.executors.process import ProcessExecutor
from trainwright.runner.executors.trial import try_namespaces

NO_PAUSE = Backoff(first_seconds=0.0, most_seconds=0.0)


@pytest.fixture(params=["namespaces", "processes"])
async def executor(request):
    if request.param == "namespaces":
        found, refusal = await try_namespaces(os.geteuid())
        if not found.mount:
            pytest.skip(f"NO NAMESPACES ON THIS MACHINE, half of the executor is not tested: {refusal}")
    return ProcessExecutor({"TRAINWRIGHT_ISOLATION": request.param}, backoff=NO_PAUSE, retry_seconds=0.05)


@pytest.fixture
async def namespaces():
    found, refusal = await try_namespaces(os.geteuid())
    if not found.mount:
        pytest.skip(f"NO NAMESPACES ON THIS MACHINE, this part of the executor is not tested: {refusal}")
    return ProcessExecutor({"TRAINWRIGHT_ISOLATION": "namespaces"}, backoff=NO_PAUSE, retry_seconds=0.05)


@pytest.fixture
def processes():
    return ProcessExecutor({"TRAINWRIGHT_ISOLATION": "processes"}, backoff=NO_PAUSE, retry_seconds=0.05)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "pods" / "demo-node-0-0-abcde"


def list_names(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def exists(path: str) -> bool:
    return Path(path).exists()


def list_descriptors() -> Counter[str]:
    """Return what this process has open: each file, socket or pipe by its own name."""
    found: Counter[str] = Counter()
    for descriptor in list_names("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one of the listing itself
            found[str(Path(f"/proc/self/fd/{descriptor}").readlink())] += 1
    return found


def read_parent(pid: int) -> int | None:
    """Return the parent of a process, None for one that has gone: those of other tests come and go."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def terminated(status: PodStatus, number: int = 0):
    return status.container_statuses[number].state.terminated


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


# Volumes.

CONFIG_MAP = {"cm": {"hostfile": b"a slots=2\n", "script.sh": b"#!/bin/sh\necho hello\n"}}


async def test_volumes_are_at_their_real_paths_and_the_host_does_not_change(namespaces, folder):
    script = """
      cat /etc/trainwright-test/mpi/hostfile
      cat /trainwright-test/deep/dataset/key
      echo written > /trainwright-test/deep/scratch/file && cat /trainwright-test/deep/scratch/file
      /etc/trainwright-test/mpi/script.sh
      touch /etc/trainwright-test/mpi/new 2>&1 | grep -o 'Read-only file system'
      ls /usr/bin/env; cat /proc/1/comm >/dev/null && echo proc
    """
    body = shell(
        script,
        volumeMounts=[
            {"name": "config", "mountPath": "/etc/trainwright-test/mpi"},
            {"name": "data", "mountPath": "/trainwright-test/deep/dataset", "readOnly": True},
            {"name": "scratch", "mountPath": "/trainwright-test/deep/scratch"},
        ],
    )
    claim = folder.parent.parent / "claim"
    claim.mkdir()
    (claim / "key").write_text("data\n")
    volumes = [
        {"name": "config", "configMap": {"name": "cm", "defaultMode": 0o755}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    surroundings = context(folder, config_maps=CONFIG_MAP, claims={"data": claim})
    status = await complete(namespaces, pod(body, volumes=volumes), surroundings)
    assert status.phase == "Succeeded", read_log(folder)
    assert read_log(folder).splitlines() == [
        "a slots=2", "data", "written", "hello", "Read-only file system", "/usr/bin/env", "proc",
    ]  # fmt: skip
    # Of the whole host nothing can be said: others change it, too.
    assert not exists("/trainwright-test")
    assert not exists("/etc/trainwright-test")
    assert sorted(path.name for path in folder.iterdir()) == ["began", "node.log"]


async def test_a_volume_may_be_mounted_inside_another_and_a_single_file_over_a_file(namespaces, folder):
    script = "cat /trainwright-a/b/hostfile /etc/hostname; ls /trainwright-a/b"
    body = shell(
        script,
        volumeMounts=[
            {"name": "config", "mountPath": "/trainwright-a/b"},
            {"name": "scratch", "mountPath": "/trainwright-a"},
            {"name": "config", "mountPath": "/etc/hostname", "subPath": "hostfile"},
        ],
    )
    volumes = [{"name": "config", "configMap": {"name": "cm"}}, {"name": "scratch", "emptyDir": {}}]
    await complete(namespaces, pod(body, volumes=volumes), context(folder, config_maps=CONFIG_MAP))
    assert read_log(folder).split("\n")[:4] == ["a slots=2", "a slots=2", "hostfile", "script.sh"]


async def test_a_mount_point_among_ones_own_files_hides_nothing(namespaces, folder, tmp_path):
    """What a script saves beside a missing mount point is there after the pod; the mount point is not."""
    work = tmp_path / "work"
    work.mkdir()
    body = shell(
        f"echo kept > {work}/result; echo x > {work}/cache/x",
        volumeMounts=[{"name": "scratch", "mountPath": f"{work}/cache"}],
    )
    status = await complete(
        namespaces,
        pod(body, volumes=[{"name": "scratch", "emptyDir": {}}]),
        context(folder, working_directory=work),
    )
    assert status.phase == "Succeeded", read_log(folder)
    assert [path.name for path in work.iterdir()] == ["result"]


async def test_the_mount_point_of_two_pods_goes_with_the_second(namespaces, folder, tmp_path):
    """A short and a long pod mount their own volumes at a path that the host does not have.

    1. Both run. 2. The short one ends. 3. The long one still has its volume. 4. It ends, and the path goes.
    """
    work = tmp_path / "work"
    work.mkdir()
    script = (
        f"echo $0 > {work}/a/b/name; echo up > {work}/$0; while [ ! -e {work}/go-$0 ]; do sleep 0.01; done; "
    )
    runs = {}
    for name in ("short", "long"):
        body = shell("", volumeMounts=[{"name": "scratch", "mountPath": f"{work}/a/b"}])
        body["command"] = ["sh", "-c", f"{script} cat {work}/a/b/name", name]
        runs[name] = await namespaces.start(
            pod(body, name=f"demo-{name}-0-0-abcde", volumes=[{"name": "scratch", "emptyDir": {}}]),
            context(folder.parent / name, working_directory=work, mount_points=tmp_path / "mount-points"),
        )
    for name in runs:
        assert await until_exists(work / name) == "up\n"
    assert list((work / "a" / "b").iterdir()) == []
    for name, left in {"short": ["a"], "long": []}.items():
        (work / f"go-{name}").touch()
        assert (await end(runs[name])).phase == "Succeeded"
        assert read_log(folder.parent / name) == f"{name}\n"
        assert [path.name for path in work.iterdir() if path.is_dir()] == left
    assert list((tmp_path / "mount-points").iterdir()) == []


async def test_containers_that_start_at_once_share_what_they_need_on_the_host(namespaces, folder, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    names = [f"c{number}" for number in range(8)]
    containers = [
        shell(
            f"echo {name} > {work}/shared/{name}/here",
            name=name,
            volumeMounts=[{"name": "scratch", "mountPath": f"{work}/shared/{name}"}],
        )
        for name in names
    ]
    body = pod(*containers, volumes=[{"name": "scratch", "emptyDir": {}}])
    surroundings = context(folder, working_directory=work, mount_points=tmp_path / "mount-points")
    status = await complete(namespaces, body, surroundings)
    assert [ended.state.terminated.message for ended in status.container_statuses] == [""] * len(names)
    assert status.phase == "Succeeded"
    assert (list(work.iterdir()), list((tmp_path / "mount-points").iterdir())) == ([], [])


async def test_memory_is_limited_and_private(namespaces, folder):
    body = shell(
        "head -c 3000000 /dev/zero > /dev/shm/big || echo full; df --output=size /dev/shm | tail -1",
        volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}],
    )
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]
    await complete(namespaces, pod(body, volumes=volumes), context(folder))
    assert read_log(folder).split()[-2:] == ["full", "1024"]


async def test_without_namespaces_mount_paths_are_rewritten(processes, folder):
    body = shell(
        "cat /etc/trainwright-test/hostfile $FILE; echo x > /trainwright-test/x; "
        "cat /trainwright-test/in/hostfile",
        env=[{"name": "FILE", "value": "/etc/trainwright-test/hostfile"}],
        volumeMounts=[
            {"name": "config", "mountPath": "/etc/trainwright-test"},
            {"name": "scratch", "mountPath": "/trainwright-test"},
            {"name": "config", "mountPath": "/trainwright-test/in"},
        ],
    )
    volumes = [{"name": "config", "configMap": {"name": "cm"}}, {"name": "scratch", "emptyDir": {}}]
    status = await complete(processes, pod(body, volumes=volumes), context(folder, config_maps=CONFIG_MAP))
    assert status.phase == "Succeeded", read_log(folder)
    assert read_log(folder) == "a slots=2\n" * 3


async def test_without_namespaces_a_path_that_nothing_mentions_becomes_a_link(processes, folder, tmp_path):
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/made/for/config/hostfile\n")
    script.chmod(0o755)
    body = shell(
        "",
        command=[str(script)],
        volumeMounts=[{"name": "config", "mountPath": f"{tmp_path}/made/for/config"}],
    )
    volumes = [{"name": "config", "configMap": {"name": "cm"}}]
    await complete(processes, pod(body, volumes=volumes), context(folder, config_maps=CONFIG_MAP))
    assert read_log(folder) == "a slots=2\n"
    assert not (tmp_path / "made").exists()


async def test_without_namespaces_a_path_that_cannot_be_had_is_said(processes, folder):
    body = shell("true", volumeMounts=[{"name": "config", "mountPath": "/proc/trainwright"}])
    volumes = [{"name": "config", "configMap": {"name": "cm"}}]
    run = await processes.start(pod(body, volumes=volumes), context(folder, config_maps=CONFIG_MAP))
    waiting = run.status.container_statuses[0].state.waiting
    assert waiting.reason == "CreateContainerConfigError"
    assert 'volume "config" cannot be mounted at /proc/trainwright' in waiting.message
    await run.stop(0)


# What a container waits for.


async def test_a_missing_config_map_is_waited_for_in_kubernetes_words(executor, folder):
    body = shell("true", envFrom=[{"configMapRef": {"name": "missing"}}])
    run = await executor.start(pod(body), context(folder))
    waiting = run.status.container_statuses[0].state.waiting
    assert (run.status.phase, waiting.reason) == ("Pending", "CreateContainerConfigError")
    assert waiting.message == 'configmap "missing" not found'
    await run.stop(30)
    assert run.status.phase == "Failed"


async def test_a_missing_claim_keeps_the_pod_unscheduled(executor, folder):
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "gone"}}]
    run = await executor.start(pod(shell("true"), volumes=volumes), context(folder))
    condition = run.status.conditions[0]
    assert (run.status.phase, run.status.container_statuses) == ("Pending", None)
    assert (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "Unschedulable")
    assert condition.message == 'persistentvolumeclaim "gone" not found'
    await run.stop(0)


async def test_a_rendezvous_address_that_leads_nowhere_is_found_before_the_start(executor, folder):
    body = shell("true", env=[{"name": "PET_MASTER_ADDR", "value": "no-such-host.invalid"}])
    run = await executor.start(pod(body), context(folder))
    waiting = run.status.container_statuses[0].state.waiting
    assert waiting.reason == "CreateContainerConfigError"
    assert "'no-such-host.invalid' (PET_MASTER_ADDR) does not resolve" in waiting.message
    await run.stop(0)


# Init containers, sidecars, restarts, readiness.


async def test_init_containers_run_in_order_before_the_others(executor, folder, tmp_path):
    inits = [shell(f"echo {name} >> {tmp_path}/order", name=name) for name in ("first", "second")]
    status = await complete(
        executor, pod(shell(f"cat {tmp_path}/order"), initContainers=inits), context(folder)
    )
    assert read_log(folder).split() == ["first", "second"]
    assert [s.state.terminated.exit_code for s in status.init_container_statuses] == [0, 0]


async def test_an_init_container_that_fails_keeps_the_others_from_starting(executor, folder):
    status = await complete(
        executor, pod(shell("true"), initContainers=[shell("exit 9", name="prepare")]), context(folder)
    )
    assert status.phase == "Failed"
    assert status.init_container_statuses[0].state.terminated.exit_code == 9
    assert status.container_statuses[0].state.waiting.reason == "PodInitializing"
    assert {c.type: c.status for c in status.conditions}["Initialized"] == "False"


async def test_a_sidecar_runs_beside_the_others_and_ends_after_them(executor, folder, tmp_path):
    sidecar = shell(
        f"trap 'echo bye > {tmp_path}/bye; exit 0' TERM; echo up > {tmp_path}/up; "
        "while :; do sleep 0.01; done",
        name="helper",
        restartPolicy="Always",
    )
    main = shell(f"until [ -s {tmp_path}/up ]; do sleep 0.01; done; [ ! -e {tmp_path}/bye ]")
    status = await complete(executor, pod(main, initContainers=[sidecar]), context(folder))
    assert status.phase == "Succeeded"
    assert (tmp_path / "bye").read_text() == "bye\n"


async def test_a_failing_container_restarts_in_place_and_keeps_its_volumes(executor, folder, tmp_path):
    body = shell(
        f"echo x >> {tmp_path}/scratch/n; [ $(wc -l < {tmp_path}/scratch/n) = 3 ] || exit 5",
        volumeMounts=[{"name": "scratch", "mountPath": f"{tmp_path}/scratch"}],
    )
    volumes = [{"name": "scratch", "emptyDir": {}}]
    status = await complete(executor, pod(body, restartPolicy="OnFailure", volumes=volumes), context(folder))
    container = status.container_statuses[0]
    assert (status.phase, container.restart_count) == ("Succeeded", 2)
    assert container.last_state.terminated.exit_code == 5


async def test_pauses_between_restarts_grow_as_a_kubelets_do():
    backoff = Backoff()
    assert [backoff.pause(n) for n in range(1, 9)] == [0, 10, 20, 40, 80, 160, 300, 300]


async def test_a_container_that_waits_for_its_restart_is_in_crash_loop_back_off(folder):
    executor = ProcessExecutor({"TRAINWRIGHT_ISOLATION": "processes"}, backoff=Backoff(first_seconds=1000))
    run = await executor.start(pod(shell("exit 5"), restartPolicy="Always"), context(folder))
    status = await until(run, lambda status: status.container_statuses[0].state.waiting is not None)
    container = status.container_statuses[0]
    assert container.state.waiting.reason == "CrashLoopBackOff"
    assert (container.restart_count, container.last_state.terminated.exit_code) == (2, 5)
    await run.stop(30)
    assert terminated(run.status).exit_code == 5


async def test_one_container_that_fails_does_not_end_the_others(executor, folder):
    body = pod(shell("exit 3", name="bad"), shell("sleep 0.2", name="good"))
    status = await complete(executor, body, context(folder))
    assert [s.state.terminated.exit_code for s in status.container_statuses] == [3, 0]
    assert status.phase == "Failed"


async def test_a_container_without_a_probe_is_ready_when_it_runs(executor, folder):
    run = await executor.start(pod(shell("sleep 1000")), context(folder))
    assert run.status.container_statuses[0].ready
    assert {c.type: c.status for c in run.status.conditions}["Ready"] == "True"
    await run.stop(0)


async def test_an_exec_probe_runs_inside_the_pod(executor, folder, tmp_path):
    body = shell(
        "sleep 1000",
        readinessProbe={"exec": {"command": ["test", "-e", f"{tmp_path}/ready"]}, "periodSeconds": 0.05},
    )
    run = await executor.start(pod(body), context(folder))
    assert not run.status.container_statuses[0].ready
    (tmp_path / "ready").touch()
    await until(run, lambda status: status.container_statuses[0].ready)
    await run.stop(0)


@pytest.mark.parametrize("kind", ["tcpSocket", "httpGet"])
async def test_a_socket_probe_asks_the_port_that_the_job_has_here(executor, folder, kind):
    """1. Nobody listens yet. 2. Somebody does, at the pod's own address: here it is this test."""
    body = shell(
        "sleep 1000",
        ports=[{"name": "web", "containerPort": 2222}],
        readinessProbe={kind: {"port": "web", "path": "/ready"}, "periodSeconds": 0.05},
    )

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        code = 200 if await reader.readline() == b"GET /ready HTTP/1.1\r\n" else 404
        writer.write(f"HTTP/1.1 {code} said\r\n\r\n".encode())
        writer.close()
        await writer.wait_closed()

    with socket.socket() as bound:
        bound.bind(("127.1.0.1", 0))
        run = await executor.start(pod(body), context(folder, ports={2222: bound.getsockname()[1]}))
        assert not run.status.container_statuses[0].ready
        async with await asyncio.start_server(answer, sock=bound):
            await until(run, lambda status: status.container_statuses[0].ready)
            await run.stop(0)


async def test_a_pod_that_is_active_for_too_long_is_stopped(executor, folder, monkeypatch):
    run = await executor.start(pod(shell("sleep 1000"), activeDeadlineSeconds=600), context(folder))
    assert run.status.container_statuses[0].state.running is not None
    loop = asyncio.get_running_loop()
    real_time = loop.time
    monkeypatch.setattr(loop, "time", lambda: real_time() + 600)
    status = await end(run)
    assert (status.phase, status.reason) == ("Failed", "DeadlineExceeded")
    assert terminated(status).exit_code == 143


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


async def test_two_pods_with_the_same_paths_do_not_disturb_each_other(namespaces, tmp_path):
    async def run(number: int) -> str:
        body = shell(
            f"echo {number} > /trainwright-shared/n; sleep 0.1; cat /trainwright-shared/n",
            volumeMounts=[{"name": "scratch", "mountPath": "/trainwright-shared"}],
        )
        folder = tmp_path / f"demo-node-0-{number}-abcde"
        name = folder.name
        await complete(
            namespaces, pod(body, name=name, volumes=[{"name": "scratch", "emptyDir": {}}]), context(folder)
        )
        return read_log(folder)

    assert await asyncio.gather(run(0), run(1)) == ["0\n", "1\n"]


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
