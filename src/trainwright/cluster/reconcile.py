"""The shell around `decide`: observe, decide, perform. The local supervisor and the operator run the same.

Level-based: a pass looks at the cluster as it is, whatever woke it, and a second pass over an unchanged
cluster writes nothing. It keeps nothing between passes; what the next one has to know is in the status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from trainwright.api.core import ConfigMap
from trainwright.api.jobset import JobSet
from trainwright.api.meta import ObjectKey
from trainwright.cluster.observe import PortSource, Source, observe, observe_from
from trainwright.cluster.perform import Outcome, perform
from trainwright.cluster.port import Cluster, Writer
from trainwright.control.actions import Delete
from trainwright.control.decide import MIN_RETRY_SECONDS, decide
from trainwright.control.lifecycle import Render
from trainwright.control.seen import Seen
from trainwright.control.snapshot import find_unused_snapshots
from trainwright.errors import Conflict, NotFound
from trainwright.render import render as render_train_job

__all__ = [
    "Outcome",
    "delete_snapshots",
    "observe",
    "perform",
    "reconcile",
    "reconcile_from",
    "sweep_snapshots",
]

_ATTEMPTS: Final = 3  # to decide about a TrainJob that changes under our hands


async def reconcile(
    cluster: Cluster,
    key: ObjectKey,
    clock: Callable[[], datetime],
    *,
    deleted_job_set: JobSet | None = None,
    render: Render = render_train_job,
) -> float | None:
    """Bring one TrainJob a step further; return after how many seconds to look again, None for not at all.

    Reads through the port. Snapshots that nobody uses any more go when the TrainJob is gone. `render` makes
    the children of a TrainJob; another one knows more frameworks.
    """
    source = PortSource(cluster)
    for _ in range(_ATTEMPTS):
        outcome = await reconcile_from(
            source, cluster, key, clock, deleted_job_set=deleted_job_set, render=render
        )
        if outcome is None:
            await sweep_snapshots(cluster, key.namespace, clock())
            return None
        if not outcome.is_stale:
            return outcome.requeue_after
    return MIN_RETRY_SECONDS


async def reconcile_from(
    source: Source,
    cluster: Writer,
    key: ObjectKey,
    clock: Callable[[], datetime],
    *,
    deleted_job_set: JobSet | None = None,
    render: Render = render_train_job,
) -> Outcome | None:
    """Observe, decide and perform; None where there is no TrainJob, or none any more.

    What is read comes from `source`, what is written goes to `cluster`. What the target refuses is told in
    the status, and tried again later. An outcome that is stale wants another look at once. Raises what
    `perform` and the reads raise when the target is out of reach.
    """
    seen = await observe_from(source, key, refusal=None, deleted_job_set=deleted_job_set)
    outcome = await _pass(seen, cluster, key, clock, render)
    if outcome is None or outcome.refusal is None:
        return outcome
    # Decided again with the refusal, which only tells it: a write that was refused waits.
    await source.catch_up(key)
    seen = await observe_from(source, key, refusal=outcome.refusal, deleted_job_set=deleted_job_set)
    told = await _pass(seen, cluster, key, clock, render)
    if told is not None and told.refusal is not None:
        return Outcome(refusal=told.refusal, requeue_after=MIN_RETRY_SECONDS)
    return told


async def sweep_snapshots(cluster: Cluster, namespace: str, now: datetime) -> None:
    """Delete the runtime snapshots of a namespace that no TrainJob names any more."""
    source = PortSource(cluster)
    config_maps = await source.list_snapshots(namespace)
    if not find_unused_snapshots(config_maps, [], now):
        return  # nothing is old enough: no need to read all TrainJobs
    jobs = await source.list_train_jobs(namespace)
    await delete_snapshots(cluster, find_unused_snapshots(config_maps, jobs, now))


async def delete_snapshots(cluster: Writer, unused: Iterable[ConfigMap]) -> None:
    """Delete these snapshots, unless somebody was faster."""
    for config_map in unused:
        metadata = config_map.metadata
        key = ObjectKey("ConfigMap", metadata.namespace or "", metadata.name)
        try:
            await cluster.delete(key, metadata.uid)
        except (NotFound, Conflict):
            continue


async def _pass(
    seen: Seen | None, cluster: Writer, key: ObjectKey, clock: Callable[[], datetime], render: Render
) -> Outcome | None:
    """Decide and perform once; None where there is no TrainJob, or none any more."""
    if seen is None:
        return None
    now = clock()
    actions = decide(seen, now, render)
    outcome = await perform(cluster, actions, now, observed=seen.train_job)
    ends_itself = any(isinstance(action, Delete) and action.key == key for action in actions)
    return None if ends_itself and outcome.refusal is None else outcome
