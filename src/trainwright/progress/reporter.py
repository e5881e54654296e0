"""Keeps the newest state of a training and sends it from a thread, at most once per interval.

The caller only updates a dictionary under a lock. The thread is a daemon that starts with the first report:
whatever the network does, the training and the end of the interpreter go on. The newest state wins; the last
one is sent at exit. After a failure the thread tries again with growing pauses; one log line tells of it.
"""

from __future__ import annotations

import threading
import time

from trainwright.progress import status
from trainwright.progress.remaining_time import RemainingTime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from trainwright.progress.endpoint import Endpoint

_URL = "KUBEFLOW_TRAINER_SERVER_URL"
INTERVAL_ENV = "TRAINWRIGHT_PROGRESS_INTERVAL_SECONDS"  # ours; a server on this machine can take more
_REPORTING_RANK = "TRAINWRIGHT_PROGRESS_RANK"  # ours; which rank reports, 0 unless set
_DEFAULT_INTERVAL_SECONDS = 5.0
_MAX_PAUSE_SECONDS = 60.0

# Who tells a process its rank, the most specific first; last the pod's index, for jobs without a launcher.
_RANKS = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "FLUX_TASK_RANK",
    "SLURM_PROCID",
    "JAX_PROCESS_ID",
    "JOB_COMPLETION_INDEX",
)


class Reporter:
    """The state of one training. Methods may be called from any thread."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._remaining = RemainingTime()
        self._step: float | None = None
        self._total: float | None = None
        self._epoch: str | None = None
        self._metrics: dict[str, str] = {}
        self._reported_at = 0.0
        self._unsent = False
        self._urgent = False
        self._sending = False
        self._prepared = threading.Event()
        self._failures = 0
        self._attempts = 0

    def report(
        self,
        step: float | None,
        total: float | None,
        epoch: float | None,
        metrics: Mapping[str, object] | None,
        force: bool,
    ) -> None:
        """Merge a report into the state, and wake the thread if it sleeps. Never raises."""
        if not self._environment.get(_URL) or not self._is_reporting_rank():
            return
        try:
            # Outside the lock: a tensor on a GPU takes its time.
            step, total, epoch = (status.read_count(number) for number in (step, total, epoch))
            texts = status.format_metrics(metrics) if metrics else {}
            with self._changed:
                self._merge(step, total, epoch, texts)
                asleep = not self._unsent
                self._unsent = True
                self._urgent = self._urgent or force
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="trainwright progress", daemon=True
                    )
                    self._thread.start()
                elif asleep or force:
                    self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 (a training must not end because of its progress bar)
            _warn_once(f"{type(error).__name__}: {error}")

    def wait_until_prepared(self, timeout_seconds: float) -> None:
        """Wait until the thread, if there is one, has loaded what it sends with."""
        if self._thread is not None:
            self._prepared.wait(timeout_seconds)

    def flush(self, timeout_seconds: float) -> bool:
        """Send what is unsent and wait for it, at most so long. Says whether nothing is left to send."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            if not (self._unsent or self._sending):
                return True
            # An attempt under way may carry an older state, or fail: one more has to begin after this.
            enough = self._attempts + self._sending + 1
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._attempts >= enough or not (self._unsent or self._sending),
                max(0.0, deadline - time.monotonic()),
            )
            self._urgent = False
            return not (self._unsent or self._sending)

    def _is_reporting_rank(self) -> bool:
        get = self._environment.get
        rank = next((value for value in map(get, _RANKS) if value), "0")
        return rank == (get(_REPORTING_RANK) or "0")

    def _merge(
        self, step: float | None, total: float | None, epoch: float | None, metrics: dict[str, str | None]
    ) -> None:
        self._reported_at = time.time()
        self._total = self._total if total is None else total
        self._epoch = self._epoch if epoch is None else status.format_value(epoch)
        for name, value in metrics.items():
            if value is None:
                self._metrics.pop(name, None)
            else:
                self._metrics[name] = value
        if step is not None:
            self._step = step
            self._remaining.add(step, time.monotonic())

    def _build_request(self) -> dict[str, Any]:
        step, total = self._step, self._total
        known = step is not None and total is not None
        metrics: dict[str, str] = {}
        if self._epoch is not None:
            metrics["epoch"] = self._epoch
        if step is not None:
            metrics["step"] = status.format_value(step)
        return status.build_request(
            percent=status.compute_percent(step, total) if known else None,  # type: ignore[arg-type]
            remaining_seconds=self._remaining.estimate(step, total) if known else None,  # type: ignore[arg-type]
            metrics={**metrics, **self._metrics}.items(),
            reported_at=self._reported_at,
        )

    def _run(self) -> None:
        """Send whenever something is unsent and the time has come. Ends with the process."""
        from trainwright.progress.endpoint import Endpoint  # http and ssl: only where reports are sent

        endpoint = Endpoint(self._environment)
        self._prepared.set()
        not_before = 0.0
        while True:
            with self._changed:
                while not self._unsent or (not self._urgent and time.monotonic() < not_before):
                    self._changed.wait(not_before - time.monotonic() if self._unsent else None)
                request = self._build_request()
                self._unsent = self._urgent = False
                self._sending = True
            pause = self._send(endpoint, request)
            not_before = time.monotonic() + pause

    def _send(self, endpoint: Endpoint, request: dict[str, Any]) -> float:
        """Send one report and return the seconds until the next."""
        from trainwright.progress.endpoint import Refused, Unavailable

        pause = _parse_interval(self._environment.get(INTERVAL_ENV))
        again = False
        try:
            endpoint.post(request)
            self._failures = 0
        except Unavailable as error:
            again = True
            self._failures += 1
            pause = max(error.retry_seconds, min(_MAX_PAUSE_SECONDS, max(pause, 1.0) * 2**self._failures))
            _warn_once(str(error))
        except Refused as error:
            _warn_once(str(error))
        except Exception as error:  # noqa: BLE001 (the thread must live on: the next report may go through)
            _warn_once(f"{type(error).__name__}: {error}")
        with self._changed:
            self._unsent = self._unsent or again
            self._sending = False
            self._attempts += 1
            self._changed.notify_all()
        return pause


def _parse_interval(text: str | None) -> float:
    try:
        return max(0.0, float(text)) if text else _DEFAULT_INTERVAL_SECONDS
    except ValueError:
        return _DEFAULT_INTERVAL_SECONDS


_warned = False


def _warn_once(reason: str) -> None:
    """Log the first failure of this process as a warning, later ones for those who debug."""
    import logging

    global _warned  # noqa: PLW0603 (once per process is the point)
    log = logging.getLogger("trainwright.progress")
    log.log(logging.DEBUG if _warned else logging.WARNING, "a progress report was not delivered: %s", reason)
    _warned = True
