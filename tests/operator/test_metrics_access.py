"""Who may read the metrics is asked of the API server, and remembered for a while."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from trainwright.api.meta import Json
from trainwright.errors import TargetUnreachable
from trainwright.operator.metrics_access import REMEMBER_SECONDS, MetricsAccess

USERS = {"reader": "may read", "writer": "may not"}


class Server:
    """Knows two users, one of whom may get /metrics."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_down = False

    async def create(self, obj: Json) -> Json:
        self.asked.append(obj["kind"])
        if self.is_down:
            raise TargetUnreachable("no answer")
        if obj["kind"] == "TokenReview":
            user = obj["spec"]["token"]
            known = user in USERS
            return {"status": {"authenticated": known, "user": {"username": user} if known else {}}}
        assert obj["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
        return {"status": {"allowed": obj["spec"]["user"] == "reader"}}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def build() -> tuple[MetricsAccess, Server, Clock]:
    server, clock = Server(), Clock()
    unused: Any = server  # only `create` is used
    return MetricsAccess(unused, clock), server, clock


async def ask(access: MetricsAccess, authorization: str | None) -> int:
    headers = {"Authorization": authorization} if authorization is not None else {}
    refusal = await access.authorize(make_mocked_request("GET", "/metrics", headers=headers))
    return 200 if refusal is None else refusal.status


CASES = {
    "no token": (None, 401),
    "another scheme": ("Basic reader", 401),
    "an empty token": ("Bearer ", 401),
    "an unknown user": ("Bearer nobody", 401),
    "one who may not": ("Bearer writer", 403),
    "one who may": ("Bearer reader", 200),
}


@pytest.mark.parametrize(("authorization", "status"), CASES.values(), ids=CASES)
async def test_a_request_is_answered(authorization: str | None, status: int) -> None:
    access, _, _ = build()
    assert await ask(access, authorization) == status


async def test_an_answer_is_remembered_for_a_while() -> None:
    access, server, clock = build()
    for _ in range(3):
        assert await ask(access, "Bearer reader") == 200
    assert server.asked == ["TokenReview", "SubjectAccessReview"]
    clock.now = REMEMBER_SECONDS
    assert await ask(access, "Bearer reader") == 200
    assert len(server.asked) == 4


async def test_who_cannot_be_checked_gets_nothing_and_is_asked_about_again() -> None:
    access, server, _ = build()
    server.is_down = True
    assert await ask(access, "Bearer reader") == 500
    server.is_down = False
    assert await ask(access, "Bearer reader") == 200
