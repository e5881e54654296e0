"""Refusals of an API server, mapped by their reason."""

import json

import pytest

from trainwright import errors
from trainwright.cluster.kube.errors import (
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ServerTroubleError,
    TooManyRequestsError,
    UnauthorizedError,
    is_retryable,
    parse_error,
)

REASONS = {
    "NotFound": (404, NotFoundError),
    "Conflict": (409, ConflictError),
    "Invalid": (422, InvalidError),
    "BadRequest": (400, InvalidError),
    "Forbidden": (403, ForbiddenError),
    "Unauthorized": (401, UnauthorizedError),
    "Expired": (410, ExpiredError),
    "TooManyRequests": (429, TooManyRequestsError),
    "InternalError": (500, ServerTroubleError),
    "ServiceUnavailable": (503, ServerTroubleError),
}


def status(code, reason, **more):
    return json.dumps(
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason, **more}
    ).encode()


@pytest.mark.parametrize(("reason", "expected"), REASONS.items(), ids=REASONS)
def test_a_reason_gives_its_error(reason, expected):
    code, kind = expected
    assert type(parse_error(code, status(code, reason, message="no"))) is kind


@pytest.mark.parametrize("code", [401, 403, 404, 409, 410, 422, 429, 500, 502])
def test_an_answer_without_a_status_is_mapped_by_its_code(code):
    error = parse_error(code, b"<html>bad gateway</html>")
    assert error.status.code == code
    assert "bad gateway" in str(error)


def test_errors_of_the_port_are_caught_by_their_own_names():
    with pytest.raises(errors.NotFound):
        raise parse_error(404, status(404, "NotFound", message='trainjobs "x" not found'))
    assert NotFoundError.exit_code == errors.NotFound.exit_code


def test_invalid_carries_the_fields():
    causes = [
        {"field": "spec.trainer.numNodes", "message": "must be at least 1", "reason": "FieldValueInvalid"},
        {"field": "spec.runtimeRef", "message": "Required value", "reason": "FieldValueRequired"},
    ]
    error = parse_error(422, status(422, "Invalid", message="invalid", details={"causes": causes}))
    assert [(e.path, str(e.rule)) for e in error.errors] == [
        ("spec.trainer.numNodes", "Invalid"),
        ("spec.runtimeRef", "Required"),
    ]


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [("3", {}, 3.0), (None, {"retryAfterSeconds": 7}, 7.0), ("soon", {}, None)],
)
def test_the_pause_comes_from_the_header_else_from_the_details(header, details, expected):
    error = parse_error(429, status(429, "TooManyRequests", details=details), header)
    assert error.retry_after == expected


def test_only_trouble_of_the_server_is_worth_repeating():
    assert is_retryable(parse_error(503, b""))
    assert is_retryable(parse_error(429, b""))
    assert not is_retryable(parse_error(422, b""))
    assert isinstance(parse_error(418, b"teapot"), ApiError)
