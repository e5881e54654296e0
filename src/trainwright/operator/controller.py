"""Workers around a queue of keys: the same for TrainJobs and for runtimes.

A key is in at most one worker's hands. What fails comes back after a pause that grows; a bug is logged with
its traceback and treated as a failure, so that one object cannot keep the others from being looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from trainwright.api.meta import ObjectKey
from trainwright.cluster.kube.errors import ApiError
from trainwright.cluster.kube.queue import Priority, WorkQueue
from trainwright.errors import TargetUnreachable, UserError
from trainwright.operator.metrics import Metrics

log = structlog.get_logger(__name__)

# How long workers may finish what they have begun when the process is asked to stop.
DRAIN_SECONDS: Final = 1.5


class Again(Exception):
    """What was decided about changed meanwhile: look again at once, after a short pause."""


# Brings one object a step further; returns after how many seconds to look again, None for not at all.
Reconcile = Callable[[ObjectKey], Awaitable[float | None]]


class Controller:
    """One queue and its workers. It runs only on the leader; before that, keys that come in are dropped."""

    def __init__(self, name: str, reconcile: Reconcile, workers: int, metrics: Metrics) -> None:
        self.name = name
        self._reconcile = reconcile
        self._workers = workers
        self._observer = metrics.build_queue_observer(name)
        self._queue: WorkQueue[ObjectKey] | None = None
        metrics.max_workers.labels(name).set(workers)

    def enqueue(
        self, key: ObjectKey, priority: Priority = Priority.EVENT, delay_seconds: float = 0.0
    ) -> None:
        """Ask for a look at an object, at once or after a while."""
        if self._queue is not None:
            self._queue.add_after(key, delay_seconds, priority)

    def count_waiting(self) -> int:
        """Return how many objects wait for a worker."""
        return len(self._queue) if self._queue is not None else 0

    async def run(self, initial: Callable[[], Iterable[ObjectKey]], stopping: asyncio.Event) -> None:
        """Look at everything once and then at what is asked for, until `stopping` is set.

        `initial` is called when changes begin to be queued, so that nothing falls between the two.
        """
        queue: WorkQueue[ObjectKey] = WorkQueue(observer=self._observer)
        self._queue = queue
        for key in initial():
            queue.add(key, Priority.RESYNC)
        log.info("controller started", controller=self.name, workers=self._workers, objects=len(queue))
        try:
            async with asyncio.TaskGroup() as group:
                workers = [
                    group.create_task(self._work(queue), name=f"{self.name}-{number}")
                    for number in range(self._workers)
                ]
                await stopping.wait()
                self._queue = None
                queue.close()
                _, unfinished = await asyncio.wait(workers, timeout=DRAIN_SECONDS)
                for worker in unfinished:
                    log.warning("worker did not finish in time", worker=worker.get_name())
                    worker.cancel()
        finally:
            self._queue = None
            queue.close()

    async def _work(self, queue: WorkQueue[ObjectKey]) -> None:
        while (key := await queue.take()) is not None:
            began = self._observer.began()
            result = "error"
            try:
                result = await self._work_on(queue, key)
            finally:
                self._observer.ended(began, result)
                queue.done(key)

    async def _work_on(self, queue: WorkQueue[ObjectKey], key: ObjectKey) -> str:
        try:
            seconds = await self._reconcile(key)
        except Again:
            queue.add_failed(key)
            return "requeue"
        except (ApiError, TargetUnreachable, UserError) as error:
            pause = queue.add_failed(key)
            log.warning(
                "reconcile failed",
                controller=self.name,
                kind=key.kind,
                namespace=key.namespace,
                name=key.name,
                error=str(error)[:1000],
                retry_seconds=pause,
            )
            return "error"
        except Exception:
            self._observer.failed_by_bug()
            pause = queue.add_failed(key)
            log.exception(
                "reconcile failed by a bug",
                controller=self.name,
                kind=key.kind,
                namespace=key.namespace,
                name=key.name,
                retry_seconds=pause,
            )
            return "error"
        queue.forget(key)
        if seconds is None:
            return "success"
        queue.add_after(key, seconds)
        return "requeue_after"
