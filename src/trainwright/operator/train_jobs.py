"""The controller of TrainJobs: the one `decide`, fed from the caches, written through the API server.

It adds what only a process with caches has to know: a job whose last writes the caches do not show yet is not
looked at (`expectations`), and snapshots that nobody uses any more are swept now and then rather than at
each deletion, since a namespace may hold 50,000 jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from trainwright.api.meta import ObjectKey
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.errors import ApiError
from trainwright.cluster.kube.queue import Priority
from trainwright.cluster.reconcile import delete_snapshots, reconcile_from
from trainwright.control.lifecycle import Render
from trainwright.control.snapshot import find_unused_snapshots
from trainwright.errors import TargetUnreachable
from trainwright.operator.cache_source import CacheSource, ReconcileSource
from trainwright.operator.caches import Caches, build_key
from trainwright.operator.controller import Again, Controller
from trainwright.operator.expectations import PATIENCE_SECONDS, Expectations
from trainwright.operator.metrics import Metrics
from trainwright.operator.stored import open_train_job
from trainwright.operator.tracked import Ledger, SharedSnapshots, TrackedWriter
from trainwright.render import render as render_train_job

log = structlog.get_logger(__name__)

NAME: Final = "trainjob_controller"
SWEEP_SECONDS: Final = 300.0


class TrainJobController:
    """Brings TrainJobs where they should be."""

    def __init__(
        self,
        caches: Caches,
        cluster: KubeCluster,
        clock: Callable[[], datetime],
        workers: int,
        metrics: Metrics,
        render: Render = render_train_job,
    ) -> None:
        self._caches = caches
        self._cluster = cluster
        self._clock = clock
        self._render = render
        self._expectations = Expectations()
        self.source = CacheSource(caches, cluster, self._expectations)
        self._own_source = ReconcileSource(caches, cluster, self._expectations)
        self._controller = Controller(NAME, self._reconcile, workers, metrics)
        self._expectations.on_met = self._controller.enqueue
        self._ledger = Ledger(self._expectations, SharedSnapshots(), caches.find_version)
        caches.add_version_handler(self._see, self._expectations.see_list)
        caches.add_wake(self._controller.enqueue)

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set."""
        async with asyncio.TaskGroup() as group:
            sweeper = group.create_task(self._sweep_now_and_then(), name="sweep-snapshots")
            await self._controller.run(self._caches.list_train_job_keys, stopping)
            sweeper.cancel()

    def look_at_all(self) -> None:
        """Look at every TrainJob that has not ended, each when its turn comes."""
        for stored in self._caches.train_jobs.store:
            if not stored.has_ended:
                self._controller.enqueue(build_key(stored), Priority.RESYNC)

    def count_waiting(self) -> int:
        """Return how many TrainJobs wait to be looked at."""
        return self._controller.count_waiting()

    def _see(self, key: ObjectKey, version: str) -> None:
        self._expectations.see(key, version)
        self._ledger.snapshots.see(key)

    async def _reconcile(self, key: ObjectKey) -> float | None:
        if not self._expectations.is_current(key):
            # Whatever the caches wait for wakes the key; the pause is for what never comes.
            self._controller.enqueue(key, delay_seconds=PATIENCE_SECONDS)
            return None
        writer = TrackedWriter(self._cluster, key, self._ledger)
        outcome = await reconcile_from(
            self._own_source,
            writer,
            key,
            self._clock,
            deleted_job_set=self._caches.get_deleted_job_set(key.namespace, key.name),
            render=self._render,
        )
        if outcome is None:
            return None
        if outcome.is_stale:
            raise Again
        if outcome.refusal is not None:
            log.info(
                "write was refused",
                namespace=key.namespace,
                name=key.name,
                object=str(outcome.refusal.key),
                reason=outcome.refusal.reason,
                message=outcome.refusal.message[:1000],
            )
        return outcome.requeue_after

    async def _sweep_now_and_then(self) -> None:
        while True:
            try:
                await self.sweep()
            except (ApiError, TargetUnreachable) as error:
                log.warning("snapshots were not swept", error=str(error))
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> None:
        """Delete the snapshots that no TrainJob names any more."""
        now = self._clock()
        idle = [
            config_map
            for config_map in self._caches.snapshots.store
            if not self._caches.has_users(config_map)
        ]
        if not find_unused_snapshots(idle, [], now):
            return  # the usual case, without looking at every job
        namespaces = {config_map.metadata.namespace for config_map in idle}
        jobs = [
            open_train_job(stored)
            for stored in self._caches.train_jobs.store
            if stored.metadata.namespace in namespaces
        ]
        unused = find_unused_snapshots(idle, jobs, now)
        await delete_snapshots(self._cluster, unused)
        if unused:
            log.info("deleted runtime snapshots that no job uses", count=len(unused))
