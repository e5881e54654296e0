"""A profile on demand: SIGUSR1 begins one, which ends by itself and is logged, with what each task waits for.

It costs nothing until then, needs no port and no file, and only who may signal the process may ask for it.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
from typing import Final

import structlog

log = structlog.get_logger(__name__)

PROFILE_SECONDS: Final = 15.0
_LINES: Final = 40


class Profiler:
    """At most one profile at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float = PROFILE_SECONDS) -> None:
        self._loop = loop
        self._seconds = seconds
        self._profile: cProfile.Profile | None = None

    def begin(self) -> None:
        """Begin a profile, unless one runs."""
        if self._profile is not None:
            return
        log.info("profile begins", seconds=self._seconds)
        self._profile = cProfile.Profile()
        self._profile.enable()
        self._loop.call_later(self._seconds, self._end)

    def _end(self) -> None:
        profile, self._profile = self._profile, None
        if profile is None:
            return
        profile.disable()
        text = io.StringIO()
        pstats.Stats(profile, stream=text).sort_stats("cumulative").print_stats(_LINES)
        log.info("profile", table=text.getvalue())
        log.info("tasks", tasks=list_tasks(self._loop))


def list_tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Return every task with the line that it waits at."""
    lines = []
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        stack = task.get_stack(limit=1)
        where = f"{stack[0].f_code.co_filename}:{stack[0].f_lineno}" if stack else "not started"
        lines.append(f"{task.get_name()} {where}")
    return lines
