"""Watching and reading what runs on the node."""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

from kube.cluster import Cluster
from kube.control_plane import ADMIN_TOKEN
from trainwright.api.meta import Json
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.errors import TooManyRequestsError

PATIENCE_SECONDS = 60.0
WATCHED = ("JobSet", "Job", "Pod", "Event")


async def wait_until(
    kube: KubeCluster,
    namespace: str,
    condition: Callable[[], Awaitable[bool]],
    seconds: float = PATIENCE_SECONDS,
) -> None:
    """Return once the condition holds; it is asked again after every change in the namespace."""
    changed = asyncio.Event()
    async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
        following = group.create_task(follow(kube, namespace, lambda _: changed.set()), name="follow")
        while not await condition():
            await changed.wait()
            changed.clear()
        following.cancel()


async def follow(kube: KubeCluster, namespace: str | None, tell: Callable[[Json], object]) -> None:
    """Tell every object that changes, until cancelled."""
    version = (await kube.list("Pod", namespace)).resource_version
    while True:
        try:
            async for change in kube.watch(WATCHED, namespace, version):
                tell(change.object)
        except TooManyRequestsError as error:  # a server that has just started fills its caches
            await asyncio.sleep(error.retry_after or 1.0)


def read_log(cluster: Cluster, namespace: str, pod: dict[str, Any]) -> str:
    """Return what the first container of a pod said, through the API server."""
    name = pod["metadata"]["name"]
    request = urllib.request.Request(
        f"{cluster.plane.server}/api/v1/namespaces/{namespace}/pods/{name}/log",
        headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
    )
    context = ssl.create_default_context(cafile=str(cluster.plane.folder / "pki/apiserver.crt"))
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        return str(answer.read().decode())
