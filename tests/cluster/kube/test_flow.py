"""Client-side limits: a bucket per resource, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from trainwright.api.meta import ObjectKey
from trainwright.cluster.kube.flow import LimitedTransport, TokenBucket
from trainwright.cluster.kube.requests import Request, build_get, find_plural
from virtual_time import on_virtual_time


class Server:
    def __init__(self) -> None:
        self.sent: list[tuple[str, float]] = []

    async def request(self, request: Request) -> bytes:
        self.sent.append((find_plural(request.path), asyncio.get_running_loop().time()))
        return b"{}"

    async def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        yield b"{}"


@on_virtual_time
async def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    server = Server()
    limited = LimitedTransport(server, qps=10.0, burst=3)
    start = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(limited.request(build_get(ObjectKey("JobSet", "ns", "a"))))
    assert [at - start for _, at in server.sent] == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


@on_virtual_time
async def test_each_resource_has_a_limit_of_its_own() -> None:
    server = Server()
    limited = LimitedTransport(server, qps=1.0, burst=1)
    start = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        for kind in ("JobSet", "TrainJob", "JobSet"):
            group.create_task(limited.request(build_get(ObjectKey(kind, "ns", "a"))))
    assert sorted((plural, at - start) for plural, at in server.sent) == [
        ("jobsets", pytest.approx(0.0)),
        ("jobsets", pytest.approx(1.0)),
        ("trainjobs", pytest.approx(0.0)),
    ]


@on_virtual_time
async def test_streams_are_not_limited() -> None:
    limited = LimitedTransport(Server(), qps=0.001, burst=1)
    request = build_get(ObjectKey("JobSet", "ns", "a"))
    await limited.request(request)
    assert [piece async for piece in limited.stream(request, 1.0)] == [b"{}"]


def test_a_bucket_refills_up_to_its_burst_and_no_further() -> None:
    now = [0.0]
    bucket = TokenBucket(1.0, 2, lambda: now[0])
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]
    now[0] = 100.0
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]


PATHS = {
    "/api/v1/namespaces/a/pods/b/log": "pods",
    "/api/v1/namespaces/a": "namespaces",
    "/api/v1/namespaces": "namespaces",
    "/apis/batch/v1/namespaces/a/jobs": "jobs",
    "/apis/jobset.x-k8s.io/v1alpha2/jobsets": "jobsets",
    "/apis/trainer.kubeflow.org/v1alpha1/namespaces/a/trainjobs/b/status": "trainjobs",
    "/readyz": "",
}


@pytest.mark.parametrize(("path", "plural"), PATHS.items(), ids=PATHS)
def test_a_path_is_about_a_resource(path: str, plural: str) -> None:
    assert find_plural(path) == plural
