"""A further framework is one module and one line: the one of the how-to, beside those that are shipped."""

from __future__ import annotations

import pytest

from frameworks.example_hosts import Hosts
from template.builders import container, replicated_job, runtime, runtime_spec, train_job
from trainwright.api.runtime import RuntimeSpec
from trainwright.api.trainjob import Trainer
from trainwright.frameworks import FRAMEWORKS, Framework, list_framework_warnings, select_frameworks
from trainwright.render import RenderError, render
from trainwright.template.layout import build_layout

ALL: tuple[Framework, ...] = (*FRAMEWORKS, Hosts())
WITHOUT_POLICY: RuntimeSpec = runtime_spec(policy=None)


def test_it_takes_part_after_those_before_it() -> None:
    assert [framework.name for framework in select_frameworks(None, ALL)] == ["plain", "hosts"]


def test_its_objects_come_before_the_jobset_and_belong_to_the_job() -> None:
    job = train_job(Trainer(num_nodes=2, env=[{"name": "A", "value": "1"}]))
    config_map, job_set = render(job, runtime(WITHOUT_POLICY), frameworks=ALL)
    assert config_map == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "demo-hosts",
            "namespace": "ns",
            "ownerReferences": job_set["metadata"]["ownerReferences"],
        },
        "data": {"hosts": "demo-node-0-0.demo\ndemo-node-0-1.demo"},
    }
    assert job_set["metadata"]["ownerReferences"][0]["uid"] == "u-1"


def test_its_additions_are_folded_into_the_pods() -> None:
    job = train_job(Trainer(num_nodes=2, env=[{"name": "A", "value": "1"}]))
    job_set = render(job, runtime(WITHOUT_POLICY), frameworks=ALL)[-1]
    assert job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"] == {
        "containers": [
            container(
                env=[{"name": "A", "value": "1"}, {"name": "HOST_FILE", "value": "/etc/hosts.d/hosts"}],
                volumeMounts=[{"name": "hosts", "mountPath": "/etc/hosts.d", "readOnly": True}],
                terminationMessagePolicy="FallbackToLogsOnError",
            )
        ],
        "volumes": [{"name": "hosts", "configMap": {"name": "demo-hosts"}}],
    }


def test_its_errors_keep_the_job_from_being_rendered() -> None:
    job = train_job(Trainer(env=[{"name": "HOST_FILE", "value": "x"}]))
    with pytest.raises(RenderError, match="HOST_FILE: set by the hosts framework"):
        render(job, runtime(WITHOUT_POLICY), frameworks=ALL)


def test_its_warnings_are_listed() -> None:
    assert list_framework_warnings(build_layout(train_job(), WITHOUT_POLICY), ALL) == [
        "one node alone needs no host file"
    ]


def test_a_runtime_without_a_trainer_step_gets_nothing() -> None:
    spec = runtime_spec(replicated_job(ancestor=None), policy=None)
    assert [obj["kind"] for obj in render(train_job(), runtime(spec), frameworks=ALL)] == ["JobSet"]
