"""Slurm Bridge: the runtime of the documentation, and what its scheduler reads of it.

Slurm Bridge itself cannot be had as a module, so what is tested are the labels, annotations and names that
its documentation describes.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gang.builders import gang_spec, list_marks, policy, render_gang
from template.builders import patch, replicated_job
from trainwright.admission import validate_runtime, validate_train_job
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json
from trainwright.api.runtime import ClusterTrainingRuntime, PodGroupPolicy
from trainwright.api.trainjob import TrainJob
from trainwright.render import render

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/schedule-with-slurm.md"
PREFIX = "slurmjob.slinky.slurm.net/"
SAID = {f"{PREFIX}partition": "gpu", f"{PREFIX}timelimit": "60", "other": "x"}


@pytest.mark.parametrize("gang", [policy(coscheduling={}), policy(native={})], ids=["coscheduling", "native"])
def test_the_pod_group_says_what_the_slurm_job_is_to_be(gang: PodGroupPolicy) -> None:
    node = replicated_job(pod={"schedulerName": "slurm-bridge-scheduler"})
    [group], job_set = render_gang(gang_spec(gang, node, metadata={"annotations": SAID}))
    assert group["metadata"]["annotations"] == {f"{PREFIX}partition": "gpu", f"{PREFIX}timelimit": "60"}
    assert SAID.items() <= job_set["metadata"]["annotations"].items()
    assert list_marks(job_set)["node"]["schedulerName"] == "slurm-bridge-scheduler"


def test_a_job_says_it_by_a_patch() -> None:
    spec = gang_spec(policy(coscheduling={}), replicated_job(), metadata={"annotations": SAID})
    ours = patch(metadata={"annotations": {f"{PREFIX}partition": "cpu"}})
    [group], _ = render_gang(spec, runtime_patches=[ours])
    assert group["metadata"]["annotations"] == {f"{PREFIX}partition": "cpu", f"{PREFIX}timelimit": "60"}


def test_other_annotations_stay_where_they_are() -> None:
    spec = gang_spec(policy(coscheduling={}), replicated_job(), metadata={"annotations": {"other": "x"}})
    [group], _ = render_gang(spec)
    assert "annotations" not in group["metadata"]


def read_documents() -> list[Json]:
    """Return the YAML documents of the page."""
    blocks = PAGE.read_text().split("```yaml\n")[1:]
    return [document for block in blocks for document in yaml.safe_load_all(block.partition("```")[0])]


def test_the_runtime_and_the_job_of_the_documentation_become_one_slurm_job() -> None:
    documents = {document["kind"]: document for document in read_documents()}
    runtime = parse_object(documents["ClusterTrainingRuntime"], ClusterTrainingRuntime)
    job = parse_object(documents["TrainJob"], TrainJob)
    assert validate_runtime(runtime).errors == ()
    assert validate_train_job(job, runtime).errors == ()
    group, job_set = render(job, runtime)
    assert (group["kind"], group["spec"]["minMember"]) == ("PodGroup", 4)
    assert group["metadata"]["annotations"] == {
        f"{PREFIX}account": "vision",
        f"{PREFIX}partition": "gpu",
        f"{PREFIX}timelimit": "240",
    }
    assert list_marks(job_set) == {
        "node": {
            "labels": {"scheduling.x-k8s.io/pod-group": "train-vision"},
            "schedulerName": "slurm-bridge-scheduler",
        }
    }
