"""A TrainJob from submission to its end, with the real store, the real controllers and real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket

import pytest

from runner.lab import Lab, replicated_job
from runner.shell_executor import ShellExecutor, ShellRun
from trainwright.api.core import PodStatus
from trainwright.runner.pods.devices import Gpu, NotEnoughDevices
from trainwright.runner.pods.pod_devices import PodDevices, count_devices

# Runs until it is told to end; says that it does, with its rank and attempt.
ENDLESS = (
    'trap "echo stopped > $WORK/stopped-$JOB_COMPLETION_INDEX; exit 143" TERM; '
    'echo runs > "$WORK/runs-$JOB_COMPLETION_INDEX"; while :; do sleep 0.02; done'
)
STOP = {"metadata": {"annotations": {"trainer.kubeflow.org/stop-requested": "2026-01-01T00:00:00Z"}}}


async def test_a_job_runs_to_its_end(lab: Lab) -> None:
    await lab.submit(
        replicated_job(
            "node", 'echo "$JOB_COMPLETION_INDEX" > "$WORK/rank-$JOB_COMPLETION_INDEX"', step="trainer"
        ),
        nodes=2,
    )
    async with lab.supervising():
        conditions = await lab.until_finished()

    assert conditions == {"Complete": ("True", "AllJobsCompleted")}
    assert sorted(file.name for file in lab.work.iterdir()) == ["rank-0", "rank-1"]
    assert await lab.conditions("Job", "demo-node-0") == {
        "SuccessCriteriaMet": ("True", "CompletionsReached"),
        "Complete": ("True", "CompletionsReached"),
    }
    pods = await lab.list("Pod")
    assert [pod["status"]["phase"] for pod in pods] == ["Succeeded", "Succeeded"]
    assert all(pod["status"]["conditions"][0]["type"] == "PodScheduled" for pod in pods)


async def test_what_depends_on_a_step_starts_after_it_has_completed(lab: Lab) -> None:
    await lab.submit(
        replicated_job("init", 'sleep 0.2; echo ready > "$WORK/data"'),
        replicated_job(
            "node",
            'cat "$WORK/data" > "$WORK/seen"',
            step="trainer",
            dependsOn=[{"name": "init", "status": "Complete"}],
        ),
    )
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}

    assert (lab.work / "seen").read_text() == "ready\n"


async def test_what_depends_on_a_ready_server_starts_while_it_runs(lab: Lab) -> None:
    """The server is ready as soon as its command runs, which may be before it has said so."""
    await lab.submit(
        replicated_job("server", ENDLESS),
        replicated_job(
            "node",
            'until [ -e "$WORK/runs-0" ]; do sleep 0.02; done',
            step="trainer",
            dependsOn=[{"name": "server", "status": "Ready"}],
        ),
        template={"successPolicy": {"operator": "All", "targetReplicatedJobs": ["node"]}},
    )
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}

    assert lab.processes() == set(), "the server outlived the job"
    assert (lab.work / "stopped-0").exists()


async def test_one_success_is_enough_with_operator_any(lab: Lab) -> None:
    await lab.submit(
        replicated_job("fast", "exit 0"),
        replicated_job("slow", ENDLESS, step="trainer"),
        template={"successPolicy": {"operator": "Any"}},
    )
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}

    assert {job["metadata"]["name"] for job in await lab.list("Job")} == {"demo-fast-0"}


async def test_a_failed_rank_ends_the_others_and_the_job(lab: Lab) -> None:
    script = f'[ "$JOB_COMPLETION_INDEX" = 1 ] && exit 3; {ENDLESS}'
    await lab.submit(replicated_job("node", script, step="trainer"), nodes=3)
    async with lab.supervising():
        assert await lab.until_finished() == {"Failed": ("True", "FailedJobs")}

    (pod,) = await lab.list("Pod")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert (await lab.get("Job", "demo-node-0"))["status"]["failed"] == 3
    cause = (await lab.get())["status"]["cause"]
    assert (cause["kind"], cause["name"]) == ("Pod", pod["metadata"]["name"])


async def test_a_job_is_made_again_until_no_restart_is_left(lab: Lab) -> None:
    await lab.submit(
        replicated_job("node", 'echo run >> "$WORK/runs"; exit 1', step="trainer"),
        template={"failurePolicy": {"maxRestarts": 2}},
    )
    async with lab.supervising():
        assert await lab.until_finished() == {"Failed": ("True", "ReachedMaxRestarts")}

    assert (lab.work / "runs").read_text().count("run") == 3
    assert (await lab.get("JobSet"))["status"]["restarts"] == 2


async def test_a_job_that_succeeds_after_a_restart_is_complete(lab: Lab) -> None:
    script = '[ -e "$WORK/second" ] && exit 0; touch "$WORK/second"; exit 1'
    await lab.submit(
        replicated_job("node", script, step="trainer"), template={"failurePolicy": {"maxRestarts": 1}}
    )
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}


async def test_a_suspended_job_starts_nothing_and_needs_no_supervisor(lab: Lab) -> None:
    await lab.submit(replicated_job("node", 'touch "$WORK/ran"', step="trainer"), suspend=True)
    async with lab.supervising() as supervisor:
        await supervisor

    assert await lab.conditions() == {"Suspended": ("True", "Suspended")}
    assert not await lab.exists("JobSet")
    assert list(lab.work.iterdir()) == []


async def test_suspending_stops_the_pods_and_resuming_runs_another_number_of_nodes(lab: Lab) -> None:
    await lab.submit(replicated_job("node", ENDLESS, step="trainer"), nodes=3)
    async with lab.supervising():
        for rank in range(3):
            await lab.until_file(f"runs-{rank}")
        await lab.suspend()
    assert await lab.conditions() == {"Suspended": ("True", "Suspended")}
    assert sorted(file.name for file in lab.work.glob("stopped-*")) == ["stopped-0", "stopped-1", "stopped-2"]
    assert await lab.list("Pod") == []
    assert not (lab.paths.root / "supervised").exists() or not list((lab.paths.root / "supervised").iterdir())

    for file in lab.work.iterdir():
        file.unlink()
    await lab.resume(numNodes=2)
    async with lab.supervising():
        for rank in range(2):
            await lab.until_file(f"runs-{rank}")
        await lab.until(lab.running_pods, "pods that run")
        await lab.patch(STOP)
    assert not (lab.work / "runs-2").exists()


async def test_a_job_that_is_asked_to_stop_fails_and_leaves_no_process(lab: Lab) -> None:
    await lab.submit(replicated_job("node", ENDLESS, step="trainer"), nodes=2)
    async with lab.supervising():
        for rank in range(2):
            await lab.until_file(f"runs-{rank}")
        await lab.patch(STOP)

    assert (await lab.conditions())["Failed"][0] == "True"
    assert lab.processes() == set()
    assert (lab.work / "stopped-1").exists()


async def test_a_deleted_job_loses_its_processes_and_its_folder(lab: Lab) -> None:
    job = await lab.submit(replicated_job("node", ENDLESS, step="trainer"))
    async with lab.supervising():
        await lab.until_file("runs-0")
        folder = lab.paths.job(job["metadata"]["uid"]).root
        assert folder.is_dir()
        await lab.cluster.delete(lab.key())

    assert lab.processes() == set()
    assert (lab.work / "stopped-0").exists(), "no time to end by itself"
    assert not folder.exists()


async def test_a_deleted_job_loses_the_claims_that_it_made(lab: Lab) -> None:
    job = replicated_job("node", ENDLESS, step="trainer")
    mount = {"name": "data", "mountPath": str(lab.work / "mounted")}
    job["template"]["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [mount]
    claim = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    await lab.submit(job, template={"volumeClaimPolicies": [{"templates": [claim]}]})
    async with lab.supervising():
        await lab.until_file("runs-0")
        assert lab.paths.volume("default", "data-demo").is_dir()
        await lab.cluster.delete(lab.key())

    assert not lab.paths.volume("default", "data-demo").exists()


async def test_a_new_job_of_the_same_name_is_not_the_old_supervisors_business(lab: Lab) -> None:
    await lab.submit(replicated_job("node", ENDLESS, step="trainer"))
    async with lab.supervising():
        await lab.until_file("runs-0")
        await lab.cluster.delete(lab.key())
        await lab.submit(replicated_job("node", 'echo new > "$WORK/new"', step="trainer"))

    assert not (lab.work / "new").exists()
    async with lab.supervising():
        await lab.until_finished()
    assert (lab.work / "new").exists()


async def test_a_job_that_runs_too_long_fails(lab: Lab) -> None:
    await lab.submit(replicated_job("node", ENDLESS, step="trainer"), activeDeadlineSeconds=3600)
    async with lab.supervising():
        await lab.until_file("runs-0")
        await lab.patch({"spec": {"activeDeadlineSeconds": 1}})
        assert await lab.until_finished() == {"Failed": ("True", "DeadlineExceeded")}

    assert (lab.work / "stopped-0").exists()


async def test_sigterm_to_the_supervisor_stops_the_pods_and_fails_the_job(lab: Lab) -> None:
    await lab.submit(replicated_job("node", ENDLESS, step="trainer"), nodes=2)
    async with lab.supervising():
        for rank in range(2):
            await lab.until_file(f"runs-{rank}")
        os.kill(os.getpid(), signal.SIGTERM)

    assert await lab.conditions("JobSet") == {"Failed": ("True", "SupervisorStopped")}
    assert await lab.conditions() == {"Failed": ("True", "SupervisorStopped")}
    assert lab.processes() == set()
    assert (lab.work / "stopped-0").exists()


async def test_sigint_to_a_supervisor_that_stops_pods_kills_them(lab: Lab) -> None:
    """A program that ignores SIGTERM has its grace period of 60 s; nobody waits for that."""
    deaf = 'trap "" TERM; echo runs > "$WORK/runs-$JOB_COMPLETION_INDEX"; while :; do sleep 0.02; done'
    pod = {"terminationGracePeriodSeconds": 60}
    await lab.submit(replicated_job("node", deaf, step="trainer", pod=pod))
    async with lab.supervising():
        await lab.until_file("runs-0")
        await lab.suspend()
        await lab.until(lambda: marked(lab), "the pod is being stopped")
        assert lab.processes() != set()
        os.kill(os.getpid(), signal.SIGINT)

    assert lab.processes() == set()
    assert await lab.conditions() == {"Suspended": ("True", "Suspended")}


async def marked(lab: Lab) -> bool:
    annotation = "trainer.kubeflow.org/deletion-requested"
    return any(annotation in (pod["metadata"].get("annotations") or {}) for pod in await lab.list("Pod"))


async def test_two_jobs_at_once_have_their_own_ports_and_do_not_see_each_other(lab: Lab) -> None:
    script = (
        'echo "$MASTER_PORT" > "$WORK/port-$NAME-$JOB_COMPLETION_INDEX";'
        'until [ -e "$WORK/go" ]; do sleep 0.02; done'
    )
    for name in ("one", "two"):
        await lab.submit(replicated_job("node", f"NAME={name}; {script}", step="trainer"), name=name, nodes=2)
    # Signals belong to one supervisor per process, so the second one has its own handlers in its turn only.
    async with lab.supervising("one"), lab.supervising("two"):
        ports = [
            [await lab.until_file(f"port-{name}-{rank}") for rank in range(2)] for name in ("one", "two")
        ]
        (lab.work / "go").touch()
        for name in ("one", "two"):
            assert await lab.until_finished(name) == {"Complete": ("True", "AllJobsCompleted")}

    assert ports[0][0] == ports[0][1]
    assert ports[1][0] == ports[1][1]
    assert ports[0][0] != ports[1][0]
    assert list((lab.paths.root / "ports").iterdir()) == []


async def test_a_port_that_was_taken_meanwhile_is_replaced_when_the_pods_start_again(lab: Lab) -> None:
    """The first attempt writes its port down and waits; somebody listens there; the second gets another."""
    script = (
        'echo "$MASTER_PORT" >> "$WORK/ports"; [ -e "$WORK/again" ] && exit 0; '
        'until [ -e "$WORK/again" ]; do sleep 0.02; done; exit 1'
    )
    await lab.submit(
        replicated_job("node", script, step="trainer"), template={"failurePolicy": {"maxRestarts": 1}}
    )
    async with lab.supervising():
        port = int(await lab.until_file("ports"))
        with socket.create_server(("127.0.0.1", port)):
            (lab.work / "again").touch()
            await lab.until_finished()

    first, second = (lab.work / "ports").read_text().split()
    assert first != second


async def test_ports_stay_the_same_while_a_pod_of_the_job_runs(lab: Lab) -> None:
    """One pod fails and is replaced while the other, which may listen on the port, goes on."""
    script = (
        'I=$JOB_COMPLETION_INDEX; echo "$MASTER_PORT" >> "$WORK/ports";'
        '[ "$I" = 0 ] && until [ -e "$WORK/done" ]; do sleep 0.02; done;'
        '[ "$I" = 0 ] && exit 0; [ -e "$WORK/again" ] && touch "$WORK/done" && exit 0;'
        'touch "$WORK/again"; exit 1'
    )
    await lab.submit(replicated_job("node", script, step="trainer", job={"backoffLimit": 1}), nodes=2)
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}

    ports = (lab.work / "ports").read_text().split()
    assert len(ports) == 3
    assert len(set(ports)) == 1


async def test_progress_reports_reach_the_status_of_the_job(lab: Lab) -> None:
    report = (
        "import json,os,urllib.request as u;"
        "r=u.Request(os.environ['KUBEFLOW_TRAINER_SERVER_URL'],"
        "headers={'Authorization':'Bearer '+open(os.environ['KUBEFLOW_TRAINER_SERVER_TOKEN']).read()},"
        "data=json.dumps({'trainerStatus':{'progressPercentage':40,'metrics':[{'name':'loss','value':'0.5'}],"
        "'lastUpdatedTime':'2026-01-01T00:00:00Z'}}).encode());u.urlopen(r)"
    )
    await lab.submit(
        replicated_job("other", 'env | grep -c KUBEFLOW_TRAINER_SERVER > "$WORK/count"; exit 0'),
        replicated_job("node", f'python3 -c "{report}"', step="trainer"),
    )
    async with lab.supervising():
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}

    assert (await lab.get())["status"]["trainerStatus"] == {
        "progressPercentage": 40,
        "metrics": [{"name": "loss", "value": "0.5"}],
        "lastUpdatedTime": "2026-01-01T00:00:00Z",
    }
    assert (lab.work / "count").read_text().strip() == "0", "only the trainer step reports"
    uid = (await lab.get())["metadata"]["uid"]
    assert not lab.paths.job(uid).token.exists(), "the token outlived the job"


class FailingExecutor:
    """An executor that cannot start anything."""

    async def start(self, pod: object, context: object) -> object:
        raise OSError(28, "No space left on device")


class ForgetfulRun(ShellRun):
    """A pod that runs, and of which nothing more can be learned."""

    async def changed(self) -> PodStatus:
        raise ConnectionResetError("the channel is broken")


class ForgetfulExecutor(ShellExecutor):
    """An executor with a bug."""

    run_class = ForgetfulRun


async def test_a_pod_that_nothing_is_known_of_any_more_is_ended(lab: Lab) -> None:
    await lab.submit(replicated_job("node", ENDLESS, step="trainer"))
    async with lab.supervising(build_executor=ForgetfulExecutor):
        assert await lab.until_finished() == {"Failed": ("True", "FailedJobs")}

    (pod,) = await lab.list("Pod")
    assert (pod["status"]["reason"], pod["status"]["message"]) == (
        "ConnectionResetError",
        "the channel is broken",
    )
    assert lab.processes() == set()
    uid = (await lab.get())["metadata"]["uid"]
    assert "Traceback" in lab.paths.job(uid).supervisor_log.read_text()


async def test_a_pod_that_cannot_be_started_fails_with_the_reason(lab: Lab) -> None:
    await lab.submit(replicated_job("node", "exit 0", step="trainer"))
    async with lab.supervising(build_executor=FailingExecutor):
        assert await lab.until_finished() == {"Failed": ("True", "FailedJobs")}

    (pod,) = await lab.list("Pod")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "OSError")
    assert "No space left on device" in pod["status"]["message"]


async def test_no_write_is_made_while_nothing_changes(lab: Lab) -> None:
    """A running job is looked at again and again; the store's version stays what it is."""
    await lab.submit(replicated_job("node", ENDLESS, step="trainer"))
    async with lab.supervising():
        await lab.until_file("runs-0")
        await lab.until(lab.running_pods, "the pod runs")
        await asyncio.sleep(0)
        version = await settled_version(lab)
        # A runtime that changes wakes every supervisor and concerns none.
        runtime = await lab.get("TrainingRuntime")
        labels = {"metadata": {"labels": {"touched": "yes"}}}
        changed = await lab.cluster.patch(await key_of(runtime), labels)
        assert int(changed["metadata"]["resourceVersion"]) == version + 1
        assert await settled_version(lab) == version + 1
        await lab.cluster.delete(lab.key())


