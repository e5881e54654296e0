from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.progress import build_report_path
from trainwright.api.trainjob import Metric, TrainerStatus
from trainwright.control import progress_protocol as protocol
from trainwright.control.progress_protocol import Answer, JobProgress, Report

JOB = JobProgress(name="demo")
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
NOON_TEXT = "2026-03-01T12:00:00Z"


def read(body: object, job: JobProgress = JOB) -> Answer:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return protocol.read_report(text, job, NOW)


def status_of(**fields: object) -> dict[str, object]:
    return {"trainerStatus": {"lastUpdatedTime": NOON_TEXT, **fields}}


def failure(code: int, reason: str, message: str) -> dict[str, object]:
    return {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


def test_a_whole_report_is_accepted_and_echoed():
    request = status_of(
        progressPercentage=42,
        estimatedRemainingSeconds=120,
        metrics=[{"name": "loss", "value": "0.123"}, {"name": "accuracy", "value": "0.95"}],
    )
    answer = read(request)
    assert answer.code == 200
    assert json.loads(answer.body) == request
    assert answer.report == Report(
        reported_at=NOW,
        status=TrainerStatus(
            progress_percentage=42,
            estimated_remaining_seconds=120,
            metrics=[Metric(name="loss", value="0.123"), Metric(name="accuracy", value="0.95")],
            last_updated_time=NOW,
        ),
    )


@pytest.mark.parametrize(
    "body", [{}, None, {"trainerStatus": None}, {"other": 1}, {"TRAINERSTATUS": None}], ids=json.dumps
)
def test_a_request_without_a_status_is_fine_and_stores_nothing(body: object):
    assert read(body) == Answer(code=200, body=b"{}", report=None)


UNREADABLE = {
    "nothing": b"",
    "garbage": b"progress: 42",
    "a list": b"[]",
    "a string": b'"x"',
    "half an object": b'{"trainerStatus": {',
    "status is a list": b'{"trainerStatus": []}',
    "percent is 45.0": b'{"trainerStatus": {"progressPercentage": 45.0}}',
    "percent is 45.5": b'{"trainerStatus": {"progressPercentage": 45.5}}',
    "percent is 1e1": b'{"trainerStatus": {"progressPercentage": 1e1}}',
    "percent is text": b'{"trainerStatus": {"progressPercentage": "45"}}',
    "percent is true": b'{"trainerStatus": {"progressPercentage": true}}',
    "percent has 33 bits": b'{"trainerStatus": {"progressPercentage": 4294967296}}',
    "remaining is NaN": b'{"trainerStatus": {"estimatedRemainingSeconds": NaN}}',
    "a metric's value is a number": b'{"trainerStatus": {"metrics": [{"name": "loss", "value": 0.5}]}}',
    "a metric is a text": b'{"trainerStatus": {"metrics": ["loss"]}}',
    "metrics is an object": b'{"trainerStatus": {"metrics": {"loss": "1"}}}',
    "time is a number": b'{"trainerStatus": {"lastUpdatedTime": 1700000000}}',
    "time without zone": b'{"trainerStatus": {"lastUpdatedTime": "2026-03-01T12:00:00"}}',
    "time with a blank": b'{"trainerStatus": {"lastUpdatedTime": "2026-03-01 12:00:00Z"}}',
    "30 February": b'{"trainerStatus": {"lastUpdatedTime": "2026-02-30T12:00:00Z"}}',
    "nested beyond measure": b'{"x": ' + b"[" * 60_000,
    "too long": b'{"x": "' + b"x" * 70_000 + b'"}',
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
def test_a_body_that_is_not_json_of_the_schema_is_an_invalid_payload(body: bytes):
    answer = read(body)
    assert (answer.code, answer.report) == (422, None)
    assert json.loads(answer.body) == failure(422, "Invalid", "Invalid payload")


def message(text: str) -> str:
    return f'TrainJob.trainer.kubeflow.org "demo" is invalid: {text}'


INVALID = {
    "150 percent": (
        status_of(progressPercentage=150),
        "status.trainerStatus.progressPercentage: Invalid value: 150: must be from 0 to 100",
    ),
    "a negative time": (
        status_of(estimatedRemainingSeconds=-1),
        "status.trainerStatus.estimatedRemainingSeconds: Invalid value: -1: must not be negative",
    ),
    "an empty status": (
        {"trainerStatus": {}},
        "status.trainerStatus: Invalid value: lastUpdatedTime is required when trainerStatus is present",
    ),
    "257 metrics": (
        status_of(metrics=[{"name": "x", "value": "1"}] * 257),
        "status.trainerStatus.metrics: Too many: 257: must have at most 256 items",
    ),
    "a metric without a name and one that is too long": (
        status_of(metrics=[{"value": "1"}, {"name": "x", "value": "9" * 65}]),
        "[status.trainerStatus.metrics[0].name: Invalid value: 0 characters: must have 1 to 64, "
        "status.trainerStatus.metrics[1].value: Invalid value: 65 characters: must have 1 to 64]",
    ),
}


@pytest.mark.parametrize(("body", "text"), INVALID.values(), ids=INVALID)
def test_a_status_that_breaks_rules_is_refused_with_all_of_them_and_the_job(body: object, text: str):
    answer = read(body)
    assert answer.report is None
    assert json.loads(answer.body) == failure(422, "Invalid", message(text))


def test_limits_themselves_are_allowed():
    metrics = [{"name": "ü" * 64, "value": "v" * 64}] + [{"name": "n" * 64, "value": "v" * 64}] * 255
    answer = read(status_of(progressPercentage=100, estimatedRemainingSeconds=0, metrics=metrics))
    assert answer.report is not None
    assert len(answer.report.status.metrics or ()) == 256


def test_names_are_read_in_any_case_unknown_ones_ignored_and_only_the_first_value_counts():
    body = (
        b'{"TRAINERstatus": {"PROGRESSPERCENTAGE": 7, "color": "red", '
        b'"lastupdatedtime": "2026-03-01T13:00:00+01:00", '
        b'"Metrics": [{"Name": "loss", "VALUE": "1", "unit": "nat"}]}, "kind": "x"} {"trainerStatus": 5}'
    )
    answer = read(body)
    assert json.loads(answer.body) == status_of(
        progressPercentage=7, metrics=[{"name": "loss", "value": "1"}]
    )


def test_fractions_of_seconds_order_reports_but_are_not_stored():
    answer = read({"trainerStatus": {"lastUpdatedTime": "2026-03-01T11:59:59.1234567Z"}})
    assert answer.report is not None
    assert answer.report.reported_at == datetime(2026, 3, 1, 11, 59, 59, 123456, tzinfo=UTC)
    assert answer.report.status.last_updated_time == datetime(2026, 3, 1, 11, 59, 59, tzinfo=UTC)


def test_a_report_older_than_the_stored_one_is_answered_and_dropped():
    job = JobProgress(name="demo", last=datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC))
    answer = read(status_of(progressPercentage=10), job)
    assert (answer.code, answer.report) == (200, None)
    assert json.loads(answer.body) == status_of(progressPercentage=10)


def test_a_report_from_the_future_does_not_shut_out_the_next():
    ahead = read({"trainerStatus": {"lastUpdatedTime": "2099-01-01T00:00:00Z"}})
    assert ahead.report is not None
    assert ahead.report.reported_at == NOW
    assert read(status_of(), JobProgress(name="demo", last=ahead.report.reported_at)).report is not None


def test_a_finished_job_takes_no_more_reports():
    answer = read(status_of(), JobProgress(name="demo", is_finished=True))
    expected = 'TrainJob.trainer.kubeflow.org "demo" has finished and takes no more reports'
    assert json.loads(answer.body) == failure(409, "Conflict", expected)


def test_text_that_cannot_be_encoded_is_replaced():
    body = b'{"trainerStatus": {"lastUpdatedTime": "%s", "metrics": [{"name": "a\\ud800", "value": "\xff"}]}}'
    answer = read(body.replace(b"%s", NOON_TEXT.encode()))
    assert answer.report is not None
    assert answer.report.status.metrics == [Metric(name="a\ufffd", value="\ufffd")]


BEARER = {
    "Bearer t": "t",
    "bearer t": "t",
    "BEARER t": "t",
    "Bearer \tt": "t",
    "  Bearer t  ": "t",
    "": "",
    "   ": "",
    "Bearer": "",
    "t": "",
    "Basic x": "",
    "Bearerx t": "",
    "Bearer t u": "",
}


@pytest.mark.parametrize(("header", "token"), BEARER.items(), ids=repr)
def test_the_token_is_the_second_of_exactly_two_fields(header: str, token: str):
    assert protocol.parse_token(header) == token


PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/team/trainjobs/demo/status"
ROUTES = {
    ("POST", PATH): ("team", "demo"),
    ("POST", PATH + "?dryRun=All"): ("team", "demo"),
    ("GET", PATH): None,
    ("PUT", PATH): None,
    ("POST", PATH + "/"): None,
    ("POST", "/"): None,
    ("POST", PATH.replace("v1alpha1", "v1")): None,
    ("POST", PATH.replace(".kubeflow", "xkubeflow")): None,
    ("POST", PATH.replace("demo", "a/b")): None,
}


@pytest.mark.parametrize(("request_line", "job"), ROUTES.items(), ids=str)
def test_only_post_on_the_status_path_leads_to_a_job(
    request_line: tuple[str, str], job: tuple[str, str] | None
):
    assert protocol.parse_route(*request_line) == job


def test_the_path_is_its_own_route():
    assert protocol.parse_route("POST", build_report_path("team", "demo")) == ("team", "demo")


@pytest.mark.parametrize(("length", "refused"), [("65536", False), ("65537", True), ("x", False)])
def test_a_declared_length_beyond_the_limit_is_refused(length: str, refused: bool):
    answer = protocol.check_length({"content-length": length})
    if refused:
        assert answer is not None
        assert json.loads(answer.body) == failure(413, "RequestEntityTooLarge", "Payload too large")
    else:
        assert answer is None


FIXED = {
    "not_found": (protocol.not_found(), failure(404, "NotFound", "Not found")),
    "job_not_found": (protocol.job_not_found(), failure(404, "NotFound", "Train job not found")),
    "forbidden": (protocol.forbidden(), failure(403, "Forbidden", "Forbidden")),
    "internal_error": (protocol.internal_error(), failure(500, "InternalError", "Internal error")),
}


@pytest.mark.parametrize(("answer", "body"), FIXED.values(), ids=FIXED)
def test_refusals_are_status_objects(answer: Answer, body: dict[str, object]):
    assert answer.code == body["code"]
    assert json.loads(answer.body) == body


@given(st.binary(max_size=300))
def test_no_body_whatever_makes_it_fail(body: bytes):
    assert read(body).code in {200, 422}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["progressPercentage", "METRICS", "lastUpdatedTime", "estimatedRemainingSeconds"])


@given(st.dictionaries(NAMES, JSON))
def test_what_is_accepted_is_within_the_limits(status: dict[str, object]):
    answer = read({"trainerStatus": {"lastUpdatedTime": NOON_TEXT, **status}})
    if answer.report is not None:
        stored = answer.report.status
        assert stored.progress_percentage is None or 0 <= stored.progress_percentage <= 100
        assert stored.estimated_remaining_seconds is None or stored.estimated_remaining_seconds >= 0
        assert read(answer.body).report == answer.report
