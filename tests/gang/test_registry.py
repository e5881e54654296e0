"""What is refused, and what is warned of, before a gang is made."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gang.builders import gang_spec, policy
from template.builders import container, job_set_template, patch, replicated_job, runtime, train_job
from trainwright.admission import validate_runtime, validate_train_job
from trainwright.api.encoding import parse_object
from trainwright.api.meta import Json
from trainwright.api.runtime import ClusterTrainingRuntime, MLPolicy, PodGroupPolicy
from trainwright.api.trainjob import RuntimePatch
from trainwright.gang import GANG_SCHEDULERS, find_gang_errors, list_gang_warnings
from trainwright.render import RenderError, render

QUEUE = "scheduling.volcano.sh/queue-name"
NO_QUEUE: Json = {"annotations": {QUEUE: ""}}
VOLCANO = policy(volcano={})
NAME_ONE = "names no queue of Volcano: name one, or leave the annotation out for the default queue"

ERRORS: dict[str, tuple[PodGroupPolicy | None, Json, list[RuntimePatch], list[str]]] = {
    "no policy": (None, NO_QUEUE, [], []),
    "another scheduler's queue is none of ours": (policy(coscheduling={}), NO_QUEUE, [], []),
    "a queue": (VOLCANO, {"annotations": {QUEUE: "q"}}, [], []),
    "an empty queue in the runtime": (
        VOLCANO,
        NO_QUEUE,
        [],
        [f"spec.runtimeRef: the runtime's spec.template.metadata.annotations[{QUEUE}] {NAME_ONE}"],
    ),
    "an empty queue in a patch": (
        VOLCANO,
        NO_QUEUE,
        [patch(metadata=NO_QUEUE), patch(metadata={"annotations": {"a": "b"}})],
        [f"spec.runtimePatches[0].trainingRuntimeSpec.template.metadata.annotations[{QUEUE}]: {NAME_ONE}"],
    ),
    "a queue that no object can be named": (
        VOLCANO,
        {"annotations": {QUEUE: "a queue"}},
        [],
        [
            f"spec.runtimeRef: the runtime's spec.template.metadata.annotations[{QUEUE}] names no queue of "
            "Volcano (\"a queue\" may have lower case letters, digits, '-' and '.' only, with a letter "
            "or digit at both ends of every part): name one, or leave the annotation out for the default "
            "queue"
        ],
    ),
    "two schedulers, of a runtime that admission never saw": (
        policy(coscheduling={}, volcano={}),
        {},
        [],
        [
            "spec.runtimeRef: the runtime's spec.podGroupPolicy has coscheduling and volcano, and a pod has "
            "one scheduler; leave one of them in it"
        ],
    ),
    "a queue of KAI that cannot be a label": (
        policy(kai={"queue": "a b"}),
        {},
        [],
        [
            "spec.runtimeRef: the runtime's spec.podGroupPolicy.kai.queue cannot be the label that it "
            "becomes: \"a b\" is no label value: it has at most 63 letters, digits, '-', '_' or '.', with a "
            "letter or digit at both ends"
        ],
    ),
}


@pytest.mark.parametrize(("gang", "metadata", "patches", "errors"), ERRORS.values(), ids=ERRORS)
def test_errors(
    gang: PodGroupPolicy | None, metadata: Json, patches: list[RuntimePatch], errors: list[str]
) -> None:
    found = find_gang_errors(gang, job_set_template({}, metadata).metadata, patches)
    assert [str(error) for error in found] == errors


def test_admission_and_render_refuse_the_same() -> None:
    spec = gang_spec(VOLCANO, replicated_job(), metadata=NO_QUEUE, ml_policy=MLPolicy())
    job = train_job()
    assert [error.path for error in validate_train_job(job, runtime(spec)).errors] == ["spec.runtimeRef"]
    with pytest.raises(RenderError, match="names no queue of Volcano"):
        render(job, runtime(spec))


def test_a_runtime_that_leaves_the_queue_to_its_jobs_is_warned_of() -> None:
    verdict = validate_runtime(runtime(gang_spec(VOLCANO, replicated_job(), metadata=NO_QUEUE)))
    assert verdict.errors == ()
    assert list(verdict.warnings) == [
        f"spec.template.metadata.annotations[{QUEUE}]: names no queue of Volcano, so every TrainJob has to "
        "name one by a runtime patch"
    ]


def side(scheduler: str | None, **fields: object) -> Json:
    pod = {"schedulerName": scheduler} if scheduler else {}
    return replicated_job("side", container("main"), ancestor=None, pod=pod, **fields)


def warn(*names: str) -> list[str]:
    return [
        f"pods of the gang have different schedulers ({', '.join(names)}), none of which sees all of it, so "
        "it is never complete; give every replicated job of the JobSet the same schedulerName"
    ]


WARNINGS: dict[str, tuple[PodGroupPolicy | None, list[Json], list[str]]] = {
    "no policy": (None, [side("x"), replicated_job()], []),
    "the same": (policy(coscheduling={}), [side(None), replicated_job()], []),
    "two": (policy(coscheduling={}), [side("x"), replicated_job()], warn("default-scheduler", "x")),
    "Volcano beside another": (VOLCANO, [side("x"), replicated_job()], warn("volcano", "x")),
    "Volcano where nothing is named": (VOLCANO, [side("volcano"), replicated_job()], []),
    "outside the gang it does not matter": (
        VOLCANO,
        [side("x"), replicated_job(dependsOn=[{"name": "side", "status": "Complete"}])],
        [],
    ),
}


@pytest.mark.parametrize(("gang", "jobs", "warnings"), WARNINGS.values(), ids=WARNINGS)
def test_warnings(gang: PodGroupPolicy | None, jobs: list[Json], warnings: list[str]) -> None:
    assert list_gang_warnings(gang, {"replicatedJobs": jobs}, "node") == warnings
    assert list(validate_train_job(train_job(), runtime(gang_spec(gang, *jobs))).warnings) == warnings


def test_every_field_of_the_policy_is_a_scheduler() -> None:
    assert tuple(scheduler.name for scheduler in GANG_SCHEDULERS) == PodGroupPolicy.__struct_fields__


PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/gang-scheduling.md"


def read_runtimes() -> dict[str, ClusterTrainingRuntime]:
    """Return the runtimes of the page, by the scheduler that they choose."""
    blocks = [block.partition("```")[0] for block in PAGE.read_text().split("```yaml\n")[1:]]
    documents = [document for block in blocks for document in yaml.safe_load_all(block)]
    return {
        next(iter(document["spec"]["podGroupPolicy"])): parse_object(document, ClusterTrainingRuntime)
        for document in documents
        if "kind" in document
    }


def test_the_documentation_has_a_runtime_for_each_scheduler() -> None:
    runtimes = read_runtimes()
    assert list(runtimes) == [scheduler.name for scheduler in GANG_SCHEDULERS]
    for live in runtimes.values():
        verdict = validate_runtime(live)
        assert (verdict.errors, verdict.warnings) == ((), ())
        assert render(train_job(), live)[-1]["kind"] == "JobSet"
