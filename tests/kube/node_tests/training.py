"""Watching and reading what runs on the node."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from kube.cluster import Cluster
from kube.control_plane import ADMIN_TOKEN
from trainwright.api.meta import Json
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.errors import TooManyRequestsError
from trainwright.cluster.kube.transport import AiohttpTransport
from trainwright.cluster.port import Expired

K = TypeVar("K", bound=KubeCluster)

PATIENCE_SECONDS = 60.0
WATCHED = ("TrainJob", "JobSet", "Job", "Pod", "Event")


@contextlib.asynccontextmanager
async def connect(cluster: Cluster, adapter: type[K] = KubeCluster) -> AsyncIterator[K]:
    """Reach the cluster through the port, as its administrator."""
    connection = load_connection({"KUBECONFIG": str(cluster.kubeconfig)}, Path("/"))
    async with AiohttpTransport(connection) as transport:
        yield adapter(transport, "test")
    # A stream that was broken off says goodbye in the background: aiohttp has forgotten it by now, and the
    # end of the event loop would cut it short, with a warning.
    await asyncio.sleep(0.25)


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


async def follow(kube: KubeCluster, namespace: str | None, tell: Callable[[Json | None], object]) -> None:
    """Tell every object that changes, until cancelled; None where some may have been missed."""
    while True:
        version = (await kube.list("Pod", namespace)).resource_version
        tell(None)
        try:
            async for change in kube.watch(WATCHED, namespace, version):
                tell(change.object)
        except Expired:
            continue  # the caches of a server that has just started begin later, and each at another version
        except TooManyRequestsError as error:  # they are being filled
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


def exec_in_pod(cluster: Cluster, pod: Json, *command: str) -> str:
    """Run a command in the first container of a pod, through the API server, and return what it printed."""
    metadata = pod["metadata"]
    done = subprocess.run(
        [
            *(cluster.plane.programs / "kubectl", "--kubeconfig", cluster.kubeconfig),
            *("--namespace", metadata["namespace"], "exec", metadata["name"], "--", *command),
        ],
        capture_output=True,
        check=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    return done.stdout
