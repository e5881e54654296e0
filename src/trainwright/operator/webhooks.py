"""The webhook server: four paths, each an AdmissionReview in and an answer out.

What a rule has to know comes from the caches, so that an answer takes no request: an API server waits for it,
and calling it back can deadlock. One exception: a runtime that the caches lack, which may have been made a
moment ago, is read once, with a tight limit of time. What is wrong in an object is told in the answer; what
is no review at all gets a plain 4xx and one line in the log. Source: spec 01 sections 2.1 and 2.2.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final, ParamSpec, Protocol, TypeVar

import structlog
from aiohttp import web

from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME, TRAIN_JOB
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.runtime import Runtime
from trainwright.api.trainjob import TrainJob
from trainwright.cluster.observe import build_runtime_key
from trainwright.control.snapshot import find_snapshot, list_snapshot_names
from trainwright.errors import UserError
from trainwright.frameworks import FRAMEWORKS, Framework
from trainwright.manifests.names import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from trainwright.operator.admission_review import (
    Answer,
    BadReview,
    Change,
    Facts,
    Review,
    default_reviewed,
    encode_answer,
    parse_review,
    read_change,
    validate_reviewed,
    validate_reviewed_runtime,
)

log = structlog.get_logger(__name__)

# An API server takes objects of up to 3 MiB, and sends the old one with the new one.
MAX_REVIEW_BYTES: Final = 8 * 2**20
LARGE_REVIEW_BYTES: Final = 64 * 2**10  # takes some 10 ms; nearly all are smaller
BODY_TIMEOUT_SECONDS: Final = 10.0
LIVE_READ_SECONDS: Final = 2.0


class Lookup(Protocol):
    """What is known of the cluster, without asking it."""

    async def find_runtime(self, key: ObjectKey) -> Runtime | None:
        """Return the runtime of either kind, or None."""
        ...

    async def find_snapshot(self, train_job: TrainJob, name: str) -> Json | None:
        """Return the ConfigMap of this name, in which a snapshot of the job's runtime may be, or None."""
        ...

    async def find_job_set(self, namespace: str, name: str) -> JobSet | None:
        """Return the JobSet, or None."""
        ...

    def list_runtime_names(self, kind: str, namespace: str) -> Sequence[str]:
        """Return the names of the runtimes of a kind that a job of this namespace may use."""
        ...


# Reads a runtime from the cluster itself; None where there is none. Raises UserError where it cannot be read.
ReadRuntime = Callable[[ObjectKey], Awaitable[Runtime | None]]

# Hears of every answer: path, HTTP or verdict code, seconds. For metrics; must be quick.
AnswerListener = Callable[[str, int, float], None]

T = TypeVar("T")
P = ParamSpec("P")


class Bench:
    """Where the work on reviews is done: small ones at once, large ones in a thread.

    An object has room for 3 MB of whatever its author likes. What takes a second must not hold up the renewal
    of the lease, nor the answers to others. Two at a time, so that many together take no more memory.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(2)

    async def do(self, size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the work on a review of so many bytes gives."""
        if size <= LARGE_REVIEW_BYTES:
            return work(*args, **kwargs)
        async with self._places:
            return await asyncio.to_thread(work, *args, **kwargs)


Handler = Callable[[Review, int], Awaitable[Answer]]


