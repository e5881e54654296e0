"""Which tokens may report, and what asking about them costs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from reports import NOW, Api, build_caches, build_pod, build_token, clock, put_job
from trainwright.api.constants import FIELD_MANAGER
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.errors import ForbiddenError, Status
from trainwright.errors import TargetUnreachable
from trainwright.operator.progress_access import (
    CATCH_UP_SECONDS,
    FORBIDDEN_SECONDS,
    REFUSE_SECONDS,
    TRUST_SECONDS,
    ProgressAccess,
    Verdict,
)
from virtual_time import on_virtual_time

STRANGER = {"name": "stranger", "uid": "pod-2"}


class World:
    def __init__(self, qps: float = 0.0, burst: int = 0) -> None:
        self.api = Api()
        self.caches = build_caches(self.api)
        cluster = KubeCluster(self.api, FIELD_MANAGER)
        self.access = ProgressAccess(self.caches, cluster, clock, qps, burst)

    async def check(self, token: str, name: str = "demo") -> Verdict:
        return await self.access.check("ns", name, token)


@on_virtual_time
async def test_a_pod_of_the_job_may_report_and_is_asked_about_once_in_a_while() -> None:
    world = World()
    token = build_token()
    for _ in range(100):
        assert await world.check(token) is Verdict.ALLOWED
    assert world.api.plurals == ["tokenreviews"]
    await asyncio.sleep(TRUST_SECONDS + 1)
    assert await world.check(token) is Verdict.ALLOWED
    assert world.api.plurals == ["tokenreviews", "tokenreviews"]


CHEAP: dict[str, str] = {
    "none": "",
    "nonsense": "nonsense",
    "out of date": build_token(exp=int(NOW.timestamp())),
    "of another namespace": build_token(namespace="elsewhere"),
    "for something else": build_token(aud=["https://kubernetes.default.svc"]),
}


@pytest.mark.parametrize("token", CHEAP.values(), ids=CHEAP)
async def test_what_does_not_claim_to_be_right_costs_no_request(token: str) -> None:
    world = World()
    assert await world.check(token) is Verdict.REFUSED
    assert world.api.sent == []


@on_virtual_time
async def test_a_forged_token_is_refused_and_asked_about_again_later() -> None:
    world = World()
    token = build_token()
    world.api.forged.add(token)
    assert [await world.check(token) for _ in range(3)] == [Verdict.REFUSED] * 3
    assert len(world.api.sent) == 1
    world.api.forged.clear()
    await asyncio.sleep(REFUSE_SECONDS + 1)
    assert await world.check(token) is Verdict.ALLOWED


async def test_a_review_of_another_pod_than_the_token_names_is_not_believed() -> None:
    class Liar(Api):
        def _review(self, request: Any) -> dict[str, Any]:
            review = super()._review(request)
            review["user"]["extra"]["authentication.kubernetes.io/pod-uid"] = ["pod-9"]
            return review

    world = World()
    liar = Liar()
    access = ProgressAccess(world.caches, KubeCluster(liar, FIELD_MANAGER), clock, 0.0, 0)
    assert await access.check("ns", "demo", build_token()) is Verdict.REFUSED


@on_virtual_time
async def test_a_pod_that_the_caches_do_not_show_yet_is_looked_for_once() -> None:
    world = World()
    world.api.pods["late"] = build_pod("late", "pod-3")
    token = build_token({"name": "late", "uid": "pod-3"})
    for _ in range(3):
        assert await world.check(token) is Verdict.ALLOWED
    assert [request.method for request in world.api.sent] == ["POST", "GET"]
    await asyncio.sleep(CATCH_UP_SECONDS + 1)
    assert await world.check(token) is Verdict.REFUSED


STRANGERS = {
    "gone": {},
    "of another life": {"stranger": build_pod("stranger", "pod-9")},
    "of another JobSet": {"stranger": build_pod("stranger", "pod-2", "set-9")},
}


@pytest.mark.parametrize("pods", STRANGERS.values(), ids=STRANGERS)
async def test_a_good_token_of_a_pod_that_is_not_the_jobs_is_refused(pods: dict[str, Any]) -> None:
    world = World()
    world.api.pods = pods
    assert await world.check(build_token(STRANGER)) is Verdict.REFUSED


async def test_a_token_of_an_earlier_job_of_the_name_is_refused() -> None:
    """1. A job ends and is deleted. 2. Another of its name is made. 3. A pod of the first still reports."""
    world = World()
    token = build_token()
    assert await world.check(token) is Verdict.ALLOWED
    put_job(world.caches, uid="job-2")
    assert await world.check(token) is Verdict.REFUSED


async def test_a_job_that_is_gone_is_told_to_those_alone_who_might_have_had_it() -> None:
    world = World()
    world.caches.train_jobs.store.remove(("ns", "demo"))
    assert await world.check(build_token()) is Verdict.NO_JOB
    forged = build_token(jti="2")
    world.api.forged.add(forged)
    assert await world.check(forged) is Verdict.REFUSED


@on_virtual_time
async def test_a_flood_of_strangers_keeps_no_pod_from_reporting() -> None:
    world = World(qps=5.0, burst=10)
    verdicts = [await world.check(build_token(STRANGER, jti=str(number))) for number in range(100)]
    assert verdicts.count(Verdict.BUSY) == 95
    assert await world.check(build_token()) is Verdict.ALLOWED
    assert world.api.plurals.count("tokenreviews") == 6


@on_virtual_time
async def test_reviews_of_known_pods_have_a_limit_too() -> None:
    world = World(qps=5.0, burst=10)
    verdicts = [await world.check(build_token(jti=str(number))) for number in range(12)]
    assert verdicts == [Verdict.ALLOWED] * 10 + [Verdict.BUSY] * 2
    await asyncio.sleep(0.5)
    assert await world.check(build_token(jti="12")) is Verdict.ALLOWED


async def test_a_server_that_does_not_answer_is_no_refusal() -> None:
    world = World()
    world.api.errors = [TargetUnreachable("no answer")]
    assert await world.check(build_token()) is Verdict.FAILED
    assert await world.check(build_token()) is Verdict.ALLOWED


FORBIDDEN = ForbiddenError(
    Status(code=403, reason="Forbidden", message='tokenreviews is forbidden: User "operator" cannot create')
)


@on_virtual_time
async def test_an_operator_that_may_not_review_tokens_says_so_once_and_asks_now_and_then() -> None:
    world = World()
    tokens = [build_token(jti=str(number)) for number in range(10)]
    with capture_logs() as logs:
        for _ in range(3):
            world.api.errors = [FORBIDDEN]
            assert {await world.check(token) for token in tokens} == {Verdict.MAY_NOT_ASK}
            await asyncio.sleep(FORBIDDEN_SECONDS)
        assert world.api.plurals == ["tokenreviews"] * 3
        [told] = logs
        assert told["log_level"] == "error"
        assert "create tokenreviews.authentication.k8s.io by a ClusterRole" in told["remedy"]
        assert 'User "operator" cannot create' in told["error"]
        # Once it may, it does; and if it may not any more, that is told anew.
        world.api.errors = []
        assert await world.check(tokens[0]) is Verdict.ALLOWED
        world.api.errors = [FORBIDDEN]
        assert await world.check(tokens[1]) is Verdict.MAY_NOT_ASK
        assert len(logs) == 2
        assert await world.check(tokens[0]) is Verdict.ALLOWED


async def test_the_review_names_the_audience_and_nothing_but_hashes_is_kept() -> None:
    world = World()
    token = build_token()
    await world.check(token)
    [review] = world.api.sent
    audience = "trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/demo/status"
    assert json.loads(review.body or b"")["spec"] == {"token": token, "audiences": [audience]}
    assert token not in repr(vars(world.access))