async def settled_version(lab: Lab) -> int:
    """Return the store's version once it has stayed the same for several turns of the supervisor."""
    same, before = 0, -1
    while same < 5:
        await asyncio.sleep(0.02)
        version = int((await lab.cluster.list("TrainJob")).resource_version)
        same, before = (same + 1, version) if version == before else (0, version)
    return before


async def key_of(obj: dict) -> object:
    from trainwright.api.meta import ObjectKey

    return ObjectKey(obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"])


class TestDevices:
    GPUS = (Gpu(uuid="GPU-a"), Gpu(uuid="GPU-b"))

    async def test_a_pod_waits_until_enough_gpus_are_free(self, lab: Lab) -> None:
        devices = PodDevices(lab.paths.root, {}, self.GPUS)
        spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "4"}}}]}
        with await devices.claim(spec) as lease:
            assert set(lease.uuids) == {"GPU-a", "GPU-b"}
            with pytest.raises(NotEnoughDevices):
                await devices.claim(spec)
        with await devices.claim(spec) as lease:
            assert len(lease.uuids) == 2

    @pytest.mark.parametrize(
        ("spec", "count"),
        [
            ({"containers": [{}]}, 0),
            ({"containers": [{"resources": {"limits": {"amd.com/gpu": "2"}}}] * 2}, 4),
            ({"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.5gb": 1}}}]}, 1),
            ({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 99}}}]}, 1),
            (
                {
                    "initContainers": [{"resources": {"limits": {"nvidia.com/gpu": 3}}}],
                    "containers": [{"resources": {"limits": {"nvidia.com/gpu": 1}}}],
                },
                3,
            ),
            (
                {
                    "initContainers": [
                        {"restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": 1}}}
                    ],
                    "containers": [{"resources": {"limits": {"nvidia.com/gpu": 2}}}],
                },
                3,
            ),
        ],
    )
    def test_what_a_pod_asks_for(self, spec: dict, count: int) -> None:
        assert count_devices(spec) == count