class Webhooks:
    """The handlers of all paths. `build_app` gives the application to serve."""

    def __init__(
        self,
        lookup: Lookup,
        read_runtime: ReadRuntime,
        clock: Callable[[], datetime],
        listener: AnswerListener | None = None,
        live_read_seconds: float = LIVE_READ_SECONDS,
        frameworks: tuple[Framework, ...] = FRAMEWORKS,
    ) -> None:
        self._lookup = lookup
        self._read_runtime = read_runtime
        self._clock = clock
        self._listener = listener
        self._live_read_seconds = live_read_seconds
        self._frameworks = frameworks
        self._bench = Bench()

    def build_app(self) -> web.Application:
        """Return the application; serve it with TLS."""
        app = web.Application(client_max_size=MAX_REVIEW_BYTES)
        for webhook in MUTATING_WEBHOOKS:
            app.router.add_post(webhook.path, self._build_handler(webhook.path, webhook.kind, self._default))
        for webhook in VALIDATING_WEBHOOKS:
            handle = self._validate if webhook.kind == TRAIN_JOB else self._validate_runtime
            app.router.add_post(webhook.path, self._build_handler(webhook.path, webhook.kind, handle))
        return app

    def _build_handler(
        self, path: str, kind: str, answer: Handler
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            started = time.perf_counter()
            code = 500
            try:
                body = await _read_body(request)
                size = len(body)
                review = await self._bench.do(size, parse_review, body, kind)
                answered = Answer() if review.is_settled else await answer(review, size)
                code = answered.code
                encoded = await self._bench.do(size, encode_answer, review, answered)
                return web.Response(body=encoded, content_type="application/json")
            except BadReview as error:
                code = 400
                return _refuse(request, code, str(error))
            except web.HTTPException as refusal:
                code = refusal.status
                return _refuse(request, code, refusal.reason)
            finally:
                if self._listener is not None:
                    self._listener(path, code, time.perf_counter() - started)

        return handle

    async def _default(self, review: Review, size: int) -> Answer:
        now = self._clock()
        return await self._bench.do(size, lambda: default_reviewed(read_change(review), review, now))

    async def _validate_runtime(self, review: Review, size: int) -> Answer:
        return await self._bench.do(size, validate_reviewed_runtime, review, self._frameworks)

    async def _validate(self, review: Review, size: int) -> Answer:
        change = await self._bench.do(size, read_change, review)
        try:
            async with asyncio.timeout(self._live_read_seconds):
                facts = await self._find_facts(change, review)
        except (UserError, TimeoutError) as error:
            said = str(error) or f"no answer in {self._live_read_seconds:g} s"
            return Answer(code=503, message=f"spec.runtimeRef: cannot be looked up ({said}); try again")
        return await self._bench.do(size, validate_reviewed, change, review, facts)

    async def _find_facts(self, change: Change, review: Review) -> Facts:
        job, old = change.job, change.old
        key = build_runtime_key(job.spec.runtime_ref, review.namespace) if job and job.spec else None
        if job is None or key is None:
            return Facts()
        runtime = await self._lookup.find_runtime(key)
        if change.asks_runtime:  # else it is only named in warnings, and nothing is worth a request
            if old is not None:
                runtime = await self._find_begun_with(old, runtime) or runtime
            if runtime is None:
                runtime = await self._read_runtime(key)
        if runtime is None:
            kind = key.kind or CLUSTER_TRAINING_RUNTIME
            return Facts(known_runtimes=tuple(self._lookup.list_runtime_names(kind, review.namespace)))
        job_set = None
        if old is not None:
            job_set = await self._lookup.find_job_set(review.namespace, job.metadata.name)
        return Facts(runtime=runtime, job_set=job_set, frameworks=self._frameworks)

    async def _find_begun_with(self, job: TrainJob, runtime: Runtime | None) -> Runtime | None:
        """Return the runtime as the job began with it, None where it has not begun."""
        config_maps = {
            name: await self._lookup.find_snapshot(job, name) for name in list_snapshot_names(job, runtime)
        }
        return find_snapshot(job, runtime, config_maps.get).runtime


async def _read_body(request: web.Request) -> bytes:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(reason="expected Content-Type application/json")
    if (request.content_length or 0) > MAX_REVIEW_BYTES:
        raise web.HTTPRequestEntityTooLarge(MAX_REVIEW_BYTES, request.content_length or 0)
    try:
        async with asyncio.timeout(BODY_TIMEOUT_SECONDS):
            return await request.read()
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(reason="the body did not come in time") from error


def _refuse(request: web.Request, code: int, reason: str) -> web.Response:
    """Return a plain refusal, and close the connection: what else is in it is of no use."""
    log.warning("refused a request to a webhook", path=request.path, code=code, reason=reason)
    response = web.Response(status=code, text=f"{reason}\n")
    response.force_close()
    return response
