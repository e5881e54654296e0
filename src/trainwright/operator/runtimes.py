"""The controllers of runtimes: they take the finalizer away that older versions of the peer set.

Runtimes may be deleted at any time, since jobs go on with their snapshots. A finalizer that nobody takes away
any more would keep them for ever. Source: spec 01, section 3.12.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME, LEGACY_FINALIZER, TRAINING_RUNTIME
from trainwright.api.meta import ObjectKey
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.informer import Informer
from trainwright.cluster.kube.store import Difference
from trainwright.errors import NotFound
from trainwright.operator.caches import Caches
from trainwright.operator.controller import Controller
from trainwright.operator.metrics import Metrics

NAMES: Final = {
    TRAINING_RUNTIME: "trainingruntime_controller",
    CLUSTER_TRAINING_RUNTIME: "clustertrainingruntime_controller",
}


class RuntimeController:
    """Looks after one kind of runtime."""

    def __init__(
        self, kind: str, caches: Caches, cluster: KubeCluster, workers: int, metrics: Metrics
    ) -> None:
        self._kind = kind
        self._cluster = cluster
        self._informer: Informer[Any] = (
            caches.training_runtimes if kind == TRAINING_RUNTIME else caches.cluster_training_runtimes
        )
        self._controller = Controller(NAMES[kind], self._reconcile, workers, metrics)
        self._informer.add_handler(self._hear)

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set."""
        await self._controller.run(self._list_marked, stopping)

    def _list_marked(self) -> list[ObjectKey]:
        return [
            ObjectKey(self._kind, runtime.metadata.namespace or "", runtime.metadata.name)
            for runtime in self._informer.store
            if LEGACY_FINALIZER in (runtime.metadata.finalizers or ())
        ]

    def _hear(self, difference: Difference[Any]) -> None:
        runtime = difference.new
        if runtime is not None and LEGACY_FINALIZER in (runtime.metadata.finalizers or ()):
            self._controller.enqueue(ObjectKey(self._kind, *difference.key))

    async def _reconcile(self, key: ObjectKey) -> None:
        runtime = self._informer.store.get(key.namespace, key.name)
        finalizers = (runtime.metadata.finalizers if runtime is not None else None) or []
        if runtime is None or LEGACY_FINALIZER not in finalizers:
            return
        left = [finalizer for finalizer in finalizers if finalizer != LEGACY_FINALIZER]
        # The version keeps a finalizer that somebody else sets meanwhile.
        metadata = {"finalizers": left or None, "resourceVersion": runtime.metadata.resource_version}
        try:
            await self._cluster.patch(key, {"metadata": metadata})
        except NotFound:
            return
