"""Case B054: the longest name that Kubernetes objects of a TrainJob will have must fit."""

# ruff: noqa: E501 (messages stay on one line)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from template.builders import replicated_job, runtime_spec, train_job
from trainwright.admission.derived_names import find_name_error, list_derived_names
from trainwright.api.meta import Json
from trainwright.api.runtime import RuntimeSpec
from trainwright.api.trainjob import Trainer
from trainwright.template.layout import JobLayout, build_layout

CLAIMS = [{"templates": [{"metadata": {"name": "initializer"}, "spec": {}}]}]


def layout(spec: RuntimeSpec, num_nodes: int = 1) -> JobLayout:
    return build_layout(train_job(Trainer(num_nodes=num_nodes)), spec)


def longest(laid: JobLayout) -> int:
    """Return how long the name of a TrainJob may be."""
    assert laid.template.spec is not None
    return min(name.longest_job_name for name in list_derived_names(laid.template.spec, laid.pod_sets))


# Spec 02, section 3.8, and relatives.
LIMITS: dict[str, tuple[JobLayout, int]] = {
    "node, 10 pods": (layout(runtime_spec(), 10), 48),
    "node, 11 pods": (layout(runtime_spec(), 11), 47),
    "node, 100 pods": (layout(runtime_spec(), 100), 47),
    "node, 1000 pods": (layout(runtime_spec(), 1000), 46),
    "node, no pods": (layout(runtime_spec(), 0), 48),
    "launcher": (layout(runtime_spec(replicated_job("launcher"))), 44),
    "model initializer": (layout(runtime_spec(replicated_job("model-initializer", ancestor=None))), 35),
    "dataset initializer": (layout(runtime_spec(replicated_job("dataset-initializer", ancestor=None))), 33),
    "several, the longest counts": (
        layout(runtime_spec(replicated_job(), replicated_job("dataset-initializer", ancestor=None)), 1000),
        33,
    ),
    "volume claim": (layout(runtime_spec(volumeClaimPolicies=CLAIMS), 1), 48),
    "long volume claim": (
        layout(
            runtime_spec(volumeClaimPolicies=[{"templates": [{"metadata": {"name": "c" * 40}, "spec": {}}]}])
        ),
        22,
    ),
    "replicas": (layout(runtime_spec(replicated_job("w", ancestor=None, replicas=11))), 50),
    "Jobs without indexes": (
        layout(runtime_spec(replicated_job("w", ancestor=None, job={"completionMode": "NonIndexed"}))),
        59,
    ),
    "coordinator": (layout(runtime_spec(coordinator={"replicatedJob": "node"})), 26),
    "coordinator with its own subdomain": (
        layout(runtime_spec(coordinator={"replicatedJob": "node"}, network={"subdomain": "s" * 20})),
        33,
    ),
    "no name is short enough": (layout(runtime_spec(replicated_job("w" * 60, ancestor=None))), -8),
}


@pytest.mark.parametrize("case", LIMITS.values(), ids=LIMITS)
def test_the_longest_name_of_a_train_job_follows_from_its_runtime(case: tuple[JobLayout, int]) -> None:
    laid, expected = case

    assert longest(laid) == expected


@given(st.sampled_from(list(LIMITS)), st.integers(1, 63))
def test_a_name_is_refused_exactly_when_a_derived_name_is_longer_than_a_label(case: str, length: int) -> None:
    laid = LIMITS[case][0]
    spec: Json = laid.template.spec or {}
    name = "a" * length

    fits = all(len(derived.build(name)) <= 63 for derived in list_derived_names(spec, laid.pod_sets))

    assert (find_name_error(name, spec, laid.pod_sets) is None) == fits


def test_the_message_names_the_object_and_the_allowed_length() -> None:
    laid = layout(runtime_spec(replicated_job("dataset-initializer", ancestor=None)))
    error = find_name_error("a" * 40, laid.template.spec or {}, laid.pod_sets)

    assert str(error) == (
        f"metadata.name: the pods of dataset-initializer would be called {'a' * 40}-dataset-initializer-0-0-xxxxx, "
        "70 characters where 63 are allowed; with this runtime use a name of at most 33 characters"
    )


def test_a_runtime_that_leaves_no_room_is_told_so() -> None:
    laid = LIMITS["no name is short enough"][0]

    assert "no TrainJob name is short enough; the runtime needs shorter names" in str(
        find_name_error("a", laid.template.spec or {}, laid.pod_sets)
    )
