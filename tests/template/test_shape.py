from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template.builders import container, replicated_job, runtime_spec, train_job
from trainwright.api.meta import Json
from trainwright.api.runtime import JobSetTemplate, RuntimeSpec
from trainwright.field_errors import FieldError, Rule
from trainwright.template.pod_sets import build_pod_sets
from trainwright.template.shape import find_shape_errors

JOB = "spec.template.spec.replicatedJobs[0]"
POD = f"{JOB}.template.spec.template.spec"


def spec(*replicated_jobs: Any, **fields: Any) -> Json:
    return {"replicatedJobs": list(replicated_jobs), **fields}


def wrong_type(path: str, expected: str, value: Any) -> FieldError:
    return FieldError(path=path, rule=Rule.TYPE, detail=f"expected {expected}", value=value)


def missing(path: str) -> FieldError:
    return FieldError(path=path, rule=Rule.REQUIRED, detail="is missing")


NONE_AT_ALL = FieldError(
    path="spec.template.spec.replicatedJobs",
    rule=Rule.REQUIRED,
    detail="a runtime needs at least one replicated job",
)
CASES: dict[str, tuple[Json | None, list[FieldError]]] = {
    "a good one": (runtime_spec(replicated_job(), replicated_job("b", ancestor=None)).template.spec, []),  # type: ignore[union-attr]
    "nothing": (None, [NONE_AT_ALL]),
    "no replicated jobs": ({"suspend": True}, [NONE_AT_ALL]),
    "replicated jobs that are no list": (
        {"replicatedJobs": {"name": "node"}},
        [wrong_type("spec.template.spec.replicatedJobs", "a list", {"name": "node"})],
    ),
    "a replicated job that is text": (spec("node"), [wrong_type(JOB, "a map", "node")]),
    "a replicated job without anything": (
        spec({"replicas": 1}),
        [missing(f"{JOB}.name"), missing(f"{JOB}.template")],
    ),
    "two of one name": (
        spec(replicated_job(), replicated_job()),
        [
            FieldError(
                path="spec.template.spec.replicatedJobs[1].name",
                rule=Rule.DUPLICATE,
                detail="is there twice",
                value="node",
            )
        ],
    ),
    "no pod": (spec({"name": "node", "template": {"spec": {}}}), [missing(f"{JOB}.template.spec.template")]),
    "no containers": (
        spec({"name": "n", "template": {"spec": {"template": {"spec": {"containers": []}}}}}),
        [missing(f"{POD}.containers")],
    ),
    "several things at once": (
        spec(
            replicated_job(
                "node", {"image": "x", "env": [{"value": "1"}], "args": "x"}, job={"parallelism": "2"}
            ),
            network={"subdomain": 1},
        ),
        [
            wrong_type(f"{JOB}.template.spec.parallelism", "a whole number", "2"),
            missing(f"{POD}.containers[0].name"),
            wrong_type(f"{POD}.containers[0].args", "a list", "x"),
            missing(f"{POD}.containers[0].env[0].name"),
            wrong_type("spec.template.spec.network.subdomain", "text", 1),
        ],
    ),
    "a boolean is no number": (
        spec(replicated_job(replicas=True)),
        [wrong_type(f"{JOB}.replicas", "a whole number", True)],
    ),
    "a label that is no text": (
        spec(
            {
                **replicated_job(ancestor=None),
                "template": {**replicated_job()["template"], "metadata": {"labels": {"a": 1}}},
            }
        ),
        [wrong_type(f"{JOB}.template.metadata.labels[a]", "text", 1)],
    ),
    "null is the same as absent": (
        spec(replicated_job(replicas=None, pod={"volumes": None}), network=None),
        [],
    ),
}


@pytest.mark.parametrize(("template", "errors"), CASES.values(), ids=CASES)
def test_shapes(template: Json | None, errors: list[FieldError]) -> None:
    assert find_shape_errors(template) == errors


def test_an_amount_that_is_none_is_explained() -> None:
    (error,) = find_shape_errors(
        spec(replicated_job("node", container(resources={"limits": {"cpu": "two"}})))
    )
    assert (error.path, error.rule, error.value) == (
        f"{POD}.containers[0].resources.limits[cpu]",
        Rule.INVALID,
        "two",
    )
    assert "500m" in error.detail


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["", "node", "x", "1Gi"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "replicatedJobs",
                    "name",
                    "template",
                    "spec",
                    "containers",
                    "metadata",
                    "labels",
                    "replicas",
                    "network",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(
    st.lists(
        anything
        | st.builds(lambda pod: replicated_job(pod=pod), st.dictionaries(st.just("volumes"), anything)),
        max_size=2,
    )
)
def test_what_has_the_right_shape_can_be_read(replicated_jobs: list[Any]) -> None:
    template = spec(*replicated_jobs)
    if not find_shape_errors(template):
        runtime = RuntimeSpec(template=JobSetTemplate(spec=template))
        assert len(build_pod_sets(runtime, train_job())) == len(replicated_jobs)
