"""Whatever happens to a job and its JobSet: reconciling settles, then writes nothing, and an end is final."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.samples import train_job
from cluster.test_reconcile import JOB_SET, KEY, RUNTIME
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.local.store import LocalCluster
from trainwright.cluster.reconcile import reconcile
from trainwright.errors import NotFound

PASSES_TO_SETTLE = 8


class World:
    """A store, a clock, and the hands of a user and of a JobSet controller."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def clock(self) -> datetime:
        return self.now

    async def do(self, step: tuple[str, Json]) -> None:
        verb, what = step
        try:
            if verb == "job":
                await self.cluster.patch(KEY, {"spec": what})
            elif verb == "runtime":
                await self.cluster.patch(ObjectKey("ClusterTrainingRuntime", "", "plain"), {"spec": what})
            elif verb == "status":
                await self.cluster.patch_status(JOB_SET, {"status": what})
            elif verb == "delete":
                await self.cluster.delete(JOB_SET)
            elif verb == "wait":
                self.now += timedelta(seconds=what["seconds"])
            else:
                await reconcile(self.cluster, KEY, self.clock)
        except NotFound:
            pass  # no JobSet yet, or no job any more

    async def settle(self) -> None:
        for _ in range(PASSES_TO_SETTLE):
            before = await self.read_version()
            await reconcile(self.cluster, KEY, self.clock)
            if await self.read_version() == before:
                return
        raise AssertionError("reconciling goes on writing")

    async def read_version(self) -> str:
        return (await self.cluster.list("TrainJob")).resource_version

    async def is_job_gone(self) -> bool:
        return not (await self.cluster.list("TrainJob")).items

    async def read_end(self) -> list[Json]:
        jobs = (await self.cluster.list("TrainJob")).items
        status = jobs[0].get("status", {}) if jobs else {}
        return [c for c in status.get("conditions", []) if c["type"] in ("Complete", "Failed")]


def condition(type_: str) -> Json:
    return {
        "type": type_,
        "status": "True",
        "reason": type_,
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def counts(**numbers: int) -> Json:
    none = {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    return {"replicatedJobsStatus": [{"name": "node", **none, **numbers}]}


STEPS: list[tuple[str, Json]] = [
    ("job", {"suspend": True}),
    ("job", {"suspend": False}),
    ("job", {"trainer": {"numNodes": 3}}),
    ("runtime", {"mlPolicy": {"numNodes": 5}}),
    ("status", counts(active=1)),
    ("status", counts(ready=1, active=1)),
    ("status", counts(suspended=1)),
    ("status", {"restarts": 1}),
    ("status", {"conditions": [condition("Suspended")]}),
    ("status", {"conditions": [condition("Completed")]}),
    ("status", {"conditions": [condition("Failed")]}),
    ("status", {"conditions": []}),
    ("delete", {}),
    ("wait", {"seconds": 30}),
    ("wait", {"seconds": 400}),
    ("reconcile", {}),
]
histories = st.lists(st.sampled_from(STEPS), max_size=12)
specs = st.fixed_dictionaries(
    {},
    optional={
        "suspend": st.booleans(),
        "activeDeadlineSeconds": st.just(300),
        "ttlSecondsAfterFinished": st.sampled_from([0, 60]),
    },
)


@settings(max_examples=60)
@given(specs, histories)
def test_any_history_settles_and_an_end_is_final(spec: Json, history: list[tuple[str, Json]]) -> None:
    async def live(folder: str) -> None:
        with LocalCluster(Path(folder) / "store.db") as cluster:
            world = World(cluster)
            await cluster.create(RUNTIME)
            await cluster.create({**train_job("demo"), "spec": {"runtimeRef": {"name": "plain"}, **spec}})
            end: list[Json] = []
            for step in history:
                await world.do(step)
                now = await world.read_end()
                assert now == end or not end or await world.is_job_gone()
                end = now or end
            await world.settle()
            before = await world.read_version()
            await reconcile(cluster, KEY, world.clock)
            assert await world.read_version() == before

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(live(folder))
