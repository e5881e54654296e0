"""The protocol by which training code reports progress: requests in, answers and reports out.

Pure: whoever serves it (the local engine on loopback, the operator over TLS) reads the bytes, checks the
token its own way and stores what is accepted. The order of the checks is part of the protocol:

    1. check_length    a declared length beyond the limit: 413, before anything else
    2. parse_route     which TrainJob: 404 for any other path or method
    3. parse_token     the bearer token; the caller compares it and answers `forbidden()`: 403, never 401
    4. read_report     the body: 422, or 200 and a report to store

The JSON is read as the peer's decoder reads it: names in any case, unknown fields ignored, `null` is absent,
only the first value of the body counts, no number with a point or exponent where an integer belongs.
Beyond the peer: a report older than the stored one is answered as usual and dropped, and a finished TrainJob
takes no more reports (409). Source: spec 03, sections 1.4, 1.5, 1.7 and 1.12.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec

from trainwright.api.constants import API_VERSION
from trainwright.api.meta import truncate_to_seconds
from trainwright.api.trainjob import Metric, TrainerStatus

MAX_BODY_BYTES = 65_536

_MAX_METRICS = 256
_MAX_CHARACTERS = 64
_INT32 = range(-(2**31), 2**31)
_ROUTE = re.compile(rf"/apis/{re.escape(API_VERSION)}/namespaces/([^/]+)/trainjobs/([^/]+)/status")
_RFC_3339 = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:[.,](\d+))?(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a training reported: the status to store, and when, to the microsecond."""

    reported_at: datetime
    status: TrainerStatus


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP answer; `report` is what has to be stored, None for nothing.

    `retry_after_seconds` is for the header of that name, None where trying again would change nothing.
    """

    code: int
    body: bytes
    report: Report | None = None
    retry_after_seconds: int | None = None


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the TrainJob that a report is for; `last` is when the stored one was made."""

    name: str
    last: datetime | None = None
    is_finished: bool = False


def check_length(headers: Mapping[str, str]) -> Answer | None:
    """Refuse a declared length beyond the limit. `headers` has lower-case names."""
    declared = headers.get("content-length", "0").strip()
    if declared.isdecimal() and int(declared) > MAX_BODY_BYTES:
        return _failure(413, "RequestEntityTooLarge", "Payload too large")
    return None


def parse_route(method: str, path: str) -> tuple[str, str] | None:
    """Return namespace and name of the TrainJob, or None where there is nothing to be had (404)."""
    match = _ROUTE.fullmatch(path.partition("?")[0])
    return (match[1], match[2]) if match and method == "POST" else None


def parse_token(authorization: str) -> str:
    """Return the bearer token of the header, or nothing. Scheme in any case, any run of blanks."""
    fields = authorization.split()
    return fields[1] if len(fields) == 2 and fields[0].lower() == "bearer" else ""


def read_report(body: bytes, job: JobProgress, now: datetime) -> Answer:
    """Return the answer to a body from somebody who may report for this TrainJob.

    `now` bounds the time of a report when it is compared with the next: a clock that once ran ahead must not
    shut out all that follows.
    """
    try:
        reported_at, status = _parse_body(body)
    except _Unreadable:
        return _failure(422, "Invalid", "Invalid payload")
    if status is None:
        return Answer(code=200, body=b"{}")
    if errors := _validate(status):
        listed = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        return _failure(422, "Invalid", f'TrainJob.trainer.kubeflow.org "{job.name}" is invalid: {listed}')
    if job.is_finished:
        message = f'TrainJob.trainer.kubeflow.org "{job.name}" has finished and takes no more reports'
        return _failure(409, "Conflict", message)
    echo = msgspec.json.encode({"trainerStatus": status})
    if reported_at is None or (job.last is not None and reported_at < job.last):
        return Answer(code=200, body=echo)
    return Answer(code=200, body=echo, report=Report(reported_at=min(reported_at, now), status=status))


def bad_request(message: str) -> Answer:
    """What arrived is no HTTP request."""
    return _failure(400, "BadRequest", message)


def not_found() -> Answer:
    """There is nothing at this path, or not for this method."""
    return _failure(404, "NotFound", "Not found")


def forbidden() -> Answer:
    """The token is missing, wrong or for another TrainJob."""
    return _failure(403, "Forbidden", "Forbidden")


def too_many_requests(retry_after_seconds: int = 1) -> Answer:
    """Somebody reports, or asks to be let in, more often than can be served."""
    answer = _failure(429, "TooManyRequests", "Too many requests, try again later")
    return msgspec.structs.replace(answer, retry_after_seconds=retry_after_seconds)


def timed_out() -> Answer:
    """The body did not arrive in time."""
    return _failure(408, "Timeout", "The request did not arrive in time")


def job_not_found() -> Answer:
    """The TrainJob is gone."""
    return _failure(404, "NotFound", "Train job not found")


