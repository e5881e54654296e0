"""Reports that were accepted, on their way to `status.trainerStatus`: the newest of each, not too often.

Whoever reports is answered at once and waits for no API server. What arrives while a report waits takes its
place, so that a script which reports every step costs a write every other second, and all jobs together no
more writes than the configuration allows: with more jobs each is written less often, and no report is refused
for it. A report that was accepted before its job ended is written after it, too: it may be the last.
Source: spec 03 sections 1.7 and 1.8.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from trainwright.api.constants import API_VERSION, STATUS_FIELD_MANAGER, TRAIN_JOB
from trainwright.api.encoding import build_json
from trainwright.api.meta import Json, ObjectKey, truncate_to_seconds
from trainwright.cluster.kube.errors import ApiError
from trainwright.cluster.kube.flow import TokenBucket
from trainwright.cluster.kube.requests import build_apply
from trainwright.cluster.kube.transport import Transport
from trainwright.control.progress_protocol import JobProgress, Report
from trainwright.errors import InvalidObject, NotFound, TargetUnreachable
from trainwright.operator.caches import Caches
from trainwright.operator.controller import Controller
from trainwright.operator.metrics import Metrics
from trainwright.operator.stored import StoredTrainJob, open_train_job

log = structlog.get_logger(__name__)

NAME: Final = "progress_controller"
WRITE_SECONDS: Final = 2.0  # between two writes about one TrainJob
FLUSH_SECONDS: Final = 2.0  # for what is left at the end of the process
_WRITERS: Final = 4
_REPORTS_PER_SECOND: Final = 10.0  # of one TrainJob
_REPORTS_AT_ONCE: Final = 30
_REMEMBERED: Final = 20_000


class _Course:
    """The reports of one TrainJob."""

    def __init__(self, uid: str, clock: Callable[[], float]) -> None:
        self.uid = uid
        self.last: datetime | None = None
        self.waiting: Report | None = None
        self.written_at = float("-inf")
        self.bucket = TokenBucket(_REPORTS_PER_SECOND, _REPORTS_AT_ONCE, clock)


class ProgressReports:
    """Takes reports on every replica. At most `qps` writes a second, 0 for no limit but each job's."""

    def __init__(
        self,
        caches: Caches,
        transport: Transport,
        clock: Callable[[], datetime],
        metrics: Metrics,
        limits: tuple[float, int],
    ) -> None:
        self._caches = caches
        self._transport = transport
        self._clock = clock
        self._time = asyncio.get_running_loop().time
        qps, burst = limits
        self._bucket = TokenBucket(qps, burst, self._time) if qps else None
        self._courses: OrderedDict[ObjectKey, _Course] = OrderedDict()
        self._controller = Controller(NAME, self._write_in_turn, _WRITERS, metrics)

    def find(self, namespace: str, name: str) -> JobProgress | None:
        """Return what is known about the TrainJob that a report is for, None where there is none."""
        stored = self._caches.train_jobs.store.get(namespace, name)
        if stored is None:
            return None
        # Another replica may have taken a newer one.
        times = (self._get_course(stored).last, self._find_stored_time(stored))
        last = max((moment for moment in times if moment is not None), default=None)
        return JobProgress(name=name, last=last, is_finished=stored.has_ended)

    def admit(self, namespace: str, name: str) -> bool:
        """Count a request about the TrainJob; say whether there were not too many."""
        stored = self._caches.train_jobs.store.get(namespace, name)
        return stored is None or self._get_course(stored).bucket.try_take()

    def accept(self, namespace: str, name: str, report: Report) -> None:
        """Have the report written, unless a newer one comes first."""
        stored = self._caches.train_jobs.store.get(namespace, name)
        if stored is None:
            return
        course = self._get_course(stored)
        course.waiting, course.last = report, report.reported_at
        pause = course.written_at + WRITE_SECONDS - self._time()
        self._controller.enqueue(ObjectKey(TRAIN_JOB, namespace, name), delay_seconds=pause)

    async def run(self, stopping: asyncio.Event) -> None:
        """Write until `stopping` is set."""
        await self._controller.run(self._list_waiting, stopping)

    async def flush(self) -> None:
        """Write what still waits, once, as far as it goes in a short time."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS), asyncio.TaskGroup() as group:
                for key in self._list_waiting():
                    group.create_task(self._flush_one(key), name=f"flush-{key.name}")
        except TimeoutError:
            log.warning("reports were not written in time", count=len(self._list_waiting()))

    async def _flush_one(self, key: ObjectKey) -> None:
        try:
            await self._write(key)
        except (ApiError, TargetUnreachable) as error:
            log.warning("a report was not written", namespace=key.namespace, name=key.name, error=str(error))

    def _list_waiting(self) -> list[ObjectKey]:
        return [key for key, course in self._courses.items() if course.waiting is not None]

    async def _write_in_turn(self, key: ObjectKey) -> float | None:
        # First the pause, then the look at what waits: it is the newest.
        if self._bucket is not None and (pause := self._bucket.take()) > 0:
            await asyncio.sleep(pause)
        await self._write(key)
        return None

    async def _write(self, key: ObjectKey) -> None:
        course = self._courses.get(key)
        if course is None or course.waiting is None:
            return
        report, course.waiting = course.waiting, None
        stored = self._caches.train_jobs.store.get(key.namespace, key.name)
        if stored is None or stored.metadata.uid != course.uid or self._is_outdated(stored, report):
            return
        course.written_at = self._time()
        request = build_apply(
            _build_status(key, report),
            STATUS_FIELD_MANAGER,
            force=True,
            subresource="status",
        )
        try:
            await self._transport.request(request)
        except NotFound:
            return  # the TrainJob is gone
        except InvalidObject as error:
            log.warning(
                "a report was refused", namespace=key.namespace, name=key.name, error=str(error)[:1000]
            )
        except BaseException:
            course.waiting = course.waiting or report
            raise

    def _get_course(self, stored: StoredTrainJob) -> _Course:
        """Return the course of this TrainJob, an empty one where its name had another."""
        key = ObjectKey(TRAIN_JOB, stored.metadata.namespace or "", stored.metadata.name)
        uid = stored.metadata.uid or ""
        course = self._courses.get(key)
        if course is None or course.uid != uid:
            course = self._courses[key] = _Course(uid, self._time)
        self._courses.move_to_end(key)
        while len(self._courses) > _REMEMBERED:
            self._courses.popitem(last=False)
        return course

    def _is_outdated(self, stored: StoredTrainJob, report: Report) -> bool:
        """Say whether another replica wrote a newer report meanwhile."""
        present = self._find_stored_time(stored)
        return present is not None and present > truncate_to_seconds(report.reported_at)

    def _find_stored_time(self, stored: StoredTrainJob) -> datetime | None:
        """Return when the stored report was made; one from the future counts as none.

        A clock that once ran ahead must not shut out all that follows.
        """
        status = open_train_job(stored).status
        last = status.trainer_status.last_updated_time if status and status.trainer_status else None
        return last if last is not None and last <= self._clock() else None


def _build_status(key: ObjectKey, report: Report) -> Json:
    # Without the uid, which an API server overlooks in the status of a custom resource (seen with 1.36): that
    # the job is still the one that reported, the caches tell.
    return {
        "apiVersion": API_VERSION,
        "kind": TRAIN_JOB,
        "metadata": {"namespace": key.namespace, "name": key.name},
        "status": {"trainerStatus": build_json(report.status)},
    }
