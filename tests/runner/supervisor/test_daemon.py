"""Supervisors as processes of their own: started by commands, killed, reported, swept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.lab import Lab, is_process_alive, replicated_job
from trainwright.api.meta import ObjectKey
from trainwright.runner.executors.leftovers import end_leftovers
from trainwright.runner.supervisor.daemon import end_supervisor, hurry_supervisor, start_supervisor
from trainwright.runner.supervisor.job_folder import forget_job
from trainwright.runner.supervisor.supervisor_lock import (
    SupervisorLock,
    find_live_supervisor,
    holding,
    list_marked,
)

DRIVER = Path(__file__).parents[1] / "driver.py"
ENDLESS = (
    'trap "exit 143" TERM; echo runs > "$WORK/runs-$NAME-$JOB_COMPLETION_INDEX"; while :; do sleep 0.02; done'
)


async def command(lab: Lab, verb: str, *names: str, **environment: str) -> Any:
    """Run what a command does in a process of its own; return what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(DRIVER),
        str(lab.paths.root),
        str(lab.work),
        verb,
        *names,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(lab.bound_seconds):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def uid_of(lab: Lab, name: str = "demo") -> str:
    return (await lab.get(name=name))["metadata"]["uid"]


async def until_idle(lab: Lab, uid: str) -> None:
    """Wait until no supervisor holds the job's lock."""

    def is_free() -> bool:
        with holding(lab.paths, uid) as lock:
            return lock is not None

    if lab.paths.job(uid).root.exists():
        await lab.until(is_free, "the supervisor ends")


async def until_gone(lab: Lab, pid: int) -> None:
    await lab.until(lambda: not is_process_alive(pid), f"process {pid} ends")


async def kill(lab: Lab, pid: int) -> None:
    """Kill the process, and wait until it is gone: until then it holds its lock."""
    os.kill(pid, signal.SIGKILL)
    await until_gone(lab, pid)


async def start_endless(lab: Lab, name: str = "demo", executor: str = "process") -> tuple[str, int]:
    """Start a job that does not end; return its uid and its supervisor's pid."""
    await lab.submit(replicated_job("node", f"NAME={name}; {ENDLESS}", step="trainer"), name=name)
    assert await command(lab, "start", name, EXECUTOR=executor) == [True]
    uid = await uid_of(lab, name)
    await lab.until_file(f"runs-{name}-0")
    await lab.until(lab.running_pods, "the pod runs")
    supervisor = find_live_supervisor(lab.paths.job(uid))
    assert supervisor is not None
    assert supervisor.key == lab.key(name)
    return uid, supervisor.process.pid


async def test_a_supervisor_outlives_the_command_that_started_it(lab: Lab) -> None:
    _, supervisor = await start_endless(lab)
    assert os.getsid(supervisor) != os.getsid(0), "in a session of its own"
    assert os.getsid(supervisor) != supervisor, "no session leader: it can never get a terminal"

    await lab.suspend()
    await until_gone(lab, supervisor)
    assert lab.processes() == set()
    assert list((lab.paths.root / "supervised").iterdir()) == []


async def test_a_supervisor_holds_nothing_of_its_command_but_its_own_files(lab: Lab) -> None:
    uid, supervisor = await start_endless(lab)
    own = {
        os.devnull,
        *(
            str(lab.paths.root / name)
            for name in (
                "store.db",
                "store.db-wal",
                "store.db-shm",
                "supervisor-start.log",
                f"jobs/{uid}/lock",
                f"jobs/{uid}/supervisor.log",
                *(f"ports/{port.name}" for port in (lab.paths.root / "ports").iterdir()),
            )
        ),
    }

    def list_others() -> list[str]:
        files = [target for target in list_descriptors(supervisor) if target.startswith("/")]
        return [
            file for file in files if file not in own and not file.startswith(str(lab.paths.job(uid).pods))
        ]

    # What it reads and writes is open for a moment, now and then.
    await lab.until(lambda: not list_others(), "nothing of the command is open")
    assert end_supervisor(lab.paths, uid)
    await until_idle(lab, uid)


