"""The shell around `decide`: observe, decide, perform. The local supervisor and the operator run the same.

Level-based: a pass looks at the cluster as it is, whatever woke it, and a second pass over an unchanged
cluster writes nothing. It keeps nothing between passes; what the next one has to know is in the status.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from trainwright.api.constants import TRAIN_JOB
from trainwright.api.core import ConfigMap
from trainwright.api.encoding import parse_object
from trainwright.api.jobset import JobSet
from trainwright.api.meta import ObjectKey
from trainwright.api.trainjob import TrainJob
from trainwright.cluster.observe import observe
from trainwright.cluster.perform import Outcome, perform
from trainwright.cluster.port import Cluster
from trainwright.control.actions import Delete
from trainwright.control.decide import MIN_RETRY_SECONDS, decide
from trainwright.control.seen import Refusal
from trainwright.control.snapshot import SNAPSHOT_LABEL, find_unused_snapshots
from trainwright.errors import Conflict, NotFound

__all__ = ["Outcome", "observe", "perform", "reconcile", "sweep_snapshots"]

_SNAPSHOTS: Final = {SNAPSHOT_LABEL: "true"}
_ATTEMPTS: Final = 3  # to decide about a TrainJob that changes under our hands


async def reconcile(
    cluster: Cluster,
    key: ObjectKey,
    clock: Callable[[], datetime],
    *,
    deleted_job_set: JobSet | None = None,
) -> float | None:
    """Bring one TrainJob a step further; return after how many seconds to look again, None for not at all.

    What the target refuses is told in the status, and tried again later. Snapshots that nobody uses any more
    go when the TrainJob is gone. Raises what `perform` and the reads raise when the target is out of reach.
    """
    for _ in range(_ATTEMPTS):
        outcome = await _pass(cluster, key, clock, None, deleted_job_set)
        if outcome is not None and outcome.refusal is not None:
            # Decided again with the refusal, which only tells it: a write that was refused waits.
            outcome = await _pass(cluster, key, clock, outcome.refusal, deleted_job_set)
            if outcome is not None and outcome.refusal is not None:
                return MIN_RETRY_SECONDS
        if outcome is None:
            await sweep_snapshots(cluster, key.namespace, clock())
            return None
        if not outcome.is_stale:
            return outcome.requeue_after
    return MIN_RETRY_SECONDS


async def sweep_snapshots(cluster: Cluster, namespace: str, now: datetime) -> None:
    """Delete the runtime snapshots of a namespace that no TrainJob names any more."""
    bodies = (await cluster.list("ConfigMap", namespace, _SNAPSHOTS)).items
    config_maps = [parse_object(body, ConfigMap) for body in bodies]
    if not find_unused_snapshots(config_maps, [], now):
        return  # nothing is old enough: no need to read all TrainJobs
    jobs = [parse_object(body, TrainJob) for body in (await cluster.list(TRAIN_JOB, namespace)).items]
    for unused in find_unused_snapshots(config_maps, jobs, now):
        metadata = unused.metadata
        try:
            await cluster.delete(ObjectKey("ConfigMap", namespace, metadata.name), metadata.uid)
        except (NotFound, Conflict):
            continue  # another sweep was faster


async def _pass(
    cluster: Cluster,
    key: ObjectKey,
    clock: Callable[[], datetime],
    refusal: Refusal | None,
    deleted_job_set: JobSet | None,
) -> Outcome | None:
    """Observe, decide and perform once; None where there is no TrainJob, or none any more."""
    seen = await observe(cluster, key, refusal=refusal, deleted_job_set=deleted_job_set)
    if seen is None:
        return None
    now = clock()
    actions = decide(seen, now)
    outcome = await perform(cluster, actions, now, observed=seen.train_job)
    ends_itself = any(isinstance(action, Delete) and action.key == key for action in actions)
    return None if ends_itself and outcome.refusal is None else outcome
