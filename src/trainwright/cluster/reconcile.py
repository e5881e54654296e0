"""The shell around `decide`: observe, decide, perform. The local supervisor and the operator run the same.

Level-based: a pass looks at the cluster as it is, whatever woke it, and a second pass over an unchanged
cluster writes nothing. It keeps nothing between passes; what the next one has to know is in the status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from trainwright.api.core import ConfigMap
from trainwright.api.jobset import JobSet
from trainwright.api.meta import ObjectKey
from trainwright.cluster.observe import PortSource, Source, observe, observe_from
from trainwright.cluster.perform import Outcome, perform
from trainwright.cluster.port import Cluster
from trainwright.control.actions import Delete
from trainwright.control.decide import MIN_RETRY_SECONDS, decide
from trainwright.control.seen import Refusal
from trainwright.control.snapshot import find_unused_snapshots
from trainwright.errors import Conflict, NotFound

__all__ = ["Outcome", "observe", "perform", "reconcile", "reconcile_from", "sweep_snapshots"]


async def reconcile(
    cluster: Cluster,
    key: ObjectKey,
    clock: Callable[[], datetime],
    *,
    deleted_job_set: JobSet | None = None,
) -> float | None:
    """Bring one TrainJob a step further; return after how many seconds to look again, None for not at all.

    Reads through the port. Snapshots that nobody uses any more go when the TrainJob is gone.
    """
    outcome = await reconcile_from(PortSource(cluster), cluster, key, clock, deleted_job_set=deleted_job_set)
    if outcome.is_gone:
        await sweep_snapshots(cluster, key.namespace, clock())
    return outcome.requeue_after


async def reconcile_from(
    source: Source,
    cluster: Cluster,
    key: ObjectKey,
    clock: Callable[[], datetime],
    *,
    deleted_job_set: JobSet | None = None,
) -> Outcome:
    """Bring one TrainJob a step further: what is read comes from `source`, what is written goes to `cluster`.

    What the target refuses is told in the status, and tried again later. Raises what `perform` and the
    reads raise when the target is out of reach.
    """
    outcome = await _pass(source, cluster, key, clock, None, deleted_job_set)
    if outcome.refusal is None:
        return outcome
    # Decided again with the refusal, which only tells it: a write that was refused waits.
    await source.catch_up(key)
    told = await _pass(source, cluster, key, clock, outcome.refusal, deleted_job_set)
    if told.requeue_after is None and not told.is_gone:
        return Outcome(refusal=outcome.refusal, requeue_after=MIN_RETRY_SECONDS)
    return told


async def sweep_snapshots(cluster: Cluster, namespace: str, now: datetime) -> None:
    """Delete the runtime snapshots of a namespace that no TrainJob names any more."""
    source = PortSource(cluster)
    config_maps = await source.list_snapshots(namespace)
    if not find_unused_snapshots(config_maps, [], now):
        return  # nothing is old enough: no need to read all TrainJobs
    jobs = await source.list_train_jobs(namespace)
    await delete_snapshots(cluster, find_unused_snapshots(config_maps, jobs, now))


async def delete_snapshots(cluster: Cluster, unused: Iterable[ConfigMap]) -> None:
    """Delete these snapshots, unless somebody was faster."""
    for config_map in unused:
        metadata = config_map.metadata
        try:
            await cluster.delete(
                ObjectKey("ConfigMap", metadata.namespace or "", metadata.name), metadata.uid
            )
        except (NotFound, Conflict):
            continue


async def _pass(
    source: Source,
    cluster: Cluster,
    key: ObjectKey,
    clock: Callable[[], datetime],
    refusal: Refusal | None,
    deleted_job_set: JobSet | None,
) -> Outcome:
    """Observe, decide and perform once."""
    seen = await observe_from(source, key, refusal=refusal, deleted_job_set=deleted_job_set)
    if seen is None:
        return Outcome(is_gone=True)
    now = clock()
    actions = decide(seen, now)
    outcome = await perform(cluster, actions, now, train_job_uid=seen.train_job.metadata.uid)
    ends_itself = any(isinstance(action, Delete) and action.key == key for action in actions)
    if ends_itself and outcome.refusal is None:
        return Outcome(is_gone=True)
    return outcome
