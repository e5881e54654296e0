"""KAI: what its pod grouper reads."""

from __future__ import annotations

import pytest

from gang.builders import gang_spec, list_marks, policy, render_gang
from template.builders import container, replicated_job
from trainwright.api.meta import Json
from trainwright.api.runtime import RuntimeSpec
from trainwright.api.trainjob import Trainer

COUNT = "kai.scheduler/batch-min-member"
QUEUE = "kai.scheduler/queue"
KAI = policy(kai={})
IN_QUEUE = policy(kai={"queue": "research"})
MARK: Json = {"schedulerName": "kai-scheduler"}
QUEUED: Json = {"labels": {QUEUE: "research"}, "schedulerName": "kai-scheduler"}
SETUP = replicated_job("setup", container("main"), ancestor=None)

# The runtime, the number that must be there at a time, and the marks of pods.
CASES: dict[str, tuple[RuntimeSpec, str, dict[str, Json]]] = {
    "no queue": (gang_spec(KAI, replicated_job()), "3", {"node": MARK}),
    "a queue, for all pods": (
        gang_spec(IN_QUEUE, SETUP, replicated_job()),
        "4",
        {"setup": QUEUED, "node": QUEUED},
    ),
    "replicated jobs that wait for each other are placed one by one": (
        gang_spec(IN_QUEUE, SETUP, replicated_job(dependsOn=[{"name": "setup", "status": "Complete"}])),
        "1",
        {"setup": QUEUED, "node": QUEUED},
    ),
    "a number that the runtime names": (
        gang_spec(KAI, replicated_job(), metadata={"annotations": {COUNT: "2"}}),
        "2",
        {"node": MARK},
    ),
}


@pytest.mark.parametrize(("spec", "count", "marks"), CASES.values(), ids=CASES)
def test_no_object_of_ours_but_marks_for_the_pod_grouper(
    spec: RuntimeSpec, count: str, marks: dict[str, Json]
) -> None:
    others, job_set = render_gang(spec, Trainer(num_nodes=3))
    assert others == []
    assert job_set["metadata"]["annotations"][COUNT] == count
    assert list_marks(job_set) == marks


def test_the_queue_of_a_template_stays() -> None:
    job = replicated_job()
    job["template"]["spec"]["template"]["metadata"] = {"labels": {QUEUE: "own"}}
    _, job_set = render_gang(gang_spec(IN_QUEUE, job))
    assert list_marks(job_set)["node"]["labels"] == {QUEUE: "own"}
