"""An event loop whose time jumps ahead when nothing is left to do: waits of minutes take no time.

A module asks for it with a fixture `event_loop_policy` that returns `VirtualTimePolicy()`. looptime's own
pytest plugin is switched off: it opens a loop in every synchronous test and leaves it open.
"""

from __future__ import annotations

import asyncio

import looptime


class VirtualTimePolicy(asyncio.DefaultEventLoopPolicy):
    """Makes event loops on virtual time, which starts at 0."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return looptime.patch_event_loop(super().new_event_loop(), start=0.0)
