"""Requests of a person at a cluster: refusals say what to do, and nothing is asked of a cluster without us.

Wraps a transport. What an API server answers is right but speaks of requests; here it is put into words about
jobs: who may not do what, that the operator is not installed, whose fields those are.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

from trainwright.api.constants import GROUP
from trainwright.cli.targets import FieldsOfOthers
from trainwright.cluster.kube.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnauthorizedError,
)
from trainwright.cluster.kube.requests import Request
from trainwright.cluster.kube.transport import Transport
from trainwright.errors import Forbidden, InvalidObject, TargetUnreachable
from trainwright.field_errors import FieldError, Rule

_DENIED = re.compile(r'^admission webhook "[^"]*" denied the request: ')
_MANAGER = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"')
_OUR_PATH = f"/apis/{GROUP}/"


class NotInstalled(TargetUnreachable):
    """The cluster does not know TrainJobs."""


class NotAuthenticated(TargetUnreachable):
    """The cluster does not know who asks."""


class ExplainingTransport:
    """Sends as the transport that it wraps does; what is refused comes as an error about jobs."""

    def __init__(self, transport: Transport, server: str) -> None:
        self._transport = transport
        self._server = server

    async def request(self, request: Request) -> bytes:
        """Return the body of the answer."""
        try:
            return await self._transport.request(request)
        except ApiError as error:
            raise self._explain(request, error) from error

    async def stream(self, request: Request, inactivity_seconds: float) -> AsyncGenerator[bytes, None]:
        """Yield the body in the pieces that arrive."""
        try:
            async with aclosing(self._transport.stream(request, inactivity_seconds)) as pieces:
                async for piece in pieces:
                    yield piece
        except ApiError as error:
            raise self._explain(request, error) from error

    def _explain(self, request: Request, error: ApiError) -> Exception:
        if isinstance(error, UnauthorizedError):
            return NotAuthenticated(f"{self._server} does not accept your credentials; log in again")
        if isinstance(error, NotFoundError) and _is_missing_kind(request, error):
            return NotInstalled(
                f"{self._server} does not know TrainJobs: the operator is not installed there; "
                "`trainwright install` prints what it needs"
            )
        if isinstance(error, ForbiddenError):
            return _explain_refusal(error)
        if isinstance(error, ConflictError) and (managers := _list_managers(error)):
            return FieldsOfOthers(error.message, managers)
        return error


def _is_missing_kind(request: Request, error: NotFoundError) -> bool:
    """Tell a kind that is not served from an object that is not there: the answer names no object."""
    details = error.status.details
    return request.path.startswith(_OUR_PATH) and not (details and details.name)


def _explain_refusal(error: ForbiddenError) -> Exception:
    """Tell a webhook's verdict about an object from rights that are missing, and both from a full quota."""
    message = error.message
    if denied := _DENIED.match(message):
        causes = error.status.details.causes if error.status.details else []
        errors = [FieldError(path=c.field, rule=Rule.FORBIDDEN, detail=c.message) for c in causes]
        whole = FieldError(path="", rule=Rule.FORBIDDEN, detail=message[denied.end() :])
        return InvalidObject(errors or [whole])
    if " cannot " in message:
        return Forbidden(f"{message}; ask whoever gives out rights there for that one")
    return Forbidden(message)


def _list_managers(error: ConflictError) -> frozenset[str]:
    causes = error.status.details.causes if error.status.details else []
    found = (_MANAGER.search(c.message) for c in causes if c.reason == "FieldManagerConflict")
    return frozenset(match[1] for match in found if match)
