"""What the caches' changes say about jobs, as metrics: how many in each phase, and how long things took.

Times count only what happened while this process watched. Those that Kubernetes writes down are whole
seconds, so short ones are exact to a second.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from trainwright.api.core import Pod
from trainwright.api.trainjob import TrainJobStatus
from trainwright.cluster.kube.store import Difference
from trainwright.operator.caches import Caches
from trainwright.operator.metrics import Metrics
from trainwright.operator.stored import StoredJobSet, StoredTrainJob, list_job_set_names, open_train_job

_NEW: Final = "New"  # not looked at yet, or another controller's
_RUNNING: Final = "Running"
_RESTARTING: Final = "RestartingJobSet"


class JobMetrics:
    """Hears of TrainJobs, JobSets and pods."""

    def __init__(self, caches: Caches, metrics: Metrics, clock: Callable[[], datetime]) -> None:
        self._caches = caches
        self._metrics = metrics
        self._clock = clock
        self._restarting: dict[tuple[str, str], datetime] = {}
        caches.train_jobs.add_handler(self._hear_train_job)
        caches.job_sets.add_handler(self._hear_job_set)
        caches.pods.add_handler(self._hear_pod)

    def _hear_train_job(self, difference: Difference[StoredTrainJob]) -> None:
        old, new = difference.old, difference.new
        before = (old.phase or _NEW) if old is not None else None
        after = (new.phase or _NEW) if new is not None else None
        if before == after:
            return
        if before is not None:
            self._metrics.jobs.labels(before).dec()
        if after is not None:
            self._metrics.jobs.labels(after).inc()
        if new is None or old is None or not self._caches.train_jobs.synced.is_set():
            return
        status = open_train_job(new).status
        if status is None:
            return
        if after == _RUNNING and status.start_time is not None and not status.restarts:
            seconds = (self._clock() - status.start_time).total_seconds()
            self._metrics.running_seconds.observe(max(seconds, 0.0))
        if new.has_ended and not old.has_ended:
            self._count_end(status)

    def _count_end(self, status: TrainJobStatus) -> None:
        for condition in status.conditions or ():
            if condition.type in ("Complete", "Failed") and condition.status == "True":
                self._metrics.jobs_finished.labels(condition.type, condition.reason).inc()

    def _hear_pod(self, difference: Difference[Pod]) -> None:
        pod = difference.new
        if pod is None or difference.old is not None or not self._caches.pods.synced.is_set():
            return
        for name in list_job_set_names(pod):
            namespace, _, job_name = name.partition("/")
            job = self._caches.train_jobs.store.get(namespace, job_name)
            if job is None or len(self._caches.list_pods(namespace, job_name)) > 1:
                continue
            status = open_train_job(job).status
            made, began = pod.metadata.creation_timestamp, status.start_time if status else None
            if made is not None and began is not None and not (status and status.restarts):
                self._metrics.first_pod_seconds.observe(max((made - began).total_seconds(), 0.0))

    def _hear_job_set(self, difference: Difference[StoredJobSet]) -> None:
        """Time a restart: from JobSet's word that it makes the pods anew to its word that they are ready."""
        new = difference.new
        conditions = (new.status.conditions if new is not None and new.status else None) or ()
        restart = next((c for c in conditions if c.type == _RESTARTING), None)
        if restart is not None and restart.status == "True":
            self._restarting.setdefault(difference.key, self._clock())
            return
        began = self._restarting.pop(difference.key, None)
        if began is not None and restart is not None and restart.reason == "JobsReady":
            self._metrics.recovery_seconds.observe((self._clock() - began).total_seconds())
