"""Our PodGroups against those that the peer, Kubeflow Trainer v2.3.0, made of the same objects.

`tests/data/oracle/<case>/podgroup.json` holds them by TrainJob. What becomes of the pods is compared in
`tests/render/test_oracle.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from trainwright.api.encoding import parse_object
from trainwright.api.runtime import TrainingRuntime
from trainwright.api.trainjob import TrainJob
from trainwright.render import render

ORACLE = Path(__file__).resolve().parent.parent / "data" / "oracle"
CASES = sorted(path.parent.name for path in ORACLE.glob("*/podgroup.json"))


@pytest.mark.parametrize("case", CASES)
def test_we_make_the_pod_groups_that_the_peer_makes(case: str) -> None:
    documents = list(yaml.safe_load_all((ORACLE / case / "input.yaml").read_text()))
    runtimes = {
        document["metadata"]["name"]: parse_object(document, TrainingRuntime)
        for document in documents
        if document["kind"] == "TrainingRuntime"
    }
    ours = {}
    for document in documents:
        if document["kind"] != "TrainJob":
            continue
        metadata = {**document["metadata"], "uid": "<uid>", "namespace": case}
        job = parse_object({**document, "metadata": metadata}, TrainJob)
        assert job.spec is not None
        [ours[job.metadata.name]] = [
            obj for obj in render(job, runtimes[job.spec.runtime_ref.name]) if obj["kind"] == "PodGroup"
        ]
    assert ours == json.loads((ORACLE / case / "podgroup.json").read_text())


def test_both_schedulers_of_the_peer_are_among_the_cases() -> None:
    recorded = [json.loads((ORACLE / case / "podgroup.json").read_text()) for case in CASES]
    assert {group["apiVersion"] for groups in recorded for group in groups.values()} == {
        "scheduling.x-k8s.io/v1alpha1",
        "scheduling.volcano.sh/v1beta1",
    }
