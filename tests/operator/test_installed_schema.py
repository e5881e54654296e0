"""Which fields a definition on the cluster lacks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from trainwright.api.meta import Json
from trainwright.manifests.installation import load_crds
from trainwright.manifests.names import CRD_NAMES
from trainwright.operator.installed_schema import SchemaOutdated, find_missing_fields

CRDS: dict[str, Json] = {crd["metadata"]["name"]: crd for crd in load_crds()}


def take_away(crd: Json, *path: str) -> Json:
    """Return the definition without a field."""
    changed: Json = copy.deepcopy(crd)
    properties: Any = changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for part in path[:-1]:
        properties = properties[part]["properties"]
    del properties[path[-1]]
    return changed


@pytest.mark.parametrize(("kind", "name"), CRD_NAMES.items())
def test_our_own_definitions_lack_nothing(kind: str, name: str) -> None:
    assert find_missing_fields(kind, CRDS[name]) == []


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("TrainJob", ("spec", "runtimePatches")),
        ("TrainJob", ("status", "cause")),
        ("TrainingRuntime", ("spec", "podGroupPolicy")),
        ("ClusterTrainingRuntime", ("spec", "ttlSecondsAfterFinished")),
    ],
)
def test_a_field_that_is_missing_is_named(kind: str, path: tuple[str, ...]) -> None:
    assert find_missing_fields(kind, take_away(CRDS[CRD_NAMES[kind]], *path)) == [".".join(path)]


@pytest.mark.parametrize("change", [{"name": "v2"}, {"served": False}, {"schema": None}])
def test_a_definition_of_another_version_lacks_everything(change: Json) -> None:
    crd = CRDS[CRD_NAMES["TrainingRuntime"]]
    version = {**crd["spec"]["versions"][0], **change}
    other = {**crd, "spec": {**crd["spec"], "versions": [version]}}
    assert find_missing_fields("TrainingRuntime", other) == [
        "spec.mlPolicy",
        "spec.podGroupPolicy",
        "spec.template",
        "spec.ttlSecondsAfterFinished",
        "spec.propagatedLabels",
    ]


def test_the_refusal_says_what_is_missing_and_what_to_do() -> None:
    assert str(SchemaOutdated("trainjobs.trainer.kubeflow.org", ["status.cause", "status.phase"])) == (
        "CustomResourceDefinition trainjobs.trainer.kubeflow.org on this cluster is older than this "
        "operator: it lacks status.cause, status.phase; apply the definitions of this version first "
        "(`trainwright install --apply --replace`; TrainJobs go on)"
    )
