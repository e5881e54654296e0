"""Who may read the metrics: whoever the API server says may `get /metrics`.

The caller's bearer token is reviewed, then what it may do. An answer holds for a while, so that a scrape
costs no requests. Source: `metrics.auth.enabled`, spec 01, section 6.2.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import structlog
from aiohttp import web

from trainwright.api.meta import Json
from trainwright.cluster.port import Cluster
from trainwright.errors import UserError

log = structlog.get_logger(__name__)

REMEMBER_SECONDS: Final = 60.0
_REMEMBERED: Final = 1_000
_BEARER: Final = "Bearer "


class MetricsAccess:
    """Decides about requests; nothing but a hash of a token is kept."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._decided: OrderedDict[bytes, tuple[int, float]] = OrderedDict()

    async def authorize(self, request: web.Request) -> web.Response | None:
        """Return the refusal of a request, None for one that may be answered."""
        header = request.headers.get("Authorization", "")
        token = header.removeprefix(_BEARER) if header.startswith(_BEARER) else ""
        if not token:
            return web.Response(status=401, text="send a bearer token\n")
        digest = hashlib.sha256(token.encode()).digest()
        status, until = self._decided.get(digest, (0, 0.0))
        if until <= self._clock():
            try:
                status = await self._decide(token)
            except UserError as error:
                log.warning("access to metrics could not be checked", error=str(error))
                return web.Response(status=500, text="access could not be checked\n")
            self._decided[digest] = (status, self._clock() + REMEMBER_SECONDS)
            while len(self._decided) > _REMEMBERED:
                self._decided.popitem(last=False)
        return None if status == 200 else web.Response(status=status, text=_TEXTS[status])

    async def _decide(self, token: str) -> int:
        review = await self._cluster.create(
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "metadata": {},
                "spec": {"token": token},
            }
        )
        status: Json = review.get("status") or {}
        if not status.get("authenticated"):
            return 401
        user: Json = status.get("user") or {}
        access = await self._cluster.create(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "metadata": {},
                "spec": {
                    "user": user.get("username", ""),
                    "uid": user.get("uid", ""),
                    "groups": user.get("groups") or [],
                    "extra": user.get("extra") or {},
                    "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
                },
            }
        )
        return 200 if (access.get("status") or {}).get("allowed") else 403


_TEXTS: Final = {401: "the token is not accepted\n", 403: "the token may not get /metrics\n"}
