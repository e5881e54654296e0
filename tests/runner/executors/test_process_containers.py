"""The containers of a pod as real processes: what they wait for, their order, restarts and readiness."""

from __future__ import annotations

import asyncio
import socket

import pytest

from runner.executors.pods import complete, context, end, pod, read_log, shell, terminated, until
from trainwright.runner.executors.container_run import Backoff
from trainwright.runner.executors.process import ProcessExecutor

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
