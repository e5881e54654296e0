"""How fast is the embedded store: listing 10,000 finished jobs, opening it, and each verb?

Data: TrainJobs of 1.5 kB, as they are after a run (10 variables, conditions, counters, times), in a store in
the temporary folder. Baselines: for the list, reading and decoding the same 10,000 JSON documents from one
file, which is the least that any store can do; for opening and the verbs, what SQLite takes to open
the file and to commit one row of that size. Bias: everything is in the page cache, nobody else writes, the
baseline of the verbs neither reads nor compares nor indexes anything; that of the list knows no order and no
namespaces.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from measure import Figure, best_of, show
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.local.store import LocalCluster
from trainwright.cluster.local.watch import LONGEST_POLL_SECONDS

JOBS = 10_000
BATCHES = 5
CALLS = 200  # a batch
IDLE_SECONDS = 3.0


def build_job(name: str) -> Json:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name, "namespace": "default", "labels": {"team": "vision"}},
        "spec": {
            "runtimeRef": {"name": "torch-distributed", "kind": "ClusterTrainingRuntime"},
            "trainer": {
                "numNodes": 2,
                "command": ["torchrun", "train.py"],
                "args": ["--epochs", "3"],
                "env": [{"name": f"VARIABLE_{number}", "value": "x" * 40} for number in range(10)],
            },
        },
    }


STATUS: Json = {
    "status": {
        "conditions": [
            {
                "type": "Complete",
                "status": "True",
                "reason": "AllJobsCompleted",
                "message": "jobset completed successfully",
                "lastTransitionTime": "2026-01-01T00:10:00Z",
            }
        ],
        "jobsStatus": [
            {"name": "node", "ready": 0, "succeeded": 1, "failed": 0, "active": 0, "suspended": 0}
        ],
        "trainerStatus": {"progressPercentage": 100, "metrics": [{"name": "loss", "value": "0.1"}]},
        "phase": "Complete",
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": "2026-01-01T00:10:00Z",
        "restarts": 0,
        "runtimeSnapshot": {"name": "torch-distributed", "hash": "0" * 32},
    }
}


def measure() -> list[Figure]:
    """Fill a store with finished jobs, and time what commands and supervisors do with it."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Figure]:
    path = folder / "store.db"
    with LocalCluster(path) as cluster:
        for number in range(JOBS):
            await cluster.create(build_job(f"job-{number}"))
            await cluster.patch_status(ObjectKey("TrainJob", "default", f"job-{number}"), STATUS)
        listed = await cluster.list("TrainJob")
        lines = folder / "jobs.jsonl"
        lines.write_bytes(b"\n".join(msgspec.json.encode(job) for job in listed.items))
        del listed
        commit = _measure_commit(folder / "plain.db", lines.read_bytes().partition(b"\n")[0])
        figures = [
            Figure(
                name=f"list {JOBS:,} finished TrainJobs as JSON",
                ours=await _best_of(5, lambda: cluster.list("TrainJob")),
                baseline_name="read and decode the same documents from one file",
                baseline=best_of(5, lambda: _decode_lines(lines)),
                limit=0.5,
            )
        ]
        figures += [
            Figure(
                name=name,
                ours=await _per_call(verb),
                baseline_name="SQLite commit of one row",
                baseline=commit,
            )
            for name, verb in _list_verbs(cluster)
        ]
        figures.append(await _measure_idle(cluster))
    return [*figures, *_measure_opening(path)]


def _list_verbs(cluster: LocalCluster) -> list[tuple[str, Callable[[int], Awaitable[Any]]]]:
    def key(number: int) -> ObjectKey:
        return ObjectKey("TrainJob", "default", f"job-{number}")

    return [
        ("get", lambda number: cluster.get(key(number))),
        ("create", lambda number: cluster.create(build_job(f"new-{number}"))),
        ("apply a new object", lambda number: cluster.apply(build_job(f"applied-{number}"), "bench")),
        ("apply the same again", lambda number: cluster.apply(build_job(f"applied-{number}"), "bench")),
        ("patch", lambda number: cluster.patch(key(number), {"spec": {"suspend": True}})),
        (
            "patch the status",
            lambda number: cluster.patch_status(key(number), {"status": {"phase": f"P{number}"}}),
        ),
        ("patch the status to what it is", lambda number: cluster.patch_status(key(number), {"status": {}})),
        ("list by a label that nothing has", lambda _: cluster.list("TrainJob", "default", {"team": "none"})),
        ("delete", lambda number: cluster.delete(ObjectKey("TrainJob", "default", f"new-{number}"))),
    ]


async def _measure_idle(cluster: LocalCluster) -> Figure:
    version = (await cluster.list("Pod")).resource_version
    waiting = asyncio.create_task(anext(cluster.watch(["Pod"], None, version)))
    ours = await _measure_cpu_per_second()
    waiting.cancel()
    await asyncio.wait([waiting])
    ticking = asyncio.create_task(_tick())
    baseline = await _measure_cpu_per_second()
    ticking.cancel()
    await asyncio.wait([ticking])
    return Figure(
        name="CPU time per second of a watch for which nothing happens",
        ours=ours,
        baseline_name="an asyncio timer of the same interval that does nothing",
        baseline=baseline,
        limit=0.01,
    )


async def _tick() -> None:
    while True:  # noqa: ASYNC110 (the timer is what is measured)
        await asyncio.sleep(LONGEST_POLL_SECONDS)


async def _measure_cpu_per_second() -> float:
    await asyncio.sleep(1)  # until the watch polls at its longest interval
    start = time.process_time()
    await asyncio.sleep(IDLE_SECONDS)
    return (time.process_time() - start) / IDLE_SECONDS


def _measure_opening(path: Path) -> list[Figure]:
    def open_and_close() -> None:
        LocalCluster(path).close()

    def open_plainly() -> None:
        connection = sqlite3.connect(path)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.close()

    return [
        Figure(
            name="open and close the store",
            ours=best_of(20, open_and_close),
            baseline_name="the same with sqlite3 alone",
            baseline=best_of(20, open_plainly),
            limit=0.01,
        )
    ]


def _measure_commit(path: Path, body: bytes) -> float:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE rows (body BLOB)")

    def commit() -> None:
        connection.execute("INSERT INTO rows VALUES (?)", (body,))

    took = best_of(BATCHES, commit, number=CALLS)
    connection.close()
    return took


def _decode_lines(path: Path) -> list[Json]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    return [decode(line) for line in path.read_bytes().split(b"\n")]


async def _per_call(verb: Callable[[int], Awaitable[Any]]) -> float:
    """Return the mean duration of a call in the best of several batches: others use the machine too."""
    batches = []
    for batch in range(BATCHES):
        start = time.perf_counter()
        for number in range(batch * CALLS, (batch + 1) * CALLS):
            await verb(number)
        batches.append((time.perf_counter() - start) / CALLS)
    return min(batches)


async def _best_of(rounds: int, call: Callable[[], Awaitable[Any]]) -> float:
    times = []
    for _ in range(rounds):
        gc.collect()  # the last result: in a command there is none
        start = time.perf_counter()
        await call()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    show(measure())
