"""Volcano, after the case list of spec 02 sections 16.14 and 16.16."""

from __future__ import annotations

import pytest

from gang.builders import build_pod_group, gang_spec, list_marks, policy, render_gang
from template.builders import container, patch, replicated_job
from trainwright.api.meta import Json
from trainwright.api.runtime import ElasticPolicy, MLPolicy, RuntimeSpec, TorchPolicy
from trainwright.api.trainjob import Trainer

V = "scheduling.volcano.sh/v1beta1"
QUEUE = "scheduling.volcano.sh/queue-name"
MARK: Json = {"annotations": {"scheduling.k8s.io/group-name": "demo"}, "schedulerName": "volcano"}
PLAIN_GANG: Json = {"minMember": 2, "minResources": {}}
VOLCANO = policy(volcano={})
BEFORE = [{"name": "setup", "status": "Complete"}]

CASES: dict[str, tuple[RuntimeSpec, list[Json], dict[str, Json]]] = {
    "a plain gang": (gang_spec(VOLCANO, replicated_job()), [PLAIN_GANG], {"node": MARK}),
    "a queue": (
        gang_spec(VOLCANO, replicated_job(), metadata={"annotations": {QUEUE: "q1"}}),
        [{**PLAIN_GANG, "queue": "q1"}],
        {"node": MARK},
    ),
    "topology with its defaults": (
        gang_spec(policy(volcano={"networkTopology": {}}), replicated_job()),
        [{**PLAIN_GANG, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}],
        {"node": MARK},
    ),
    "topology": (
        gang_spec(
            policy(volcano={"networkTopology": {"mode": "soft", "highestTierAllowed": 2}}), replicated_job()
        ),
        [{**PLAIN_GANG, "networkTopology": {"mode": "soft", "highestTierAllowed": 2}}],
        {"node": MARK},
    ),
    "a range of nodes: with as many as training may begin with": (
        gang_spec(
            VOLCANO,
            replicated_job("node", container(resources={"limits": {"cpu": "2"}})),
            ml_policy=MLPolicy(
                num_nodes=4, torch=TorchPolicy(elastic=ElasticPolicy(min_nodes=1, max_nodes=4))
            ),
        ),
        [{"minMember": 1, "minResources": {"cpu": "2"}}],
        {"node": MARK},
    ),
    "the trainer's priority class, wherever it stands": (
        gang_spec(
            VOLCANO,
            replicated_job(pod={"priorityClassName": "high"}),
            replicated_job("side", container("main"), ancestor=None, pod={"priorityClassName": "low"}),
        ),
        [{"minMember": 3, "minResources": {}, "priorityClassName": "high"}],
        {"node": MARK, "side": MARK},
    ),
    "the last priority class, where the trainer has none": (
        gang_spec(
            VOLCANO,
            replicated_job("a", container("main"), ancestor=None, pod={"priorityClassName": "low"}),
            replicated_job("b", container("main"), ancestor=None, pod={"priorityClassName": "high"}),
            replicated_job(),
        ),
        [{"minMember": 4, "minResources": {}, "priorityClassName": "high"}],
        {"a": MARK, "b": MARK, "node": MARK},
    ),
    "what comes before is outside the gang, in the same queue": (
        gang_spec(
            VOLCANO,
            replicated_job("setup", container("main"), ancestor=None, pod={"priorityClassName": "low"}),
            replicated_job(dependsOn=BEFORE),
            metadata={"annotations": {QUEUE: "q1"}},
        ),
        [{**PLAIN_GANG, "queue": "q1"}],
        {"setup": {"annotations": {QUEUE: "q1"}, "schedulerName": "volcano"}, "node": MARK},
    ),
    "another instance of Volcano": (
        gang_spec(VOLCANO, replicated_job(pod={"schedulerName": "volcano-gpu"})),
        [PLAIN_GANG],
        {"node": {**MARK, "schedulerName": "volcano-gpu"}},
    ),
}


@pytest.mark.parametrize(("spec", "groups", "marks"), CASES.values(), ids=CASES)
def test_the_pod_group_and_the_marks_of_its_pods(
    spec: RuntimeSpec, groups: list[Json], marks: dict[str, Json]
) -> None:
    others, job_set = render_gang(spec, Trainer(num_nodes=2))
    assert others == [build_pod_group(V, group) for group in groups]
    assert list_marks(job_set) == marks


def test_a_patch_of_the_job_chooses_its_queue() -> None:
    spec = gang_spec(VOLCANO, replicated_job(), metadata={"annotations": {QUEUE: "q1"}})
    others, job_set = render_gang(spec, runtime_patches=[patch(metadata={"annotations": {QUEUE: "q2"}})])
    assert others[0]["spec"] == {"minMember": 1, "minResources": {}, "queue": "q2"}
    assert job_set["metadata"]["annotations"][QUEUE] == "q2"