async def test_a_program_that_has_the_store_open_may_not_fork(lab: Lab) -> None:
    """SQLite would corrupt it; this process has it open all the time."""
    await lab.submit(replicated_job("node", "exit 0"))
    with pytest.raises(RuntimeError, match=r"close .*store\.db before"):
        start_supervisor(lab.paths, lab.key(), {}, lab.work)


def list_descriptors(pid: int) -> list[str]:
    targets = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            targets.append(str(link.readlink()))
    return targets


async def test_two_commands_at_once_start_one_supervisor(lab: Lab) -> None:
    await lab.submit(replicated_job("node", f"NAME=demo; {ENDLESS}", step="trainer"))
    answers = await asyncio.gather(*(command(lab, "start", "demo") for _ in range(4)))

    assert sorted(answer[0] for answer in answers) == [False, False, False, True]
    await lab.until_file("runs-demo-0")
    assert await command(lab, "ensure", "demo") is False
    assert len(await lab.list("Pod")) == 1
    uid = await uid_of(lab)
    end_supervisor(lab.paths, uid)
    await until_idle(lab, uid)


async def test_a_job_that_does_not_exist_is_told_to_the_command(lab: Lab) -> None:
    assert await command(lab, "start", "nothing") == "NotFound: TrainJob 'nothing' does not exist"


async def test_a_state_directory_that_cannot_be_written_is_told_to_the_command(lab: Lab) -> None:
    await lab.submit(replicated_job("node", "exit 0"))
    lab.paths.jobs.write_text("in the way")
    answer = await command(lab, "start", "demo")

    assert answer.startswith("StateDirectoryError: ")
    assert "TRAINWRIGHT_STATE" in answer


async def test_a_killed_supervisor_is_reported_lost_and_its_processes_are_gone(lab: Lab) -> None:
    uid, supervisor = await start_endless(lab)
    await kill(lab, supervisor)

    assert await command(lab, "lost") == ["demo"]
    assert lab.processes() == set()
    assert await lab.conditions() == {"Failed": ("True", "SupervisorLost")}
    message = (await lab.get("JobSet"))["status"]["conditions"][0]["message"]
    assert f"(pid {supervisor}) died" in message
    assert str(lab.paths.job(uid).supervisor_log) in message
    (pod,) = await lab.list("Pod")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "SupervisorLost")
    assert await command(lab, "lost") == [], "reported twice"


async def test_the_next_job_runs_after_a_supervisor_was_killed(lab: Lab) -> None:
    _, supervisor = await start_endless(lab)
    await kill(lab, supervisor)
    await lab.submit(replicated_job("node", "exit 0", step="trainer"), name="next")

    assert await command(lab, "lost") == ["demo"]
    assert await command(lab, "start", "next") == [True]
    assert await lab.until_finished("next") == {"Complete": ("True", "AllJobsCompleted")}
    await until_idle(lab, await uid_of(lab, "next"))


async def test_a_supervisor_that_was_killed_while_it_suspended_leaves_a_suspended_job(lab: Lab) -> None:
    await kill_while_suspending(lab)

    assert await command(lab, "lost") == ["demo"]
    assert await lab.conditions() == {"Suspended": ("True", "Suspended")}
    assert await lab.list("Pod") == []


async def test_whoever_follows_a_supervisor_that_was_killed_while_it_suspended_cleans_up(lab: Lab) -> None:
    uid = await kill_while_suspending(lab)
    (record,) = lab.paths.job(uid).pods.glob("*/host-paths.json")
    temporary = json.loads(record.read_text())["temporary"]
    assert temporary in list_temporary()

    assert await command(lab, "start", "demo") == [True]
    await until_idle(lab, uid)
    assert await lab.conditions() == {"Suspended": ("True", "Suspended")}
    assert await lab.list("Pod") == []
    assert temporary not in list_temporary()


