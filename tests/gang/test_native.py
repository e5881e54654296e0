"""Kubernetes' own gangs."""

from __future__ import annotations

from gang.builders import build_pod_group, gang_spec, list_marks, policy, render_gang
from template.builders import container, replicated_job
from trainwright.api.meta import Json
from trainwright.api.trainjob import Trainer

SETUP = replicated_job("setup", container("main"), ancestor=None)
AFTER_SETUP = replicated_job(dependsOn=[{"name": "setup", "status": "Complete"}])


def gang(count: int) -> Json:
    return {"schedulingPolicy": {"gang": {"minCount": count}}}


def test_pods_name_a_group_that_stands_by_itself() -> None:
    others, job_set = render_gang(gang_spec(policy(native={}), SETUP, replicated_job()), Trainer(num_nodes=3))
    assert others == [build_pod_group("scheduling.k8s.io/v1alpha2", gang(4), "demo-4")]
    mark = {"schedulingGroup": {"podGroupName": "demo-4"}}
    assert list_marks(job_set) == {"setup": mark, "node": mark}


def test_what_comes_before_the_nodes_is_outside() -> None:
    others, job_set = render_gang(gang_spec(policy(native={}), SETUP, AFTER_SETUP), Trainer(num_nodes=3))
    assert others == [build_pod_group("scheduling.k8s.io/v1alpha2", gang(3), "demo-3")]
    assert list_marks(job_set) == {"setup": {}, "node": {"schedulingGroup": {"podGroupName": "demo-3"}}}


def test_the_version_is_the_runtimes() -> None:
    others, _ = render_gang(gang_spec(policy(native={"version": "v1alpha3"}), replicated_job()))
    assert others == [build_pod_group("scheduling.k8s.io/v1alpha3", gang(1), "demo-1")]


def test_another_number_of_nodes_is_another_group_since_a_group_cannot_change() -> None:
    spec = gang_spec(policy(native={}), replicated_job())
    names = [render_gang(spec, Trainer(num_nodes=count))[0][0]["metadata"]["name"] for count in (2, 4)]
    assert names == ["demo-2", "demo-4"]
