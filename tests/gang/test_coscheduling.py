"""Coscheduling, after the case list of spec 02 sections 16.13 and 16.16."""

from __future__ import annotations

from typing import Any

import pytest

from gang.builders import build_pod_group, gang_spec, list_marks, policy, render_gang
from template.builders import container, replicated_job
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.runtime import RuntimeSpec
from trainwright.api.trainjob import Trainer

V = "scheduling.x-k8s.io/v1alpha1"
MARK = {"labels": {"scheduling.x-k8s.io/pod-group": "demo"}}
COSCHEDULING = policy(coscheduling={"scheduleTimeoutSeconds": 30})


def asking(cpu: str, memory: str, name: str = "node") -> Json:
    return container(name, resources={"requests": {"cpu": cpu, "memory": memory}})


def initializer(name: str, **fields: Any) -> Json:
    return replicated_job(name, asking("250m", "512Mi", name), ancestor=name, **fields)


CASES: dict[str, tuple[RuntimeSpec, Trainer, list[Json], dict[str, Json]]] = {
    "no policy": (gang_spec(None, replicated_job()), Trainer(), [], {"node": {}}),
    "a policy that names no scheduler": (gang_spec(policy(), replicated_job()), Trainer(), [], {"node": {}}),
    "one node without requests": (
        gang_spec(COSCHEDULING, replicated_job()),
        Trainer(),
        [build_pod_group(V, {"minMember": 1, "minResources": {}, "scheduleTimeoutSeconds": 30})],
        {"node": MARK},
    ),
    "60 seconds where nothing is said": (
        gang_spec(policy(coscheduling={}), replicated_job()),
        Trainer(num_nodes=2),
        [build_pod_group(V, {"minMember": 2, "minResources": {}, "scheduleTimeoutSeconds": 60})],
        {"node": MARK},
    ),
    "initializers that start with the nodes are counted": (
        gang_spec(
            COSCHEDULING, initializer("dataset-initializer"), replicated_job("node", asking("500m", "1Gi"))
        ),
        Trainer(num_nodes=2),
        [
            build_pod_group(
                V,
                {
                    "minMember": 3,
                    "minResources": {"cpu": "1250m", "memory": "2560Mi"},
                    "scheduleTimeoutSeconds": 30,
                },
            )
        ],
        {"dataset-initializer": MARK, "node": MARK},
    ),
    "initializers that come before are scheduled by themselves": (
        gang_spec(
            COSCHEDULING,
            initializer("dataset-initializer"),
            replicated_job(
                "node",
                asking("500m", "1Gi"),
                dependsOn=[{"name": "dataset-initializer", "status": "Complete"}],
            ),
        ),
        Trainer(num_nodes=2),
        [
            build_pod_group(
                V,
                {"minMember": 2, "minResources": {"cpu": "1", "memory": "2Gi"}, "scheduleTimeoutSeconds": 30},
            )
        ],
        {"dataset-initializer": {}, "node": MARK},
    ),
    "a launcher joins the nodes, and room for it is asked for": (
        gang_spec(
            COSCHEDULING,
            replicated_job("node", asking("500m", "1Gi")),
            replicated_job(
                "launcher",
                asking("300m", "1Gi"),
                ancestor=None,
                dependsOn=[{"name": "node", "status": "Ready"}],
            ),
        ),
        Trainer(num_nodes=4),
        [
            build_pod_group(
                V,
                {
                    "minMember": 4,
                    "minResources": {"cpu": "2300m", "memory": "5Gi"},
                    "scheduleTimeoutSeconds": 30,
                },
            )
        ],
        {"node": MARK, "launcher": MARK},
    ),
    "the job's own resources count": (
        gang_spec(COSCHEDULING, replicated_job("node", asking("1", "4Gi"))),
        Trainer(
            num_nodes=3,
            resources_per_node=ResourceRequirements(requests={"cpu": "2"}, limits={"example.com/gpu": 8}),
        ),
        [
            build_pod_group(
                V,
                {
                    "minMember": 3,
                    "minResources": {"cpu": "6", "example.com/gpu": "24", "memory": "12Gi"},
                    "scheduleTimeoutSeconds": 30,
                },
            )
        ],
        {"node": MARK},
    ),
    "no nodes, no gang": (gang_spec(COSCHEDULING, replicated_job()), Trainer(num_nodes=0), [], {"node": {}}),
}


@pytest.mark.parametrize(("spec", "trainer", "objects", "marks"), CASES.values(), ids=CASES)
def test_the_pod_group_and_the_label_of_its_pods(
    spec: RuntimeSpec, trainer: Trainer, objects: list[Json], marks: dict[str, Json]
) -> None:
    others, job_set = render_gang(spec, trainer)
    assert others == objects
    assert list_marks(job_set) == marks


def test_the_label_of_the_template_gives_way_and_the_scheduler_of_the_template_stays() -> None:
    job = replicated_job(pod={"schedulerName": "gangs"})
    job["template"]["spec"]["template"]["metadata"] = {
        "labels": {"scheduling.x-k8s.io/pod-group": "other", "team": "a"}
    }
    _, job_set = render_gang(gang_spec(COSCHEDULING, job))
    assert list_marks(job_set) == {
        "node": {"labels": {"scheduling.x-k8s.io/pod-group": "demo", "team": "a"}, "schedulerName": "gangs"}
    }
