"""The metrics of the process: controller-runtime's names for queue, workers and client, and ours for jobs.

Dashboards and alerts made for the peer go on working. Labels have few values and never an object's name.
"""

from __future__ import annotations

import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

# controller-runtime's.
_RECONCILE_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 1, 2, 5, 10, 30, 60)
_QUEUE_BUCKETS: Final = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 100, 1000)
_WEBHOOK_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 10)
_LIFE_BUCKETS: Final = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)


class Metrics:
    """One registry, and everything in it."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        by_controller = ["controller"]
        self.reconciles = Counter(
            "controller_runtime_reconcile",
            "Reconciliations by result: success, error, requeue_after.",
            [*by_controller, "result"],
            registry=registry,
        )
        self.reconcile_errors = Counter(
            "controller_runtime_reconcile_errors",
            "Reconciliations that failed and are tried again.",
            by_controller,
            registry=registry,
        )
        self.reconcile_panics = Counter(
            "controller_runtime_reconcile_panics",
            "Reconciliations that failed by a bug of ours.",
            by_controller,
            registry=registry,
        )
        self.reconcile_seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "Duration of a reconciliation, requests included.",
            by_controller,
            registry=registry,
            buckets=_RECONCILE_BUCKETS,
        )
        self.max_workers = Gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers.", by_controller, registry=registry
        )
        self.active_workers = Gauge(
            "controller_runtime_active_workers", "Workers at work.", by_controller, registry=registry
        )
        by_queue = ["name", "controller"]
        self.queue_depth = Gauge("workqueue_depth", "Keys that wait.", by_queue, registry=registry)
        self.queue_adds = Counter("workqueue_adds", "Keys added.", by_queue, registry=registry)
        self.queue_retries = Counter("workqueue_retries", "Keys that failed.", by_queue, registry=registry)
        self.queue_seconds = Histogram(
            "workqueue_queue_duration_seconds",
            "How long a key waited.",
            by_queue,
            registry=registry,
            buckets=_QUEUE_BUCKETS,
        )
        self.work_seconds = Histogram(
            "workqueue_work_duration_seconds",
            "How long a key was worked on.",
            by_queue,
            registry=registry,
            buckets=_QUEUE_BUCKETS,
        )
        self.client_requests = Counter(
            "rest_client_requests",
            "Requests to the API server by method and status code.",
            ["code", "method", "host"],
            registry=registry,
        )
        self.webhook_requests = Counter(
            "controller_runtime_webhook_requests",
            "Admission reviews by path and code.",
            ["webhook", "code"],
            registry=registry,
        )
        self.webhook_seconds = Histogram(
            "controller_runtime_webhook_latency_seconds",
            "How long an admission review took.",
            ["webhook"],
            registry=registry,
            buckets=_WEBHOOK_BUCKETS,
        )
        self.is_leader = Gauge(
            "leader_election_master_status", "1 for the leader, 0 for others.", ["name"], registry=registry
        )
        self.jobs = Gauge("trainwright_jobs", "TrainJobs by phase.", ["phase"], registry=registry)
        self.jobs_finished = Counter(
            "trainwright_jobs_finished",
            "TrainJobs that ended while this process watched, by result and reason.",
            ["result", "reason"],
            registry=registry,
        )
        self.progress_reports = Counter(
            "trainwright_progress_reports",
            "Progress reports by the code of the answer.",
            ["code"],
            registry=registry,
        )
        self.first_pod_seconds = Histogram(
            "trainwright_job_first_pod_seconds",
            "From the creation of a TrainJob, or its last resume, to its first pod.",
            registry=registry,
            buckets=_LIFE_BUCKETS,
        )
        self.running_seconds = Histogram(
            "trainwright_job_running_seconds",
            "From the creation of a TrainJob, or its last resume, to all its nodes ready.",
            registry=registry,
            buckets=_LIFE_BUCKETS,
        )
        self.recovery_seconds = Histogram(
            "trainwright_job_recovery_seconds",
            "From the restart of a TrainJob's pods to all its nodes ready again.",
            registry=registry,
            buckets=_LIFE_BUCKETS,
        )

    def build_queue_observer(self, controller: str) -> QueueMetrics:
        """Return what hears of a controller's queue."""
        return QueueMetrics(self, controller)

    def count_review(self, path: str, code: int, seconds: float) -> None:
        """Count an answer of a webhook."""
        self.webhook_requests.labels(path, str(code)).inc()
        self.webhook_seconds.labels(path).observe(seconds)

    def count_report(self, code: int) -> None:
        """Count an answer of the status server."""
        self.progress_reports.labels(str(code)).inc()

    def count_answer(self, host: str, method: str, status: int) -> None:
        """Count an answer of the API server; a status of 0 is none."""
        self.client_requests.labels(str(status) if status else "<error>", method, host).inc()


class QueueMetrics:
    """Hears of one queue and its workers; labels are bound once."""

    def __init__(self, metrics: Metrics, controller: str) -> None:
        self._depth = metrics.queue_depth.labels(controller, controller)
        self._adds = metrics.queue_adds.labels(controller, controller)
        self._retries = metrics.queue_retries.labels(controller, controller)
        self._waited = metrics.queue_seconds.labels(controller, controller)
        self._worked = metrics.work_seconds.labels(controller, controller)
        self._active = metrics.active_workers.labels(controller)
        self._seconds = metrics.reconcile_seconds.labels(controller)
        self._errors = metrics.reconcile_errors.labels(controller)
        self._panics = metrics.reconcile_panics.labels(controller)
        self._results = {
            result: metrics.reconciles.labels(controller, result)
            for result in ("success", "error", "requeue", "requeue_after")
        }

    def added(self, depth: int) -> None:
        """Count a key that came in."""
        self._adds.inc()
        self._depth.set(depth)

    def taken(self, depth: int, waited_seconds: float) -> None:
        """Note how long a key waited."""
        self._depth.set(depth)
        self._waited.observe(waited_seconds)

    def retried(self) -> None:
        """Count a key that failed."""
        self._retries.inc()

    def began(self) -> float:
        """Note that a worker began; return the time to hand to `ended`."""
        self._active.inc()
        return time.perf_counter()

    def ended(self, began: float, result: str) -> None:
        """Note how a worker's turn ended."""
        self._active.dec()
        seconds = time.perf_counter() - began
        self._worked.observe(seconds)
        self._seconds.observe(seconds)
        self._results[result].inc()
        if result == "error":
            self._errors.inc()

    def failed_by_bug(self) -> None:
        """Count a bug."""
        self._panics.inc()
