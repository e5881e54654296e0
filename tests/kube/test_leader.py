"""Leader election by a real Lease."""

from __future__ import annotations

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from trainwright.api.meta import ObjectKey
from trainwright.cluster.kube.leader import LeaderElection, LeaseLost, LeaseSettings
from trainwright.cluster.kube.requests import build_get, build_merge_patch

LEASE_SECONDS = 60.0


def candidate(transport, namespace, identity, **timing):
    settings = LeaseSettings(
        name="leader",
        namespace=namespace,
        **{"duration_seconds": LEASE_SECONDS, "renew_deadline_seconds": 30.0, "retry_seconds": 0.1, **timing},
    )
    return LeaderElection(transport, settings, identity)


async def test_of_two_candidates_one_leads_and_the_other_follows_at_once_when_it_stops(transport, namespace):
    """1. a leads. 2. b waits, though it asks all the time. 3. a stops and releases its lease of 60 s. 4. b
    leads long before those are over."""
    events: list[str] = []
    stop_a, b_leads, a_leads = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work_a() -> None:
        events.append("a leads")
        a_leads.set()
        await stop_a.wait()
        events.append("a stops")

    async def work_b() -> None:
        events.append("b leads")
        b_leads.set()

    with capture_logs() as logs:
        # Less than the lease lasts: nothing but its release lets b lead in time.
        async with asyncio.TaskGroup() as group, asyncio.timeout(LEASE_SECONDS):
            group.create_task(candidate(transport, namespace, "a").lead(work_a))
            await a_leads.wait()
            group.create_task(candidate(transport, namespace, "b").lead(work_b))
            while not any(line["event"] == "waiting for the lease" for line in logs):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert not b_leads.is_set()
            stop_a.set()
            await b_leads.wait()
    assert events == ["a leads", "a stops", "b leads"]


async def test_a_leader_whose_lease_was_taken_stops_acting(transport, namespace):
    """1. a leads. 2. The lease names another holder. 3. a's work is cancelled, LeaseLost raised."""
    leads, cancelled = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        leads.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with asyncio.timeout(LEASE_SECONDS):
        task = asyncio.create_task(candidate(transport, namespace, "a").lead(work))
        await leads.wait()
        key = ObjectKey("Lease", namespace, "leader")
        await transport.request(build_merge_patch(key, {"spec": {"holderIdentity": "thief"}}))
        with pytest.raises(LeaseLost):
            await task
    assert cancelled.is_set()


async def test_a_lease_that_nobody_renews_is_taken_over_after_its_duration(transport, namespace):
    leads = asyncio.Event()

    async def hold() -> None:
        leads.set()
        await asyncio.Event().wait()

    async def work() -> None:
        return

    async with asyncio.timeout(LEASE_SECONDS):
        dead = asyncio.create_task(
            candidate(transport, namespace, "dead", duration_seconds=1.0, retry_seconds=60.0).lead(hold)
        )
        await leads.wait()
        started = asyncio.get_running_loop().time()
        await candidate(transport, namespace, "next", duration_seconds=1.0).lead(work)
        assert asyncio.get_running_loop().time() - started >= 1.0
        dead.cancel()
        await asyncio.gather(dead, return_exceptions=True)


async def test_a_lease_whose_last_renewal_was_not_heard_of_is_given_back_all_the_same(transport, namespace):
    """1. a leads. 2. A renewal is stored, but a does not know of it. 3. a stops. 4. Nobody holds it."""
    leads, stop = asyncio.Event(), asyncio.Event()
    key = ObjectKey("Lease", namespace, "leader")

    async def work() -> None:
        leads.set()
        await stop.wait()

    async with asyncio.timeout(LEASE_SECONDS):
        task = asyncio.create_task(candidate(transport, namespace, "a", retry_seconds=50.0).lead(work))
        await leads.wait()
        renewed = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
        await transport.request(build_merge_patch(key, renewed))
        stop.set()
        await task
    lease = json.loads(await transport.request(build_get(key)))
    assert not lease["spec"].get("holderIdentity")
