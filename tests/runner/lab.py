"""A state directory of a test's own: jobs are submitted to it, supervised in it and asked about."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from trainwright.api.meta import ObjectKey
from trainwright.cluster.local.paths import StatePaths
from trainwright.cluster.local.store import LocalCluster
from trainwright.errors import NotFound
from trainwright.runner.executors.process_identity import send_signal
from trainwright.runner.pods.pod_context import Surroundings
from trainwright.runner.supervisor.handshake import Handshake
from trainwright.runner.supervisor.supervisor_lock import find_live_supervisor, list_marked
from trainwright.runner.supervisor.supervisor_process import BuildExecutor, build_process_executor, supervise

Json = dict[str, Any]


def shell(script: str) -> list[str]:
    """Return the command that runs a shell script."""
    return ["/bin/sh", "-c", script]


def replicated_job(name: str, script: str, *, pods: int = 1, step: str | None = None, **fields: Any) -> Json:
    """Return a runtime's replicated job; `step` is its ancestor label, `pod` and `job` are for its specs."""
    pod, job = fields.pop("pod", {}), fields.pop("job", {})
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": step} if step else {}
    port = {"name": "MASTER_PORT", "value": "29500"}
    container = {"name": "node", "image": "none", "command": shell(script), "env": [port]}
    return {
        "name": name,
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "backoffLimit": 0,
                "parallelism": pods,
                "completions": pods,
                **job,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "terminationGracePeriodSeconds": 60,
                        "containers": [container],
                        **pod,
                    }
                },
            },
        },
        **fields,
    }


class Lab:
    """One state directory, seen from outside as a command sees it."""

    # What a test waits for never happens if it has not by then.
    bound_seconds = 60.0

    def __init__(self, root: Path) -> None:
        self.paths = StatePaths(root / "state")
        self.work = root / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.cluster = LocalCluster(self.paths.store)
        self._supervisors: list[asyncio.Task[None]] = []
        self.environment = {"PATH": os.environ["PATH"], "WORK": str(self.work)}

    def close(self) -> None:
        self.cluster.close()

    @staticmethod
    def key(name: str = "demo") -> ObjectKey:
        return ObjectKey("TrainJob", "default", name)

    async def submit(
        self, *replicated_jobs: Json, name: str = "demo", nodes: int | None = None, **fields: Any
    ) -> Json:
        """Store a TrainJob with a runtime of its own.

        `template` is for the JobSet, `policy` for the runtime's mlPolicy, the rest for the job.
        """
        policy = {"numNodes": nodes or 1, **fields.pop("policy", {})}
        trainer = fields.pop("trainer", {}) | ({"numNodes": nodes} if nodes else {})
        template = {"replicatedJobs": list(replicated_jobs), **fields.pop("template", {})}
        await self.cluster.apply(
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainingRuntime",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"mlPolicy": policy, "template": {"spec": template}},
            },
            "test",
        )
        return await self.cluster.create(
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "runtimeRef": {"name": name, "kind": "TrainingRuntime"},
                    **({"trainer": trainer} if trainer else {}),
                    **fields,
                },
            }
        )

    @asynccontextmanager
    async def supervising(
        self, name: str = "demo", build_executor: BuildExecutor = build_process_executor
    ) -> AsyncIterator[asyncio.Task[None]]:
        """Run a supervisor in this process; it has to end by itself, in time."""
        told: list[Handshake] = []
        task = asyncio.create_task(
            supervise(
                self.paths,
                self.key(name),
                Surroundings(self.environment, self.work),
                told.append,
                build_executor,
            )
        )
        self._supervisors.append(task)
        try:
            yield task
            async with asyncio.timeout(self.bound_seconds):
                await task
        finally:
            self._supervisors.remove(task)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def patch(self, merge: Json, name: str = "demo") -> Json:
        return await self.cluster.patch(self.key(name), merge)

    async def suspend(self, name: str = "demo") -> None:
        await self.patch({"spec": {"suspend": True}}, name)

    async def resume(self, name: str = "demo", **trainer: Any) -> None:
        spec: Json = {"suspend": False}
        if trainer:
            spec["trainer"] = trainer
        await self.patch({"spec": spec}, name)

    async def get(self, kind: str = "TrainJob", name: str = "demo") -> Json:
        return await self.cluster.get(ObjectKey(kind, "default", name))

    async def list(self, kind: str) -> list[Json]:
        return (await self.cluster.list(kind, "default")).items

    async def exists(self, kind: str = "TrainJob", name: str = "demo") -> bool:
        try:
            await self.get(kind, name)
        except NotFound:
            return False
        return True

    async def conditions(self, kind: str = "TrainJob", name: str = "demo") -> dict[str, tuple[str, str]]:
        status = (await self.get(kind, name)).get("status") or {}
        return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions") or ()}

    async def until(self, check: Callable[[], Any], what: str = "") -> Any:
        """Wait until the check, asked after every change of the store and at least often, gives something."""
        async with asyncio.timeout(self.bound_seconds):
            version = (await self.cluster.list("TrainJob")).resource_version
            kinds = ["TrainJob", "JobSet", "Job", "Pod"]
            changes = self.cluster.watch(kinds, None, version)
            try:
                while True:
                    answer = check()
                    if asyncio.iscoroutine(answer):
                        answer = await answer
                    if answer:
                        return answer
                    for supervisor in self._supervisors:
                        if supervisor.done():
                            supervisor.result()  # raises what ended it
                    # What a process writes to a file changes no object: look again soon.
                    next_change = asyncio.ensure_future(anext(changes))
                    await asyncio.wait({next_change}, timeout=0.02)
                    if not next_change.done():
                        next_change.cancel()
                        await asyncio.gather(next_change, return_exceptions=True)
                        changes = self.cluster.watch(
                            kinds, None, (await self.cluster.list("TrainJob")).resource_version
                        )
            except TimeoutError as error:
                raise AssertionError(f"did not happen in {self.bound_seconds} s: {what or check}") from error

    async def until_file(self, name: str) -> str:
        """Wait until a process of the job has written a file in its working directory; return the content."""
        file = self.work / name
        await self.until(lambda: file.exists() and file.stat().st_size > 0, f"file {name}")
        return file.read_text()

    async def until_finished(self, name: str = "demo") -> dict[str, tuple[str, str]]:
        async def finished() -> dict[str, tuple[str, str]] | None:
            conditions = await self.conditions(name=name)
            return conditions if {"Complete", "Failed"} & conditions.keys() else None

        return await self.until(finished, f"end of {name}")

    async def running_pods(self) -> int:
        return sum((pod.get("status") or {}).get("phase") == "Running" for pod in await self.list("Pod"))

    def kill_leftovers(self) -> None:
        """Kill what a failed test left running."""
        for uid in list_marked(self.paths):
            supervisor = find_live_supervisor(self.paths.job(uid))
            if supervisor is not None and supervisor.process.pid != os.getpid():
                send_signal(supervisor.process, signal.SIGKILL)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self) -> set[int]:
        """Return the processes that carry the environment of this laboratory's jobs, however they hide."""
        marker = f"WORK={self.work}".encode()
        found: set[int] = set()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if marker in environ.read_bytes().split(b"\0"):
                    found.add(int(environ.parent.name))
            except OSError:
                continue
        return found


def is_process_alive(pid: int) -> bool:
    """Say whether any thread of the process runs; the first may be gone while another holds a lock."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return False
    return any(_is_thread_alive(thread) for thread in threads)


def _is_thread_alive(thread: Path) -> bool:
    try:
        state = (thread / "stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}
