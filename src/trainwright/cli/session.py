"""From a synchronous verb to the target and back: one event loop for each command."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from trainwright.cli.config import choose_target
from trainwright.cli.target_names import TargetName
from trainwright.cli.targets import Target, open_target

T = TypeVar("T")


def run_on_target(on: TargetName | None, work: Callable[[Target], Awaitable[T]]) -> T:
    """Open the target that the caller chose, do the work there and return its result.

    Raises UsageError where a setting names no target, TargetUnreachable where the target cannot be had.
    """
    name = choose_target(on, os.environ, Path.home())

    async def _run() -> T:
        async with open_target(name) as target:
            return await work(target)

    return asyncio.run(_run())
