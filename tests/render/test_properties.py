"""What holds for every runtime and job: inputs stay as they are, the same input gives the same bytes."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import event, given

from render.strategies import runtime_specs, train_jobs
from template.builders import TORCH, container, replicated_job, runtime, runtime_spec, train_job
from trainwright.admission import validate_runtime, validate_train_job
from trainwright.api.constants import ANCESTOR_LABEL
from trainwright.api.encoding import build_json, parse_object
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json
from trainwright.api.runtime import RuntimeSpec, TrainingRuntime
from trainwright.api.trainjob import Trainer, TrainJob
from trainwright.render import render, render_job_set
from trainwright.template.layout import build_layout
from trainwright.template.merge import EMPTY_MEANS_ABSENT


def walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Every value in JSON, with the key that it stands under."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key, item
            yield from walk(item)
    elif isinstance(value, list):
        for item in value:
            yield from walk(item)


def shuffled(value: Any) -> Any:
    """The same JSON with all keys in the opposite order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(train_jobs(), runtime_specs())
def test_job_and_runtime_are_never_changed(job: TrainJob, spec: RuntimeSpec) -> None:
    before = copy.deepcopy((job, spec))
    objects = render(job, runtime(spec))
    assert (job, spec) == before
    for _, item in walk(objects):  # whoever gets the objects may change them
        if isinstance(item, dict):
            item["changed"] = True
        elif isinstance(item, list):
            item.append("changed")
    assert (job, spec) == before


@given(train_jobs(), runtime_specs())
def test_the_same_input_gives_the_same_bytes_whatever_the_order_of_its_keys(
    job: TrainJob, spec: RuntimeSpec
) -> None:
    other = TrainingRuntime(
        metadata=runtime(spec).metadata, spec=msgspec.convert(shuffled(build_json(spec)), RuntimeSpec)
    )
    other_job = msgspec.convert(shuffled(build_json(job)), TrainJob)
    assert json.dumps(render(job, runtime(spec))) == json.dumps(render(other_job, other))


@given(train_jobs(), runtime_specs())
def test_the_jobset_agrees_with_the_layout_and_is_clean(job: TrainJob, spec: RuntimeSpec) -> None:
    rendered = render_job_set(job, runtime(spec))
    layout = build_layout(job, spec)
    for pod_set, replicated in zip(layout.pod_sets, rendered["spec"]["replicatedJobs"], strict=True):
        job_spec = replicated["template"]["spec"]
        assert (replicated["name"], job_spec["parallelism"], job_spec["completions"]) == (
            pod_set.name,
            pod_set.count,
            pod_set.completions,
        )
        assert replicated.get("replicas", 1) == pod_set.replicas
        for containers in ("containers", "initContainers"):
            for found in job_spec["template"]["spec"].get(containers, []):
                names = [entry["name"] for entry in found.get("env", [])]
                assert len(names) == len(set(names))
    assert not [
        key for key, item in walk(rendered) if item is None or (item == {} and key in EMPTY_MEANS_ABSENT)
    ]
    assert parse_object(rendered, JobSet).spec.suspend == (job.spec.suspend if job.spec else None)


@given(train_jobs(), runtime_specs())
def test_what_admission_accepts_renders(job: TrainJob, spec: RuntimeSpec) -> None:
    assert job.spec is not None
    reference = msgspec.structs.replace(job.spec.runtime_ref, kind="TrainingRuntime")
    job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, runtime_ref=reference))
    accepted = (
        validate_train_job(job, runtime(spec)).is_allowed and validate_runtime(runtime(spec)).is_allowed
    )
    event(f"accepted: {accepted}")
    if accepted:
        assert render(job, runtime(spec))


@given(train_jobs(), runtime_specs())
def test_suspending_changes_one_field(job: TrainJob, spec: RuntimeSpec) -> None:
    def rendered(suspend: bool) -> Json:
        assert job.spec is not None
        changed = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, suspend=suspend))
        return render_job_set(changed, runtime(spec))

    running, suspended = rendered(suspend=False), rendered(suspend=True)
    assert (running["spec"].pop("suspend"), suspended["spec"].pop("suspend")) == (False, True)
    assert running == suspended


PROGRAM = """
import json
from trainwright.api.meta import ObjectMeta
from trainwright.api.pod import ResourceRequirements
from trainwright.api.trainjob import RuntimeRef, Trainer, TrainJob, TrainJobSpec
from trainwright.render import render
from trainwright.runtimes import load_shipped_runtimes
names = {f"{letter}.com/gpu": "1" for letter in "abcdefgh"}
labels = {letter: letter for letter in "abcdefgh"}
env = [{"name": "A", "value": "1"}]
trainer = Trainer(num_nodes=3, resources_per_node=ResourceRequirements(limits=names), env=env)
spec = TrainJobSpec(runtime_ref=RuntimeRef(name="x"), trainer=trainer)
job = TrainJob(metadata=ObjectMeta(name="demo", labels=labels), spec=spec)
print(json.dumps([render(job, runtime) for runtime in load_shipped_runtimes().values()]))
"""


def test_r06_processes_with_other_hash_seeds_render_the_same_bytes() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(outputs) == 1
    assert b"PET_NNODES" in next(iter(outputs))


MANY_CONTAINERS = [
    container(f"side-{i}", env=[{"name": f"V{j}", "value": "x"} for j in range(20)]) for i in range(20)
]


@pytest.mark.parametrize("containers", [[], MANY_CONTAINERS], ids=["one container", "many containers"])
def test_ten_thousand_nodes_render_in_less_than_30_ms(containers: list[Json]) -> None:
    spec = runtime_spec(replicated_job("node", container(), *containers), policy=TORCH)
    job, live = train_job(Trainer(num_nodes=10_000)), runtime(spec)

    def measure() -> float:
        start = time.perf_counter()
        render(job, live)
        return time.perf_counter() - start

    assert min(measure() for _ in range(10)) < 0.030


def test_the_number_of_nodes_does_not_make_the_jobset_larger() -> None:
    few, many = (
        render_job_set(train_job(Trainer(num_nodes=num_nodes)), runtime(runtime_spec(policy=TORCH)))
        for num_nodes in (1000, 9999)
    )
    assert len(json.dumps(few)) == len(json.dumps(many))
    assert ANCESTOR_LABEL in json.dumps(few)
