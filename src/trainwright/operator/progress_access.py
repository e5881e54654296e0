"""Who may report the progress of a TrainJob: the pods of its JobSet, by the token that they have for it.

Cheap checks come first. A token that does not claim to be for this job, or is out of date, is refused without
a request; one whose pod is known costs one TokenReview in some minutes, whoever sends it how often. Whoever
names a pod that nobody knows shares a small budget of its own, so that no flood keeps jobs from reporting.
Only hashes of tokens are kept. An operator that may not have tokens reviewed, as with a Role alone, says so
once in its log, with what to do, and to everybody who reports; it asks again every minute.
Source: spec 03 section 1.6, whose gaps are closed here: a token of any other
pod of the namespace, and of an earlier TrainJob of the same name, is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from enum import Enum, auto
from typing import Final

import msgspec
import structlog

from trainwright.api.constants import JOBSET_NAME, JOBSET_UID
from trainwright.api.core import Pod
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json, ObjectKey, is_controlled_by
from trainwright.api.progress import build_audience
from trainwright.cluster.kube.flow import TokenBucket
from trainwright.cluster.port import Cluster
from trainwright.control.report_token import Reporter, read_review, read_token
from trainwright.errors import Forbidden, NotFound, UserError
from trainwright.operator.caches import Caches

log = structlog.get_logger(__name__)

# How long an answer of the API server holds. A pod that is gone is refused at once nevertheless.
TRUST_SECONDS: Final = 300.0
REFUSE_SECONDS: Final = 10.0
CATCH_UP_SECONDS: Final = 10.0
FORBIDDEN_SECONDS: Final = 60.0
_REMEMBERED: Final = 20_000
_STRANGERS_PER_SECOND: Final = 1.0
_STRANGERS_AT_ONCE: Final = 5


class Verdict(Enum):
    """What became of a request to report."""

    ALLOWED = auto()
    REFUSED = auto()
    NO_JOB = auto()  # the token is good, but there is no such TrainJob
    BUSY = auto()  # nobody could be asked yet
    FAILED = auto()  # the API server could not say
    MAY_NOT_ASK = auto()  # the operator lacks the right to ask it


class _Review(msgspec.Struct, frozen=True):
    """Whose token it is, None for one that is not accepted, and until when that holds.

    `found_until` is for a pod that was read because the caches lacked it: by then they must have it.
    """

    reporter: Reporter | None
    until: float
    found_until: float = 0.0


class ProgressAccess:
    """Decides about tokens. At most `qps` reviews a second, 0 for as many as there are."""

    def __init__(
        self, caches: Caches, cluster: Cluster, clock: Callable[[], datetime], qps: float, burst: int
    ) -> None:
        self._caches = caches
        self._cluster = cluster
        self._clock = clock
        self._time = asyncio.get_running_loop().time
        self._known = TokenBucket(qps, burst, self._time) if qps else None
        self._strangers = TokenBucket(_STRANGERS_PER_SECOND, _STRANGERS_AT_ONCE, self._time)
        self._reviews: OrderedDict[bytes, _Review] = OrderedDict()
        self._forbidden_until: float | None = None  # None while reviews are allowed, as far as is known

    async def check(self, namespace: str, name: str, token: str) -> Verdict:
        """Say whether who sends this token may report for the TrainJob."""
        audience = build_audience(namespace, name)
        claims = read_token(token)
        if (
            claims is None
            or claims.reporter.namespace != namespace
            or audience not in claims.audiences
            or claims.expires_at <= self._clock()
        ):
            return Verdict.REFUSED
        reporter = claims.reporter
        is_known = self._is_pod_of(namespace, name, reporter, self._find_pod(reporter))
        digest = hashlib.sha256(f"{audience}\n{token}".encode()).digest()
        review = self._reviews.get(digest)
        if review is None or review.until <= self._time():
            if self._forbidden_until is not None and self._forbidden_until > self._time():
                return Verdict.MAY_NOT_ASK
            bucket = self._known if is_known else self._strangers
            if bucket is not None and not bucket.try_take():
                return Verdict.BUSY
            try:
                review = await self._review(token, audience)
                if review is None:
                    return Verdict.MAY_NOT_ASK
                if review.reporter == reporter and not is_known:
                    found = await self._look_for_pod(namespace, name, reporter)
                    until = self._time() + CATCH_UP_SECONDS if found else 0.0
                    review = msgspec.structs.replace(review, found_until=until)
                self._remember(digest, review)
            except UserError as error:
                log.warning("a reporter could not be checked", namespace=namespace, error=str(error)[:1000])
                return Verdict.FAILED
        if review.reporter != reporter:
            return Verdict.REFUSED
        if self._caches.train_jobs.store.get(namespace, name) is None:
            return Verdict.NO_JOB
        return Verdict.ALLOWED if is_known or review.found_until > self._time() else Verdict.REFUSED

    async def _review(self, token: str, audience: str) -> _Review | None:
        """Ask the API server whose token it is; None where the operator may not ask."""
        try:
            review = await self._cluster.create(
                {
                    "apiVersion": "authentication.k8s.io/v1",
                    "kind": "TokenReview",
                    "metadata": {},
                    "spec": {"token": token, "audiences": [audience]},
                }
            )
        except Forbidden as error:
            self._hear_forbidden(error)
            return None
        self._forbidden_until = None
        status: Json = review.get("status") or {}
        reporter = read_review(status, audience)
        seconds = REFUSE_SECONDS if reporter is None else TRUST_SECONDS
        return _Review(reporter, self._time() + seconds)

    def _hear_forbidden(self, error: Forbidden) -> None:
        """Ask nobody for a while, and say once what is missing."""
        if self._forbidden_until is None:
            log.error(
                "no report of progress can be taken: the operator may not have tokens reviewed",
                remedy="let its account create tokenreviews.authentication.k8s.io by a ClusterRole, as "
                "`trainwright install` does, or turn the feature gate TrainJobStatus off",
                error=str(error)[:1000],
            )
        self._forbidden_until = self._time() + FORBIDDEN_SECONDS

    def _remember(self, digest: bytes, review: _Review) -> None:
        self._reviews.pop(digest, None)
        self._reviews[digest] = review
        while len(self._reviews) > _REMEMBERED:
            self._reviews.popitem(last=False)

    def _find_pod(self, reporter: Reporter) -> Pod | None:
        return self._caches.pods.store.get(reporter.namespace, reporter.pod_name)

    async def _look_for_pod(self, namespace: str, name: str, reporter: Reporter) -> bool:
        """Ask the API server for a pod that the caches do not show: the watch may be behind."""
        try:
            found = await self._cluster.get(ObjectKey("Pod", namespace, reporter.pod_name))
        except NotFound:
            return False
        return self._is_pod_of(namespace, name, reporter, parse_object(found, Pod))

    def _is_pod_of(self, namespace: str, name: str, reporter: Reporter, pod: Pod | None) -> bool:
        """Say whether the pod is the reporter, and one of the JobSet that this very TrainJob controls."""
        if pod is None or pod.metadata.uid != reporter.pod_uid:
            return False
        job = self._caches.train_jobs.store.get(namespace, name)
        job_set = self._caches.job_sets.store.get(namespace, name)
        if job is None or job_set is None or not is_controlled_by(job_set.metadata, job.metadata):
            return False
        labels = pod.metadata.labels or {}
        return labels.get(JOBSET_NAME) == name and labels.get(JOBSET_UID) == job_set.metadata.uid
