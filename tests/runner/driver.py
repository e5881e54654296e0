"""What a command does, as a process of its own: start supervisors, report lost jobs, sweep.

python driver.py STATE WORK VERB [NAME ...]     prints one JSON value
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner.shell_executor import ShellExecutor
from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import StatePaths
from trainwright.cluster.local.store import LocalCluster
from trainwright.errors import UserError
from trainwright.runner.supervisor.daemon import end_supervisor, ensure_supervisor, start_supervisor
from trainwright.runner.supervisor.job_folder import forget_job
from trainwright.runner.supervisor.lost import report_lost
from trainwright.runner.supervisor.supervisor_lock import SupervisorLock
from trainwright.runner.supervisor.sweep import sweep_expired

EXECUTORS = {"shell": ShellExecutor, "process": None}


def main() -> None:
    root, work, verb, *names = sys.argv[1:]
    paths = StatePaths(Path(root))
    environment = {"PATH": os.environ["PATH"], "WORK": work, **json.loads(os.environ.get("INHERITED", "{}"))}
    build = EXECUTORS[os.environ.get("EXECUTOR", "process")]
    # As in a command: something is open when it forks, and the store was.
    stream = Path(root, "open").open("w")  # noqa: SIM115 (for the life of the process)
    with LocalCluster(paths.store) as cluster:
        read = names if verb in {"ensure", "churn", "start-and-end"} else []
        objects = asyncio.run(read_objects(cluster, read))

    async def act(function: Any) -> list[str]:
        with LocalCluster(paths.store) as cluster:
            return [key.name for key in await function(cluster, paths)]

    try:
        match verb:
            case "start":
                began = time.perf_counter()
                answer: Any = [
                    start_supervisor(
                        paths, ObjectKey("TrainJob", "default", name), environment, Path(work), build
                    )
                    for name in names
                ]
                print(time.perf_counter() - began, file=sys.stderr)
            case "start-and-end":
                key = ObjectKey("TrainJob", "default", names[0])
                answer = start_supervisor(paths, key, environment, Path(work), build)
                answer = answer and end_supervisor(paths, objects[0]["metadata"]["uid"])
            case "ensure":
                uid = objects[0]["metadata"]["uid"]
                key = ObjectKey("TrainJob", "default", names[0])
                answer = ensure_supervisor(paths, key, environment, Path(work), uid)
            case "lost":
                answer = asyncio.run(act(report_lost))
            case "sweep":
                answer = asyncio.run(act(sweep_expired))
            case "toggle":
                answer = toggle(paths, environment, names[0], int(os.environ["COUNT"]))
            case "churn":
                answer = churn(paths, environment, objects[0], int(os.environ["COUNT"]))
    except UserError as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer))
    stream.close()


async def read_objects(cluster: LocalCluster, names: list[str]) -> list[Any]:
    return [await cluster.get(ObjectKey("TrainJob", "default", name)) for name in names]


def toggle(paths: StatePaths, environment: dict[str, str], name: str, count: int) -> int:
    """Suspend and resume a job, last resume it; return how many supervisors that took.

    The pauses are of different lengths, up to what a supervisor takes here from a suspension to its end, so
    that changes meet supervisors at every point of their lives.
    """
    key = ObjectKey("TrainJob", "default", name)
    started = 0

    def change(suspend: bool) -> str:
        nonlocal started
        with LocalCluster(paths.store) as cluster:
            stored = asyncio.run(cluster.patch(key, {"spec": {"suspend": suspend}}))
        uid: str = stored["metadata"]["uid"]
        started += ensure_supervisor(paths, key, environment, Path(environment["WORK"]), uid)
        return uid

    change(suspend=False)
    began = time.monotonic()
    lock = SupervisorLock(paths, change(suspend=True))
    while not lock.try_acquire():
        time.sleep(0.002)
    lock.abandon()
    longest = min(time.monotonic() - began, 0.5)
    for number in range(2 * count):
        change(suspend=number % 2 == 1)
        time.sleep(longest * (number % 11) / 10)
    change(suspend=False)
    return started


def churn(
    paths: StatePaths, environment: dict[str, str], model: dict[str, Any], count: int
) -> dict[str, Any]:
    """Run copies of a job one after the other, every third one failing; delete every second one."""
    began, before = time.perf_counter(), count_descriptors()
    ends: Counter[str] = Counter()
    for number in range(count):
        key = ObjectKey("TrainJob", "default", f"job-{number}")
        spec = {**model["spec"], "suspend": False}
        if number % 3 == 2:
            spec["trainer"] = {"command": ["/bin/sh", "-c", "exit 1"]}
        with LocalCluster(paths.store) as cluster:
            body = {**model, "metadata": {"name": key.name, "namespace": "default"}, "spec": spec}
            uid = asyncio.run(cluster.create(body))["metadata"]["uid"]
        assert start_supervisor(paths, key, environment, Path(environment["WORK"]))
        lock = SupervisorLock(paths, uid)
        while not lock.try_acquire():
            time.sleep(0.002)
        lock.abandon()
        with LocalCluster(paths.store) as cluster:
            status = asyncio.run(cluster.get(key))["status"]
            ends.update(c["type"] for c in status["conditions"] if c["status"] == "True")
            if number % 2:
                asyncio.run(cluster.delete(key))
                assert forget_job(paths, uid)
    return {
        "seconds": time.perf_counter() - began,
        "ends": ends,
        "descriptors_before": before,
        "descriptors_after": count_descriptors(),
    }


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


if __name__ == "__main__":
    main()
