"""The shapes themselves are tested with `trainwright.api`; here is what render relies on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template.builders import container, replicated_job, train_job
from trainwright.api.meta import Json
from trainwright.api.runtime import JobSetTemplate, RuntimeSpec
from trainwright.field_errors import FieldError, Rule
from trainwright.template.layout import build_layout
from trainwright.template.shape import find_resource_errors, find_shape_errors

JOB = "spec.template.spec.replicatedJobs[0]"
POD = f"{JOB}.template.spec.template.spec"


def spec(*replicated_jobs: Any, **fields: Any) -> Json:
    return {"replicatedJobs": list(replicated_jobs), **fields}


READABLE: dict[str, Json] = {
    "two replicated jobs": spec(replicated_job(), replicated_job("b", ancestor=None)),
    "null is the same as absent": spec(replicated_job(replicas=None, pod={"volumes": None}), network=None),
    "fields of a newer JobSet": spec(replicated_job(newer={"a": 1}, pod={"newer": []}), newer={"a": 1}),
}


@pytest.mark.parametrize("template", READABLE.values(), ids=READABLE)
def test_what_can_be_read(template: Json) -> None:
    assert find_shape_errors(template) == []


@pytest.mark.parametrize("template", [None, {}, {"suspend": True}, spec()])
def test_a_template_without_replicated_jobs_is_an_error(template: Json | None) -> None:
    assert find_shape_errors(template) == [
        FieldError(
            path="spec.template.spec.replicatedJobs",
            rule=Rule.REQUIRED,
            detail="a runtime needs at least one replicated job",
        )
    ]


UNREADABLE: dict[str, tuple[Json, list[str]]] = {
    "replicated jobs that are no list": (
        {"replicatedJobs": {"name": "n"}},
        ["spec.template.spec.replicatedJobs"],
    ),
    "a replicated job that is text": (spec("node"), [JOB]),
    "a replicated job without anything": (spec({"replicas": 1}), [f"{JOB}.name", f"{JOB}.template"]),
    "two of one name": (
        spec(replicated_job(), replicated_job()),
        ["spec.template.spec.replicatedJobs[1]"],
    ),
    "no pod": (spec({"name": "node", "template": {"spec": {}}}), [f"{JOB}.template.spec.template"]),
    "several things at once": (
        spec(
            replicated_job(
                "node", {"image": "x", "env": [{"value": "1"}], "args": "x"}, job={"parallelism": "2"}
            ),
            network={"subdomain": 1},
        ),
        [
            f"{JOB}.template.spec.parallelism",
            f"{POD}.containers[0].env[0].name",
            f"{POD}.containers[0].args",
            f"{POD}.containers[0].name",
            "spec.template.spec.network.subdomain",
        ],
    ),
    "an amount of a volume claim that is none": (
        spec(
            replicated_job(),
            volumeClaimPolicies=[
                {
                    "templates": [
                        {"metadata": {"name": "w"}, "spec": {"resources": {"requests": {"storage": "much"}}}}
                    ]
                }
            ],
        ),
        ["spec.template.spec.volumeClaimPolicies[0].templates[0].spec.resources.requests[storage]"],
    ),
    "an amount that is none": (
        spec(replicated_job("node", container(resources={"limits": {"cpu": "two"}}))),
        [f"{POD}.containers[0].resources.limits[cpu]"],
    ),
}


@pytest.mark.parametrize(("template", "paths"), UNREADABLE.values(), ids=UNREADABLE)
def test_everything_that_cannot_be_read_is_reported(template: Json, paths: list[str]) -> None:
    assert [error.path for error in find_shape_errors(template)] == paths


def test_amounts_of_a_trainjob_are_checked_in_their_place() -> None:
    errors = find_resource_errors(
        {"limits": {"cpu": "two"}, "requests": {"cpu": 2}}, "spec.trainer.resourcesPerNode"
    )
    assert [error.path for error in errors] == ["spec.trainer.resourcesPerNode.limits[cpu]"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["", "node", "x", "1Gi"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["replicatedJobs", "name", "template", "spec", "containers", "metadata", "labels", "replicas"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
fields = ["volumes", "initContainers", "containers", "nodeSelector"]


@given(
    st.lists(
        anything
        | st.builds(
            lambda pod, job: replicated_job(pod=pod, job=job),
            st.dictionaries(st.sampled_from(fields), anything, max_size=2),
            st.dictionaries(
                st.sampled_from(["parallelism", "completions", "completionMode"]), anything, max_size=2
            ),
        ),
        min_size=1,
        max_size=2,
    ),
    st.dictionaries(st.sampled_from(["network", "suspend"]), anything, max_size=1),
)
def test_what_has_the_right_shape_can_be_read(replicated_jobs: list[Any], others: Json) -> None:
    template = spec(*replicated_jobs, **others)
    if not find_shape_errors(template):
        layout = build_layout(train_job(), RuntimeSpec(template=JobSetTemplate(spec=template)))
        assert len(layout.pod_sets) == len(replicated_jobs)
        assert layout.build_first_endpoint(layout.pod_sets[0])
