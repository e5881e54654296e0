"""A scripted API server with a kubelet behind it: pods, their log files, and connections that break.

Log files hold lines with the time of each. As a kubelet does, it gives out lines since a whole second,
follows a container until it ends, and begins again with the first line for everyone who asks. A script says
after how many bytes of an answer the connection is cut.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from aiohttp import web

NAMESPACE = "team"
JOB_UID = "job-uid"
_API = f"/api/v1/namespaces/{NAMESPACE}"


@dataclass
class Container:
    """What one run of a container printed: time in nanoseconds and text. `ended` is set when it has ended."""

    lines: list[tuple[int, bytes]] = field(default_factory=list)
    unfinished: tuple[int, bytes] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    grown: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def print(self, *lines: tuple[int, bytes]) -> None:
        self.lines += lines
        async with self.grown:
            self.grown.notify_all()

    async def end(self) -> None:
        self.ended.set()
        async with self.grown:
            self.grown.notify_all()


def format_time(stamp: int) -> str:
    seconds, nanoseconds = divmod(stamp, 1_000_000_000)
    minutes, seconds = divmod(seconds - 1_800_000_000, 60)
    assert 0 <= minutes < 60, "times begin at 2027-01-15T08:00:00Z and last an hour"
    return f"2027-01-15T08:{minutes:02}:{seconds:02}.{nanoseconds:09}Z"


def parse_time(text: str) -> int:
    """Return a whole second in nanoseconds; the API server hands no parts of one on to the kubelet."""
    return int(datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z").timestamp()) * 1_000_000_000


@dataclass
class LogServer:
    """The server. `cuts` are the bytes after which answers with logs break off, one for each answer."""

    url: str = ""
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    containers: dict[str, list[Container]] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    asked: list[dict[str, str]] = field(default_factory=list)
    _version: int = 1
    _changes: list[dict[str, Any]] = field(default_factory=list)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def set_pod(
        self, name: str, phase: str, state: dict[str, Any] | None = None, *, rank: int = 0, restarts: int = 0
    ) -> None:
        """Make a pod, or let its container be in another state."""
        self._version += 1
        kind = "MODIFIED" if name in self.pods else "ADDED"
        statuses = [{"name": "node", "state": state, "restartCount": restarts}] if state else []
        if restarts:
            statuses[0]["lastState"] = {"terminated": {"exitCode": 1}}
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "demo",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": str(rank),
        }
        self.pods[name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "uid": f"uid-{name}",
                "labels": labels,
                "resourceVersion": str(self._version),
            },
            "spec": {"containers": [{"name": "node"}, {"name": "istio-proxy"}]},
            "status": {"phase": phase, "containerStatuses": statuses},
        }
        await self._tell(kind, self.pods[name])

    async def delete_pod(self, name: str) -> None:
        self._version += 1
        pod = self.pods.pop(name)
        pod = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self._version)}}
        await self._tell("DELETED", pod)

    async def run_pod(self, name: str, *, rank: int = 0) -> Container:
        """Let a pod's container begin, again if it was there."""
        container = Container()
        runs = self.containers.setdefault(name, [])
        runs.append(container)
        await self.set_pod(name, "Running", {"running": {}}, rank=rank, restarts=len(runs) - 1)
        return container

    async def _tell(self, kind: str, pod: dict[str, Any]) -> None:
        self._changes.append({"type": kind, "object": pod})
        async with self._changed:
            self._changed.notify_all()

    async def list_pods(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await self._watch(request)
        body = {
            "apiVersion": "v1",
            "kind": "PodList",
            "metadata": {"resourceVersion": str(self._version)},
            "items": list(self.pods.values()),
        }
        return web.json_response(body)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        answer = web.StreamResponse()
        await answer.prepare(request)
        given = 0
        while True:
            for change in self._changes[given:]:
                if int(change["object"]["metadata"]["resourceVersion"]) > since:
                    await answer.write(json.dumps(change).encode() + b"\n")
            given = len(self._changes)
            async with self._changed:
                await self._changed.wait_for(lambda: len(self._changes) > given)  # noqa: B023

    async def read_log(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.asked.append(query)
        runs = self.containers.get(request.match_info["pod"], [])
        number = -2 if query.get("previous") else -1
        if len(runs) < -number:
            return _refuse(400, "BadRequest", "container is waiting to start")
        answer = web.StreamResponse()
        await answer.prepare(request)
        cut = self.cuts.pop(0) if self.cuts else None
        async for line in _read(runs[number], query):
            if cut is not None and len(line) >= cut:
                await answer.write(line[:cut])
                assert request.transport is not None
                request.transport.abort()
                return answer
            cut = None if cut is None else cut - len(line)
            await answer.write(line)
        return answer

    async def find_job_set(self, request: web.Request) -> web.StreamResponse:
        return _refuse(404, "NotFound", "jobsets not found")


async def _read(container: Container, query: dict[str, str]) -> AsyncIterator[bytes]:
    position = 0
    since = parse_time(query["sinceTime"]) if "sinceTime" in query else 0
    if "tailLines" in query:
        position = max(0, len(container.lines) - int(query["tailLines"]))
    while True:
        while position < len(container.lines):
            stamp, text = container.lines[position]
            position += 1
            if stamp >= since:
                yield format_time(stamp).encode() + b" " + text + b"\n"
        if "follow" not in query or container.ended.is_set():
            if container.unfinished is not None:
                yield format_time(container.unfinished[0]).encode() + b" " + container.unfinished[1]
            return
        async with container.grown:
            await container.grown.wait_for(
                lambda: position < len(container.lines) or container.ended.is_set()  # noqa: B023
            )


def _refuse(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": {"name": "demo"}}
    return web.json_response(body, status=code)


@asynccontextmanager
async def serving() -> AsyncIterator[LogServer]:
    """Serve on a free port of this machine."""
    server = LogServer()
    app = web.Application()
    app.router.add_get(f"{_API}/pods", server.list_pods)
    app.router.add_get(f"{_API}/pods/{{pod}}/log", server.read_log)
    app.router.add_get(
        f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets/{{name}}", server.find_job_set
    )
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