def internal_error() -> Answer:
    """Something of ours failed."""
    return _failure(500, "InternalError", "Internal error")


def reviews_forbidden(retry_after_seconds: int = 60) -> Answer:
    """Nobody's token can be checked, for want of a right that the server should have.

    No 403: that is about the sender, and clients then give up. They try again once the right may be there.
    """
    answer = _failure(
        503,
        "ServiceUnavailable",
        "The operator cannot check who reports: it may not create tokenreviews.authentication.k8s.io",
    )
    return msgspec.structs.replace(answer, retry_after_seconds=retry_after_seconds)


def _failure(code: int, reason: str, message: str) -> Answer:
    status = {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}
    return Answer(code=code, body=msgspec.json.encode(status))


class _Unreadable(Exception):
    """The body is not JSON of the schema."""


def _refuse_constant(name: str) -> NoReturn:
    raise _Unreadable(name)


class _Fraction(float):
    """A number written with a point or an exponent."""


_DECODER = json.JSONDecoder(parse_float=_Fraction, parse_constant=_refuse_constant)
_JSON_BLANKS = " \t\r\n"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def _parse_body(body: bytes) -> tuple[datetime | None, TrainerStatus | None]:
    if len(body) > MAX_BODY_BYTES:  # a body of undeclared length
        raise _Unreadable("too long")
    text = body.decode("utf-8", "replace").lstrip(_JSON_BLANKS)
    try:
        request, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise _Unreadable(str(error)) from error
    status = _field(_object(request), "trainerStatus")
    return (None, None) if status is None else _parse_status(_object(status))


def _parse_status(status: dict[str, Any]) -> tuple[datetime | None, TrainerStatus]:
    percent, remaining = (
        _integer(_field(status, name)) for name in ("progressPercentage", "estimatedRemainingSeconds")
    )
    metrics = _field(status, "metrics")
    if metrics is not None and not isinstance(metrics, list):
        raise _Unreadable("metrics")
    time_text = _field(status, "lastUpdatedTime")
    reported_at = None if time_text is None else _parse_time(_text(time_text))
    return reported_at, TrainerStatus(
        progress_percentage=percent,
        estimated_remaining_seconds=remaining,
        metrics=[_parse_metric(item) for item in metrics] if metrics else None,
        last_updated_time=truncate_to_seconds(reported_at) if reported_at else None,
    )


def _parse_metric(item: Any) -> Metric:
    fields = _object(item)
    name, value = (_field(fields, key) for key in ("name", "value"))
    return Metric(name="" if name is None else _text(name), value="" if value is None else _text(value))


def _field(fields: dict[str, Any], name: str) -> Any:
    """Return the value of the field, whatever the case of its name; the last one where there are several."""
    wanted = name.lower()
    return next((fields[key] for key in reversed(fields) if key.lower() == wanted), None)


def _object(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Unreadable("not an object")
    return value


def _integer(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value not in _INT32:
        raise _Unreadable("not a 32-bit integer")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Unreadable("not a string")
    return _LONE_SURROGATE.sub("\ufffd", value)  # "\ud800" is JSON, but no text that can be encoded


def _parse_time(text: str) -> datetime:
    match = _RFC_3339.fullmatch(text)
    if match is None:
        raise _Unreadable("not an RFC 3339 time")
    microseconds = ((match[2] or "") + "000000")[:6]
    try:
        moment = datetime.fromisoformat(f"{match[1]}.{microseconds}{match[3].replace('Z', '+00:00')}")
        return moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:  # 30 February; an offset that leaves the calendar
        raise _Unreadable(str(error)) from error


def _validate(status: TrainerStatus) -> Sequence[str]:
    """Return what the CRD's schema and rules have against the status, each with its path."""
    where = "status.trainerStatus"
    errors: list[str] = []
    percent, remaining = status.progress_percentage, status.estimated_remaining_seconds
    if percent is not None and not 0 <= percent <= 100:
        errors.append(f"{where}.progressPercentage: Invalid value: {percent}: must be from 0 to 100")
    if remaining is not None and remaining < 0:
        errors.append(f"{where}.estimatedRemainingSeconds: Invalid value: {remaining}: must not be negative")
    metrics = status.metrics or []
    if len(metrics) > _MAX_METRICS:
        errors.append(f"{where}.metrics: Too many: {len(metrics)}: must have at most {_MAX_METRICS} items")
    for index, metric in enumerate(metrics[:_MAX_METRICS]):
        for field, text in (("name", metric.name), ("value", metric.value)):
            if not 1 <= len(text) <= _MAX_CHARACTERS:
                errors.append(
                    f"{where}.metrics[{index}].{field}: Invalid value: {len(text)} characters: "
                    f"must have 1 to {_MAX_CHARACTERS}"
                )
    if status.last_updated_time is None:
        errors.append(f"{where}: Invalid value: lastUpdatedTime is required when trainerStatus is present")
    return errors