async def kill_while_suspending(lab: Lab) -> str:
    """Kill the supervisor while it waits for a pod that ignores SIGTERM; return the job's uid."""
    deaf = 'trap "" TERM; echo runs > "$WORK/runs-demo-0"; while :; do sleep 0.02; done'
    await lab.submit(replicated_job("node", deaf, step="trainer"))
    await command(lab, "start", "demo")
    await lab.until_file("runs-demo-0")
    await lab.until(lab.running_pods)
    uid = await uid_of(lab)
    supervisor = find_live_supervisor(lab.paths.job(uid))
    assert supervisor is not None
    await lab.suspend()
    await lab.until(lambda: is_suspending(lab), "the supervisor suspends")
    await kill(lab, supervisor.process.pid)
    return uid


async def is_suspending(lab: Lab) -> bool:
    return (await lab.conditions("JobSet")).get("Suspended") is not None


async def test_a_job_that_never_ran_is_suspended_when_its_supervisor_dies(lab: Lab) -> None:
    """Its runtime does not exist, so the supervisor waits for that when it is killed."""
    await lab.submit(replicated_job("node", "exit 0", step="trainer"))
    runtime = await lab.get("TrainingRuntime")
    await lab.cluster.delete(ObjectKey("TrainingRuntime", "default", "demo"))
    await command(lab, "start", "demo")
    uid = await uid_of(lab)
    supervisor = find_live_supervisor(lab.paths.job(uid))
    assert supervisor is not None
    await kill(lab, supervisor.process.pid)

    assert await command(lab, "lost") == ["demo"]
    assert (await lab.get())["spec"]["suspend"] is True
    events = await lab.list("Event")
    assert any(
        event["reason"] == "SupervisorLost" and "trainwright resume demo" in event["message"]
        for event in events
    )

    runtime["metadata"] = {"name": "demo", "namespace": "default"}
    await lab.cluster.create(runtime)
    await lab.resume()
    assert await command(lab, "ensure", "demo") is True
    assert (await lab.until_finished())["Complete"] == ("True", "AllJobsCompleted")
    await until_idle(lab, uid)


async def test_a_job_deleted_after_its_supervisor_was_killed_leaves_nothing(lab: Lab) -> None:
    uid, supervisor = await start_endless(lab)
    await kill(lab, supervisor)
    await lab.cluster.delete(lab.key())

    assert await command(lab, "lost") == []
    assert lab.processes() == set()
    assert not lab.paths.job(uid).root.exists()


def list_temporary() -> list[str]:
    return [str(folder) for folder in Path("/tmp").glob("tw-*")]


async def test_a_job_that_is_removed_unreported_after_its_supervisor_was_killed_leaves_nothing(
    lab: Lab,
) -> None:
    """Nobody looked at it in between; its pod's temporary folder is written down in the folder that goes."""
    uid, supervisor = await start_endless(lab)
    (record,) = lab.paths.job(uid).pods.glob("*/host-paths.json")
    temporary = json.loads(record.read_text())["temporary"]
    assert temporary in list_temporary()
    await kill(lab, supervisor)
    await lab.cluster.delete(lab.key())

    assert forget_job(lab.paths, uid)
    assert lab.processes() == set()
    assert temporary not in list_temporary()
    assert not lab.paths.job(uid).root.exists()
    assert list_marked(lab.paths) == []


async def test_starting_a_job_whose_supervisor_was_killed_reports_it_first(lab: Lab) -> None:
    uid, supervisor = await start_endless(lab)
    await kill(lab, supervisor)

    assert await command(lab, "start", "demo") == [True]
    await until_idle(lab, uid)
    assert await lab.conditions() == {"Failed": ("True", "SupervisorLost")}


async def test_sigterm_to_a_supervisor_ends_its_job_in_good_order(lab: Lab) -> None:
    uid, supervisor = await start_endless(lab)
    assert end_supervisor(lab.paths, uid)
    await until_gone(lab, supervisor)

    assert lab.processes() == set()
    assert await lab.conditions() == {"Failed": ("True", "SupervisorStopped")}
    assert await command(lab, "lost") == []
    assert not end_supervisor(lab.paths, uid), "nobody is there any more"
    assert not hurry_supervisor(lab.paths, uid)


