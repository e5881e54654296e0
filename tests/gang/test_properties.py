"""What holds for every job, whatever its runtime looks like."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gang.builders import policy
from render.strategies import runtime_specs, train_jobs
from template.builders import runtime
from trainwright.api.meta import Json
from trainwright.api.quantity import parse_quantity
from trainwright.api.runtime import PodGroupPolicy, RuntimeSpec
from trainwright.api.trainjob import TrainJob
from trainwright.gang.demand import sum_pod_requests
from trainwright.render import render
from trainwright.template.replicated_jobs import get_job_spec, get_part, get_pod_spec, list_replicated_jobs

POLICIES = [policy(**{name: {}}) for name in ("coscheduling", "volcano", "kai", "native")]
COUNTED = POLICIES[:2]


def render_with(spec: RuntimeSpec, job: TrainJob, gang: PodGroupPolicy | None) -> list[Json]:
    return render(job, runtime(msgspec.structs.replace(spec, pod_group_policy=gang)))


def strip(replicated_job: Json) -> Json:
    """Return the replicated job without what may be different by a gang."""
    pod = get_part(replicated_job, "template", "spec", "template")
    spec = {
        name: value for name, value in pod["spec"].items() if name not in ("schedulerName", "schedulingGroup")
    }
    job_spec = {**get_job_spec(replicated_job), "template": {"spec": spec}}
    return {**replicated_job, "template": {**replicated_job["template"], "spec": job_spec}}


@given(spec=runtime_specs(), job=train_jobs(), gang=st.sampled_from(POLICIES))
def test_a_gang_changes_nothing_but_marks_and_schedulers(
    spec: RuntimeSpec, job: TrainJob, gang: PodGroupPolicy
) -> None:
    *_, with_gang = render_with(spec, job, gang)
    *_, without = render_with(spec, job, None)
    marked, plain = (list_replicated_jobs(job_set["spec"]) for job_set in (with_gang, without))
    assert [strip(one) for one in marked] == [strip(one) for one in plain]
    assert {**with_gang["spec"], "replicatedJobs": []} == {**without["spec"], "replicatedJobs": []}


@given(spec=runtime_specs(), job=train_jobs(), gang=st.sampled_from(COUNTED))
def test_a_gang_is_all_pods_that_run_where_nothing_waits(
    spec: RuntimeSpec, job: TrainJob, gang: PodGroupPolicy
) -> None:
    *others, job_set = render_with(spec, job, gang)
    groups = [obj for obj in others if obj["kind"] == "PodGroup"]
    pods: list[tuple[int, Json]] = []
    for replicated_job in list_replicated_jobs(job_set["spec"]):
        job_spec = get_job_spec(replicated_job)
        at_a_time = min(job_spec["parallelism"], job_spec.get("completions", job_spec["parallelism"]))
        pods.append((at_a_time * replicated_job.get("replicas", 1), get_pod_spec(replicated_job)))
    total = sum(count for count, _ in pods)
    assert [group["spec"]["minMember"] for group in groups] == ([total] if total else [])
    for group in groups:
        for name, amount in group["spec"]["minResources"].items():
            each = [sum_pod_requests(pod).get(name, parse_quantity(0)) * count for count, pod in pods]
            assert parse_quantity(amount) == sum(each, start=parse_quantity(0))
