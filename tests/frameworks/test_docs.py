"""The jobs in the documentation of frameworks: each is admitted without an error, and becomes a JobSet."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from trainwright.admission import default_runtime, default_train_job, validate_runtime, validate_train_job
from trainwright.api.reading import read_object
from trainwright.api.runtime import ClusterTrainingRuntime
from trainwright.api.trainjob import TrainJob
from trainwright.render import render_job_set

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [*sorted((DOCS / "frameworks").glob("*.md")), DOCS / "how-to" / "slices.md"]
BLOCKS = [
    pytest.param(block, id=f"{page.stem} {number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.M | re.S))
    if "kind: TrainJob" in block
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_job_to_copy_is_a_job_that_runs(block: str) -> None:
    found = [read_object(document) for document in yaml.safe_load_all(block)]
    assert [one.errors for one in found] == [()] * len(found)
    values = [one.objects[0].value for one in found]
    runtimes = {
        value.metadata.name: default_runtime(value)
        for value in values
        if isinstance(value, ClusterTrainingRuntime)
    }
    for runtime in runtimes.values():
        verdict = validate_runtime(runtime)
        assert (verdict.errors, verdict.warnings) == ((), ())
    for value in values:
        if isinstance(value, TrainJob):
            job = default_train_job(value, None, datetime(2026, 1, 1, tzinfo=UTC))
            assert job.spec is not None
            runtime = runtimes[job.spec.runtime_ref.name]
            assert validate_train_job(job, runtime).errors == ()
            assert render_job_set(job, runtime)["metadata"]["name"] == job.metadata.name


def test_every_page_has_one() -> None:
    assert {str(block.id).split()[0] for block in BLOCKS} == {page.stem for page in PAGES}
