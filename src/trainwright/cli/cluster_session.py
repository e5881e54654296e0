"""From a synchronous verb to the API server of a kubeconfig and back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from trainwright.cli.process import interruptible
from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.transport import AiohttpTransport, Transport


def run_on_cluster(context: str | None, work: Callable[[Transport], Awaitable[None]]) -> None:
    """Do the work on the cluster that kubectl would use.

    Raises UsageError where none is configured, TargetUnreachable where it does not answer.
    """
    connection = load_connection(os.environ, Path.home(), context)

    async def _run() -> None:
        async with AiohttpTransport(connection) as transport:
            await work(transport)

    with interruptible():
        asyncio.run(_run())
