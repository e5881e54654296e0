"""The status server: takes progress reports over HTTPS, on every replica.

`control.progress_protocol` says what is answered; here are the connection, the order of the checks and their
limits. Everything that is not a report to a TrainJob's path is answered with 404.
Source: spec 03 sections 1.4 and 1.5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog
from aiohttp import web

from trainwright.control import progress_protocol as protocol
from trainwright.control.progress_protocol import Answer
from trainwright.operator.progress_access import ProgressAccess, Verdict
from trainwright.operator.progress_reports import ProgressReports

log = structlog.get_logger(__name__)

READ_SECONDS: Final = 10.0

_REFUSALS: Final[dict[Verdict, Callable[[], Answer]]] = {
    Verdict.REFUSED: protocol.forbidden,
    Verdict.NO_JOB: protocol.job_not_found,
    Verdict.BUSY: protocol.too_many_requests,
    Verdict.FAILED: protocol.internal_error,
    Verdict.MAY_NOT_ASK: protocol.reviews_forbidden,
}


class StatusServer:
    """Answers reports. `count` is told the code of each answer."""

    def __init__(
        self,
        access: ProgressAccess,
        reports: ProgressReports,
        clock: Callable[[], datetime],
        count: Callable[[int], None],
    ) -> None:
        self._access = access
        self._reports = reports
        self._clock = clock
        self._count = count

    def build_app(self) -> web.Application:
        """Return the app, which answers every path itself."""
        app = web.Application(client_max_size=protocol.MAX_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._serve)
        return app

    async def _serve(self, request: web.Request) -> web.Response:
        try:
            answer = await self._answer(request)
        except TimeoutError:
            answer = protocol.timed_out()
        except Exception:
            log.exception("a report was not answered", path=request.path)
            answer = protocol.internal_error()
        self._count(answer.code)
        headers = {"Content-Type": "application/json"}
        if answer.retry_after_seconds is not None:
            headers["Retry-After"] = str(answer.retry_after_seconds)
        return web.Response(status=answer.code, body=answer.body, headers=headers)

    async def _answer(self, request: web.Request) -> Answer:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if refusal := protocol.check_length(headers):
            return refusal
        route = protocol.parse_route(request.method, request.raw_path)
        if route is None:
            return protocol.not_found()
        token = protocol.parse_token(headers.get("authorization", ""))
        verdict = await self._access.check(*route, token)
        if (refuse := _REFUSALS.get(verdict)) is not None:
            return refuse()
        if not self._reports.admit(*route):
            return protocol.too_many_requests()
        body = await _read_body(request)
        job = self._reports.find(*route)
        if job is None:
            return protocol.job_not_found()
        answer = protocol.read_report(body, job, self._clock())
        if answer.report is not None:
            self._reports.accept(*route, answer.report)
        return answer


async def _read_body(request: web.Request) -> bytes:
    """Return the body, or the beginning of one that is too long."""
    body = bytearray()
    async with asyncio.timeout(READ_SECONDS):
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > protocol.MAX_BODY_BYTES:
                break
    return bytes(body)
