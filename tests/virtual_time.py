"""Tests whose time jumps ahead when nothing is left to do: waits of minutes take no time.

looptime's own pytest plugin is switched off: it opens a loop in every synchronous test and leaves it open.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import looptime


def on_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in an event loop whose time starts at 0 and jumps to the next timer."""

    @functools.wraps(test)
    def run(*arguments: Any, **keywords: Any) -> None:
        with asyncio.Runner(loop_factory=functools.partial(looptime.new_event_loop, start=0.0)) as runner:
            runner.run(test(*arguments, **keywords))

    return run
