"""From a synchronous verb to the target and back: one event loop for each command."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from trainwright.cli.config import choose_target
from trainwright.cli.process import interruptible
from trainwright.cli.targets import AdmissionSource, Target, Where, open_for_checking, open_target

T = TypeVar("T")


def run_on_target(where: Where, work: Callable[[Target], Awaitable[T]]) -> T:
    """Open the target that the caller chose, do the work there and return its result.

    Raises UsageError where a setting names no target, TargetUnreachable where the target cannot be had.
    """
    name = choose_target(where.on, os.environ, Path.home())

    async def _run() -> T:
        async with open_target(name, where) as target:
            return await work(target)

    with interruptible():
        return asyncio.run(_run())


def check_offline(where: Where, work: Callable[[AdmissionSource], Awaitable[T]]) -> T:
    """Do work that asks no cluster and changes nothing; else as `run_on_target`."""
    name = choose_target(where.on, os.environ, Path.home())

    async def _run() -> T:
        async with open_for_checking(name, where) as source:
            return await work(source)

    with interruptible():
        return asyncio.run(_run())
