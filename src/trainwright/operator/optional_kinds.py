"""Kinds that a cluster may not have: looked for where they are needed, and never where they are not.

The operator asks for Workloads once a TrainJob goes through a queue, and for PodGroups once a runtime gangs
its pods; then it watches them like all others. Where nobody serves the kind, or the operator may not read it,
it asks again every now and then, as long as the need lasts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import structlog

from trainwright.cluster.kube.errors import ForbiddenError, NotFoundError
from trainwright.cluster.kube.informer import Informer
from trainwright.cluster.kube.store import Watched

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Watched)

# What a kind that is not served is answered with, and one that may not be read.
ABSENCES: Final = (NotFoundError, ForbiddenError)
RETRY_SECONDS: Final = 60.0
PATIENCE_SECONDS: Final = 10.0


class OptionalKind(Generic[T]):
    """An informer that runs while its kind is needed and served.

    `kinds` are the names of one kind in `cluster.kube.resources`, newest version first; `is_needed` is asked
    before each try.
    """

    def __init__(self, informer: Informer[T], kinds: Sequence[str], is_needed: Callable[[], bool]) -> None:
        self.informer = informer
        informer.ends_on = ABSENCES
        self._kinds = kinds
        self._is_needed = is_needed
        self._need = asyncio.Event()
        self._is_known = asyncio.Event()
        self._told: set[str] = set()  # which kinds may not be read

    def look(self) -> None:
        """Say that the need may have arisen."""
        if self._is_needed():
            self._need.set()

    async def run(self) -> None:
        """Keep the informer current, whenever the kind is needed and served, until cancelled."""
        while True:
            await self._need.wait()
            for kind in self._kinds:
                await self._follow(kind)
            self._is_known.set()
            await asyncio.sleep(RETRY_SECONDS)
            self._need.clear()
            self.look()

    async def wait_until_known(self) -> None:
        """Wait until the objects are here, or nobody has them, or nobody needs them; a while, if all fails.

        A trouble of those who serve them must not keep jobs from running that have nothing to do with it.
        """
        self.look()
        if not self._need.is_set():
            return
        waits = [asyncio.ensure_future(event.wait()) for event in (self._is_known, self.informer.synced)]
        try:
            await asyncio.wait(waits, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _follow(self, kind: str) -> None:
        """Follow the objects of one version, until it turns out that it is not served."""
        self.informer.kind = kind
        try:
            await self.informer.run()
        except ABSENCES as error:
            was_there = self.informer.synced.is_set()
            self.informer.forget()
            is_news = was_there or (isinstance(error, ForbiddenError) and kind not in self._told)
            self._told.add(kind)
            tell = log.warning if is_news else log.debug
            tell("objects are not looked at", kind=kind, error=str(error), retry_seconds=RETRY_SECONDS)