async def test_sigterm_to_a_supervisor_that_has_only_just_begun_ends_its_job_in_good_order(lab: Lab) -> None:
    """Its lock and its name are there before it has prepared anything for signals."""
    await lab.submit(replicated_job("node", f"NAME=demo; {ENDLESS}", step="trainer"))
    assert await command(lab, "start-and-end", "demo") is True
    await until_idle(lab, await uid_of(lab))

    assert list((lab.paths.root / "supervised").iterdir()) == [], "it died"
    conditions, events = await lab.conditions(), await lab.list("Event")
    assert "SupervisorStopped" in {reason for _, reason in conditions.values()} | {
        event["reason"] for event in events
    }
    assert lab.processes() == set()


async def test_a_finished_job_is_deleted_by_the_next_command_after_its_time(lab: Lab) -> None:
    await lab.submit(replicated_job("node", "exit 0", step="trainer"), ttlSecondsAfterFinished=1)
    await command(lab, "start", "demo")
    await lab.until_finished()
    uid = await uid_of(lab)
    await until_idle(lab, uid)

    async def is_swept() -> bool:
        return await command(lab, "sweep") == ["demo"]

    await lab.until(is_swept, "the time to live ends")
    assert not await lab.exists()
    assert not await lab.exists("JobSet")
    assert not lab.paths.job(uid).root.exists()
    assert list((lab.paths.root / "expiring").iterdir()) == []


async def test_a_job_is_reported_lost_only_when_its_last_process_is_gone(lab: Lab) -> None:
    """1. Pods with many processes run. 2. Their supervisor is killed, and the kernel begins to kill them.
    3. Whoever reports the job waits until it is done with that.
    """
    script = (
        "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 600 & done; "
        'echo runs > "$WORK/runs-$JOB_COMPLETION_INDEX"; wait'
    )
    await lab.submit(replicated_job("node", script, step="trainer"), nodes=4)
    assert await command(lab, "start", "demo") == [True]
    for rank in range(4):
        await lab.until_file(f"runs-{rank}")
    uid = await uid_of(lab)
    supervisor = find_live_supervisor(lab.paths.job(uid))
    assert supervisor is not None
    os.kill(supervisor.process.pid, signal.SIGKILL)
    lock = SupervisorLock(lab.paths, uid)
    while not lock.try_acquire():
        pass  # it has its lock until it is gone
    end_leftovers(lab.paths.job(uid))
    assert lab.processes() == set()
    lock.abandon()
    assert await command(lab, "lost") == ["demo"]


async def test_processes_that_survive_their_supervisor_are_killed(lab: Lab) -> None:
    """This executor's processes do not notice that it died."""
    _, supervisor = await start_endless(lab, executor="shell")
    await kill(lab, supervisor)
    assert lab.processes() != set()

    assert await command(lab, "lost") == ["demo"]
    assert lab.processes() == set()


async def test_a_job_that_is_suspended_and_resumed_in_quick_succession_ends_as_last_asked(lab: Lab) -> None:
    """Supervisors end and begin meanwhile, at every point of their lives."""
    script = 'trap "exit 143" TERM; until [ -e "$WORK/go" ]; do sleep 0.01; done'
    await lab.submit(replicated_job("node", script, step="trainer"))
    started = await command(lab, "toggle", "demo", COUNT="12")
    assert started > 1
    (lab.work / "go").touch()

    assert (await lab.until_finished())["Complete"] == ("True", "AllJobsCompleted")
    await until_idle(lab, await uid_of(lab))
    assert lab.processes() == set()
    assert list((lab.paths.root / "supervised").iterdir()) == []


async def test_two_jobs_at_once_do_not_disturb_each_other(lab: Lab) -> None:
    one, _ = await start_endless(lab, "one")
    two, _ = await start_endless(lab, "two")
    end_supervisor(lab.paths, one)
    await until_idle(lab, one)

    assert lab.processes() != set()
    assert (await lab.conditions(name="two")) == {}
    await lab.cluster.delete(lab.key("two"))
    await until_idle(lab, two)
    assert lab.processes() == set()
