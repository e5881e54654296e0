"""What an API server answers when it refuses, as errors. Mapped by the `reason` of its Status, not by text.

ApiError                         any refusal; the Status stays attached
  NotFoundError                  also trainwright.errors.NotFound
    KindNotServedError           also .KindNotServed
  AlreadyExistsError             also .AlreadyExists
  ConflictError                  also .Conflict
  InvalidError                   also .InvalidObject
  ForbiddenError                 also .Forbidden
  UnauthorizedError              the credentials are not accepted (any more)
  ExpiredError                   410: that resource version is gone
  TooManyRequestsError           429: wait `retry_after` seconds
  ServerTroubleError             5xx and time-outs: worth trying again
"""

from __future__ import annotations

from typing import Any

import msgspec

from trainwright import errors
from trainwright.field_errors import FieldError, Rule


class StatusCause(msgspec.Struct, frozen=True):
    """One field that the server objects to."""

    field: str = ""
    message: str = ""
    reason: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """What a Status is about."""

    name: str = ""
    kind: str = ""
    group: str = ""
    causes: list[StatusCause] = msgspec.field(default_factory=list)
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """A meta/v1 Status."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class ApiError(errors.UserError):
    """The API server refused a request."""

    def __init__(self, status: Status, retry_after: float | None = None) -> None:
        self.status = status
        self.retry_after = retry_after
        self.message = status.message or f"the API server answered {status.code} {status.reason}"
        Exception.__init__(self, self.message)


class NotFoundError(ApiError, errors.NotFound):
    """No such object, or no such kind."""


class KindNotServedError(NotFoundError, errors.KindNotServed):
    """The API server has no such kind."""

    def __init__(self, status: Status, kind: str, api_version: str) -> None:
        errors.KindNotServed.__init__(self, kind, api_version)
        self.status = status
        self.retry_after = None
        self.message = str(self)


class AlreadyExistsError(ApiError, errors.AlreadyExists):
    """An object of that name is there."""


class ConflictError(ApiError, errors.Conflict):
    """A precondition failed, or another field manager owns a field."""


class InvalidError(ApiError, errors.InvalidObject):
    """The object breaks a rule; `errors` has them by field."""

    def __init__(self, status: Status, retry_after: float | None = None) -> None:
        super().__init__(status, retry_after)
        causes = status.details.causes if status.details else []
        self.source = ""
        self.errors = tuple(
            FieldError(path=cause.field, rule=_RULES.get(cause.reason, Rule.INVALID), detail=cause.message)
            for cause in causes
        )


class ForbiddenError(ApiError, errors.Forbidden):
    """Not allowed: by RBAC, a quota or an admission webhook."""


class UnauthorizedError(ApiError):
    """The credentials are not accepted."""


class ExpiredError(ApiError):
    """The resource version, or the continue token, is too old."""


class TooManyRequestsError(ApiError):
    """The server asks to slow down."""


class ServerTroubleError(ApiError):
    """The server, or etcd behind it, is in trouble."""


_BY_REASON: dict[str, type[ApiError]] = {
    "NotFound": NotFoundError,
    "AlreadyExists": AlreadyExistsError,
    "Conflict": ConflictError,
    "Invalid": InvalidError,
    "BadRequest": InvalidError,
    "Forbidden": ForbiddenError,
    "Unauthorized": UnauthorizedError,
    "Expired": ExpiredError,
    "Gone": ExpiredError,
    "TooManyRequests": TooManyRequestsError,
    "InternalError": ServerTroubleError,
    "ServerTimeout": ServerTroubleError,
    "Timeout": ServerTroubleError,
    "ServiceUnavailable": ServerTroubleError,
}
# Where a proxy or an old server gives no reason.
_BY_CODE: dict[int, type[ApiError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    422: InvalidError,
    429: TooManyRequestsError,
}
_RULES = {
    "FieldValueRequired": Rule.REQUIRED,
    "FieldValueDuplicate": Rule.DUPLICATE,
    "FieldValueNotSupported": Rule.NOT_SUPPORTED,
    "FieldValueForbidden": Rule.FORBIDDEN,
    "FieldValueTooLong": Rule.TOO_LONG,
    "FieldValueTooMany": Rule.TOO_MANY,
    "FieldValueTypeInvalid": Rule.TYPE,
}

_DECODER = msgspec.json.Decoder(Status)


def parse_error(code: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Return the error that an answer of 400 or above means; `retry_after` is the header of that name."""
    try:
        status = _DECODER.decode(body)
    except msgspec.MsgspecError:
        status = Status(message=body[:500].decode(errors="replace").strip())
    if status.code != code:
        status = msgspec.structs.replace(status, code=code)
    return build_error(status, _parse_retry_after(retry_after))


def build_error(status: Status, retry_after: float | None = None) -> ApiError:
    """Return the error of a Status, which may also come as an ERROR event of a watch."""
    if retry_after is None and status.details and status.details.retry_after_seconds:
        retry_after = float(status.details.retry_after_seconds)
    fallback = ServerTroubleError if status.code >= 500 else ApiError
    kind = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code, fallback)
    return kind(status, retry_after)


def is_retryable(error: Exception) -> bool:
    """Say whether the same request may go through later without anybody changing anything."""
    return isinstance(error, TooManyRequestsError | ServerTroubleError | errors.TargetUnreachable)


def _parse_retry_after(value: Any) -> float | None:
    try:
        return max(float(value), 0.0)
    except (TypeError, ValueError):
        return None
