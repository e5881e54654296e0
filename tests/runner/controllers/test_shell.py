"""Jobs that are deleted, and made anew under their names, between two steps of whoever looks after them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from runner.lab import Lab, replicated_job
from trainwright.api.meta import ObjectKey
from trainwright.cluster.port import Cluster
from trainwright.cluster.reconcile import reconcile
from trainwright.control.actions import Patch
from trainwright.errors import Conflict
from trainwright.runner.controllers.actions import MarkDeleted, Remove, WriteStatus
from trainwright.runner.controllers.ending import End
from trainwright.runner.controllers.settle import settle, suspend_unstarted
from trainwright.runner.controllers.shell import Clock, index_uids, write


def clock() -> datetime:
    return datetime.now(UTC)


async def replace_job(lab: Lab) -> str:
    """Delete the TrainJob and make another of its name; return the uid of the first."""
    first = await lab.get()
    await lab.cluster.delete(lab.key(), first["metadata"]["uid"])
    await lab.cluster.create({**first, "metadata": {"name": "demo", "namespace": "default"}})
    return first["metadata"]["uid"]


async def test_pods_of_a_job_made_anew_are_left_to_its_own_supervisor(lab: Lab) -> None:
    """1. A supervisor looks after its TrainJob. 2. The TrainJob is deleted, and another of its name gets a
    JobSet. 3. The supervisor goes on: it makes no Jobs of that JobSet, which has a supervisor of its own.
    """
    uid = (await lab.submit(replicated_job("node", "exit 0")))["metadata"]["uid"]

    async def overtaken(cluster: Cluster, key: ObjectKey, clock: Clock) -> float | None:
        await replace_job(lab)
        return await reconcile(cluster, key, clock)

    await settle(lab.cluster, lab.key(), uid, overtaken, clock)
    assert await lab.exists("JobSet")
    assert await lab.list("Job") == []


async def test_a_job_made_anew_is_not_suspended_for_the_one_before_it(lab: Lab) -> None:
    await lab.submit(replicated_job("node", "exit 0"))
    uid = await replace_job(lab)
    await suspend_unstarted(lab.cluster, lab.key(), uid, End("SupervisorStopped", "asked to end"), clock)

    assert "suspend" not in (await lab.get())["spec"]
    assert await lab.list("Event") == []


async def test_a_job_that_is_gone_needs_no_suspension(lab: Lab) -> None:
    uid = (await lab.submit(replicated_job("node", "exit 0")))["metadata"]["uid"]
    await lab.cluster.delete(lab.key())
    await suspend_unstarted(lab.cluster, lab.key(), uid, End("SupervisorStopped", "asked to end"), clock)

    assert await lab.list("Event") == []


WRITES = {
    "a patch": Patch(key=Lab.key(), merge={"spec": {"suspend": True}}),
    "a deletion in the foreground": MarkDeleted(key=Lab.key()),
    "a deletion": Remove(key=Lab.key()),
    "a status": WriteStatus(key=Lab.key(), status={"restarts": 1}, before={}),
}


@pytest.mark.parametrize("action", WRITES.values(), ids=WRITES)
async def test_what_was_decided_about_an_object_is_not_done_to_a_later_one(
    lab: Lab, action: Patch | MarkDeleted | Remove | WriteStatus
) -> None:
    seen = await lab.submit(replicated_job("node", "exit 0"))
    await write(lab.cluster, action, clock(), {})
    if not await lab.exists():
        await lab.cluster.create({**seen, "metadata": {"name": "demo", "namespace": "default"}})
    else:
        await replace_job(lab)
    later = await lab.get()
    with pytest.raises(Conflict):
        await write(lab.cluster, action, clock(), index_uids([seen]))
    assert await lab.get() == later
