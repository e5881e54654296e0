"""What a token claims, and what a TokenReview says of it."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.control.report_token import Reporter, ReportToken, read_review, read_token

REPORTER = Reporter(namespace="ns", pod_name="demo-node-0-0", pod_uid="u-1")
BOUND = {"namespace": "ns", "pod": {"name": "demo-node-0-0", "uid": "u-1"}, "node": {"name": "n"}}
CLAIMS = {"aud": ["one", "two"], "exp": 1_800_000_000, "sub": "x", "kubernetes.io": BOUND}


def sign(claims: object) -> str:
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    return f"head.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.signature"


def test_a_token_says_whose_it_is_for_what_and_until_when() -> None:
    assert read_token(sign(CLAIMS)) == ReportToken(
        reporter=REPORTER,
        audiences=("one", "two"),
        expires_at=datetime(2027, 1, 15, 8, 0, tzinfo=UTC),
    )
    single = read_token(sign({**CLAIMS, "aud": "one"}))
    assert single is not None
    assert single.audiences == ("one",)


UNREADABLE = {
    "nothing": "",
    "no token": "nonsense",
    "two parts": "head.payload",
    "no base64": "head.{}.signature",
    "no JSON": sign(b"\xff"),
    "no object": sign([]),
    "no pod": sign({**CLAIMS, "kubernetes.io": {"namespace": "ns"}}),
    "no namespace": sign({**CLAIMS, "kubernetes.io": {"pod": BOUND["pod"]}}),
    "no audience": sign({key: CLAIMS[key] for key in ("exp", "kubernetes.io")}),
    "no end": sign({key: CLAIMS[key] for key in ("aud", "kubernetes.io")}),
    "an end beyond the calendar": sign({**CLAIMS, "exp": 10**18}),
    "too long": sign({**CLAIMS, "sub": "x" * 20_000}),
}


@pytest.mark.parametrize("token", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_token_of_a_pod_is_told_from_one(token: str) -> None:
    assert read_token(token) is None


@given(st.text())
def test_no_text_breaks_the_reading(text: str) -> None:
    read_token(text)
    read_token(f"head.{base64.urlsafe_b64encode(text.encode('utf-8', 'replace')).decode()}.signature")


EXTRA = {
    "authentication.kubernetes.io/pod-name": ["demo-node-0-0"],
    "authentication.kubernetes.io/pod-uid": ["u-1"],
    "authentication.kubernetes.io/node-name": ["n"],
}
GOOD: dict[str, Any] = {
    "authenticated": True,
    "audiences": ["report"],
    "user": {"username": "system:serviceaccount:ns:trainer", "extra": EXTRA},
}
REVIEWS: dict[str, tuple[dict[str, Any], Reporter | None]] = {
    "good": (GOOD, REPORTER),
    "not authenticated": ({**GOOD, "authenticated": False}, None),
    "an error": ({"error": "token has expired"}, None),
    "another audience": ({**GOOD, "audiences": ["api"]}, None),
    "a server that knows no audiences": ({key: GOOD[key] for key in ("authenticated", "user")}, None),
    "of no pod": ({**GOOD, "user": {"username": "system:serviceaccount:ns:trainer"}}, None),
    "of no service account": ({**GOOD, "user": {"username": "alice", "extra": EXTRA}}, None),
}


@pytest.mark.parametrize(("status", "expected"), REVIEWS.values(), ids=REVIEWS)
def test_a_review_names_the_pod_of_a_good_token(status: dict[str, Any], expected: Reporter | None) -> None:
    assert read_review(status, "report") == expected
