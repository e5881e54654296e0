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
from trainwright.runner.daemon import ensure_supervisor, start_supervisor
from trainwright.runner.job_folder import forget_job
from trainwright.runner.lost import report_lost
from trainwright.runner.supervisor_lock import SupervisorLock
from trainwright.runner.sweep import sweep_expired

EXECUTORS = {"shell": ShellExecutor, "process": None}


def main() -> None:
    root, work, verb, *names = sys.argv[1:]
    paths = StatePaths(Path(root))
    environment = {"PATH": os.environ["PATH"], "WORK": work}
    build = EXECUTORS[os.environ.get("EXECUTOR", "process")]
    # As in a command: something was open before the fork, the store among it.
    cluster = LocalCluster(paths.store)

    async def act(function: Any) -> list[str]:
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
            case "ensure":
                uid = asyncio.run(cluster.get(ObjectKey("TrainJob", "default", names[0])))["metadata"]["uid"]
                key = ObjectKey("TrainJob", "default", names[0])
                answer = ensure_supervisor(paths, key, environment, Path(work), uid)
            case "lost":
                answer = asyncio.run(act(report_lost))
            case "sweep":
                answer = asyncio.run(act(sweep_expired))
            case "churn":
                answer = churn(cluster, paths, environment, names[0], int(names[1]))
    except UserError as error:
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer))


def churn(
    cluster: LocalCluster, paths: StatePaths, environment: dict[str, str], model: str, count: int
) -> dict[str, Any]:
    """Run copies of a job one after the other, every third one failing; delete every second one."""
    copied = asyncio.run(cluster.get(ObjectKey("TrainJob", "default", model)))
    began, before = time.perf_counter(), count_descriptors()
    ends: Counter[str] = Counter()
    for number in range(count):
        key = ObjectKey("TrainJob", "default", f"job-{number}")
        spec = {**copied["spec"], "suspend": False}
        if number % 3 == 2:
            spec["trainer"] = {"command": ["/bin/sh", "-c", "exit 1"]}
        body = {**copied, "metadata": {"name": key.name, "namespace": "default"}, "spec": spec}
        uid = asyncio.run(cluster.create(body))["metadata"]["uid"]
        assert start_supervisor(paths, key, environment, Path(environment["WORK"]))
        lock = SupervisorLock(paths, uid)
        while not lock.try_acquire():
            time.sleep(0.002)
        lock.abandon()
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
