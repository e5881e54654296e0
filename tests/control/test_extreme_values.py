"""Pods with values that an API server takes and no sensible program writes are looked at all the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.builders import runtime, train_job
from control.world import NOW
from trainwright.api.constants import COMPLETION_INDEX, JOB_INDEX, REPLICATED_JOB_NAME
from trainwright.api.core import Pod
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json
from trainwright.control import Seen, decide
from trainwright.control.actions import PatchStatus
from trainwright.render import render_job_set

LAST = "9999-12-31T23:59:59Z"
FIRST = "0001-01-01T00:00:00Z"
ENDED = {"exitCode": 1, "startedAt": FIRST, "finishedAt": LAST}


def container(state: Json, **more: Any) -> Json:
    return {"containerStatuses": [{"name": "node", "state": state, **more}]}


EXTREMES: dict[str, tuple[Json, Json]] = {
    "a grace period of longer than there is time": (
        {"deletionTimestamp": LAST, "deletionGracePeriodSeconds": 2**62},
        {"phase": "Running", **container({"terminated": ENDED})},
    ),
    "a run from the first to the last moment": (
        {},
        {"phase": "Running", **container({"running": {"startedAt": LAST}}, lastState={"terminated": ENDED})},
    ),
    "a rank of a thousand digits": (
        {"annotations": {COMPLETION_INDEX: "9" * 5000}},
        {"phase": "Running"},
    ),
}


@pytest.mark.parametrize(("metadata", "status"), EXTREMES.values(), ids=EXTREMES)
def test_a_job_with_such_a_pod_gets_a_status(metadata: Json, status: Json) -> None:
    rt, job = runtime(), train_job(num_nodes=1)
    rendered = render_job_set(job, rt)
    rendered["metadata"]["uid"] = "uid-js"
    labels = {REPLICATED_JOB_NAME: "node", JOB_INDEX: "0"}
    body = {"metadata": {"name": "demo-node-0-0-xxxxx", "labels": labels, **metadata}, "status": status}
    pods = (msgspec.convert(body, Pod),)
    seen = Seen(train_job=job, snapshot=rt, job_set=msgspec.convert(rendered, JobSet), pods=pods)
    [patch, *_] = decide(seen, NOW)
    assert isinstance(patch, PatchStatus)
    assert msgspec.json.encode(patch)