async def test_a_pod_starts_when_the_config_map_that_it_waits_for_is_made(lab: Lab) -> None:
    source = {"envFrom": [{"configMapRef": {"name": "settings"}}]}
    job = replicated_job("node", 'echo "$GREETING" > "$WORK/seen"', step="trainer")
    job["template"]["spec"]["template"]["spec"]["containers"][0] |= source
    await lab.submit(job)
    async with lab.supervising():
        await lab.until(lambda: waits_for_configuration(lab), "the pod waits")
        await lab.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "settings", "namespace": "default"},
                "data": {"GREETING": "hello"},
            }
        )
        assert await lab.until_finished() == {"Complete": ("True", "AllJobsCompleted")}

    assert (lab.work / "seen").read_text() == "hello\n"
    assert len(await lab.list("Pod")) == 1, "the same pod"


async def waits_for_configuration(lab: Lab) -> bool:
    for pod in await lab.list("Pod"):
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            if container["state"].get("waiting", {}).get("reason") == "CreateContainerConfigError":
                return True
    return False


async def test_sigterm_before_anything_ran_leaves_a_job_that_can_be_resumed(lab: Lab) -> None:
    await lab.submit(replicated_job("node", 'touch "$WORK/ran"', step="trainer"))
    runtime = await lab.get("TrainingRuntime")
    await lab.cluster.delete(await key_of(runtime))
    async with lab.supervising():
        await lab.until(lambda: has_cause(lab), "the job waits for its runtime")
        os.kill(os.getpid(), signal.SIGTERM)

    assert (await lab.get())["spec"]["suspend"] is True
    (event,) = [event for event in await lab.list("Event") if event["reason"] == "SupervisorStopped"]
    assert "trainwright resume demo" in event["message"]


async def has_cause(lab: Lab) -> bool:
    return "cause" in ((await lab.get()).get("status") or {})


async def test_sigterm_while_a_job_is_suspended_leaves_it_suspended(lab: Lab) -> None:
    slow = 'trap "sleep 0.3; exit 143" TERM; echo runs > "$WORK/runs"; while :; do sleep 0.02; done'
    await lab.submit(replicated_job("node", slow, step="trainer"))
    async with lab.supervising():
        await lab.until_file("runs")
        await lab.suspend()
        await lab.until(lambda: marked(lab), "the pod is being stopped")
        os.kill(os.getpid(), signal.SIGTERM)

    assert await lab.conditions() == {"Suspended": ("True", "Suspended")}
