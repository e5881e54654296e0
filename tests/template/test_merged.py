"""Labels of a TrainJob that its runtime lets pass (spec 02 section 3.1)."""

from __future__ import annotations

import msgspec
import pytest

from template.builders import container, patch, replicated_job, runtime, runtime_spec, train_job
from trainwright.api.meta import Json
from trainwright.api.runtime import RuntimeSpec
from trainwright.api.trainjob import TrainJob
from trainwright.render import render_job_set
from trainwright.template.merged import pick_labels

LABELS = {"team": "a", "cost.example.com/center": "7", "cost.example.com": "x", "other": "b"}
PATTERNS: dict[str, tuple[list[str], dict[str, str]]] = {
    "none": ([], {}),
    "a key": (["team"], {"team": "a"}),
    "a prefix": (["cost.example.com/"], {"cost.example.com/center": "7"}),
    "a key is no prefix": (["tea", "cost.example.com/cent"], {}),
    "both": (["cost.example.com/", "other"], {"cost.example.com/center": "7", "other": "b"}),
}


@pytest.mark.parametrize(("patterns", "passed"), PATTERNS.values(), ids=PATTERNS)
def test_labels_pass_by_key_or_prefix(patterns: list[str], passed: dict[str, str]) -> None:
    assert pick_labels(LABELS, patterns) == passed


def labelled(job: TrainJob) -> TrainJob:
    return msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, labels=LABELS))


def read_labels(job_set: Json) -> list[Json]:
    """The labels of the JobSet, then those of the pods of each replicated job."""
    pods = [job["template"]["spec"]["template"] for job in job_set["spec"]["replicatedJobs"]]
    return [found.get("metadata", {}).get("labels", {}) for found in (job_set, *pods)]


def passing(*patterns: str) -> RuntimeSpec:
    jobs = (replicated_job("setup", container("main"), ancestor=None), replicated_job("node"))
    spec = runtime_spec(*jobs, metadata={"labels": {"team": "runtime's", "kept": "1"}})
    return msgspec.structs.replace(spec, propagated_labels=list(patterns) or None)


def test_they_reach_the_jobset_and_all_pods_and_win_over_the_runtimes() -> None:
    rendered = render_job_set(labelled(train_job()), runtime(passing("team")))
    assert read_labels(rendered) == [{"team": "a", "kept": "1"}, {"team": "a"}, {"team": "a"}]


def test_patches_win_over_them() -> None:
    own = {"spec": {"template": {"metadata": {"labels": {"team": "patch"}}}}}
    job = train_job(runtime_patches=[patch({"replicatedJobs": [{"name": "node", "template": own}]})])
    rendered = render_job_set(labelled(job), runtime(passing("team")))
    assert read_labels(rendered)[1:] == [{"team": "a"}, {"team": "patch"}]


def test_without_patterns_no_label_passes() -> None:
    rendered = render_job_set(labelled(train_job()), runtime(passing()))
    assert read_labels(rendered) == [{"team": "runtime's", "kept": "1"}, {}, {}]
