"""What people write reaches their program as they wrote it, and jobs that nobody looks at are told."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.meta import ObjectMeta
from trainwright.api.trainjob import RuntimeRef, TrainJob, TrainJobSpec, TrainJobStatus
from trainwright.cli.build_train_job import escape_references
from trainwright.cli.job_rows import explain_untouched
from trainwright.runner.executors.pod_env import expand

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@given(text=st.text(alphabet=st.sampled_from("$()AB _-{}`\\\"'")) | st.text())
def test_a_word_is_the_same_after_kubernetes_has_replaced_references(text):
    assert expand(escape_references(text), {"A": "replaced", "B": "replaced", "AB": "replaced"}) == text


@pytest.mark.parametrize("text", ["", "a", "$HOME", "${HOME}", "5$", "(a)"])
def test_a_word_without_references_is_readable_in_the_job(text):
    assert escape_references(text) == text


def build_job(
    seconds: float, managed_by: str | None = None, status: TrainJobStatus | None = None
) -> TrainJob:
    return TrainJob(
        metadata=ObjectMeta(name="demo", creation_timestamp=NOW - timedelta(seconds=seconds)),
        spec=TrainJobSpec(runtime_ref=RuntimeRef(name="plain"), managed_by=managed_by),
        status=status,
    )


UNTOUCHED = {
    "one that was just made": (build_job(1), None),
    "one that has a status": (build_job(60, status=TrainJobStatus(phase="Queued")), None),
    "one that is left alone": (
        build_job(60),
        "nobody has looked at the job yet: is the operator running? (its pods are in kubeflow-system; one "
        "that watches another namespace leaves the job alone)",
    ),
    "one that is another's": (
        build_job(60, managed_by="kueue.x-k8s.io/multikueue"),
        "spec.managedBy leaves the job to kueue.x-k8s.io/multikueue, which has not looked at it yet",
    ),
}


@pytest.mark.parametrize("case", UNTOUCHED.values(), ids=UNTOUCHED)
def test_a_job_that_nobody_looks_at_is_told(case):
    train_job, said = case
    assert explain_untouched(train_job, NOW) == said


def test_what_only_a_cluster_needs_is_not_loaded_for_jobs_of_this_machine(tmp_path, monkeypatch):
    code = (
        "import sys\nfrom trainwright.cli.app import run_command_line\n"
        "assert run_command_line(['list', '--on', 'local']) == 0\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    monkeypatch.setenv("TRAINWRIGHT_STATE", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & {"aiohttp", "pathspec"} == set()
