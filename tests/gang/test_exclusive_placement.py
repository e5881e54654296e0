"""Gangs and JobSet's exclusive placement, which wait for each other."""

from __future__ import annotations

import pytest

from gang.builders import gang_spec, policy
from template.builders import replicated_job, runtime
from trainwright.admission import validate_runtime
from trainwright.api.meta import Json
from trainwright.api.runtime import PodGroupPolicy

TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
EXCLUSIVE = {TOPOLOGY: "example.com/rack"}
LABELLED = {**EXCLUSIVE, "alpha.jobset.sigs.k8s.io/node-selector": "true"}


def warn(place: str, scheduler: str) -> list[str]:
    return [
        f"{place}.annotations[{TOPOLOGY}]: JobSet makes further pods of a Job only once the first is placed, "
        f"and {scheduler} places that only with all others, so a job of several nodes never starts; remove "
        "spec.podGroupPolicy, or label nodes for alpha.jobset.sigs.k8s.io/node-selector"
    ]


def of_the_job(annotations: Json) -> Json:
    made = replicated_job()
    made["template"]["metadata"]["annotations"] = annotations
    return made


CASES: dict[str, tuple[PodGroupPolicy | None, Json | None, Json, list[str]]] = {
    "no gang": (None, EXCLUSIVE, replicated_job(), []),
    "no exclusive placement": (policy(volcano={}), None, replicated_job(), []),
    "of the JobSet": (
        policy(coscheduling={}),
        EXCLUSIVE,
        replicated_job(),
        warn("spec.template.metadata", "coscheduling"),
    ),
    "of one replicated job": (
        policy(kai={}),
        None,
        of_the_job(EXCLUSIVE),
        warn("spec.template.spec.replicatedJobs[0].template.metadata", "kai"),
    ),
    "nodes are labelled beforehand": (policy(volcano={}), LABELLED, replicated_job(), []),
}


@pytest.mark.parametrize(("gang", "annotations", "job", "warnings"), CASES.values(), ids=CASES)
def test_what_never_starts_is_warned_of(
    gang: PodGroupPolicy | None, annotations: Json | None, job: Json, warnings: list[str]
) -> None:
    metadata = {"annotations": annotations} if annotations else None
    verdict = validate_runtime(runtime(gang_spec(gang, job, metadata=metadata)))
    assert verdict.errors == ()
    assert list(verdict.warnings) == warnings
