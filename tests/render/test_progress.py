"""What a job gets in order to report its progress. Source: spec 02 sections 10 and 16.15."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from render.strategies import runtime_specs, train_jobs
from template.builders import container, replicated_job, runtime, runtime_spec, train_job
from trainwright.api.constants import CLUSTER_TRAINING_RUNTIME, TEMPLATE_HASH_ANNOTATION
from trainwright.api.meta import Json
from trainwright.api.runtime import Runtime, RuntimeSpec
from trainwright.api.trainjob import Trainer, TrainJob
from trainwright.render import ProgressServer, render, render_authority
from trainwright.runtimes import load_shipped_runtimes

SERVER = ProgressServer(url="https://operator.kubeflow-system.svc:10443", authority_pem="-----BEGIN ...\n")
WHERE = "trainer.kubeflow.org/v1alpha1/namespaces/ns/trainjobs/demo/status"
ENV = [
    {
        "name": "KUBEFLOW_TRAINER_SERVER_URL",
        "value": f"https://operator.kubeflow-system.svc:10443/apis/{WHERE}",
    },
    {"name": "KUBEFLOW_TRAINER_SERVER_CA_CERT", "value": "/var/run/secrets/kubeflow/trainer/ca.crt"},
    {"name": "KUBEFLOW_TRAINER_SERVER_TOKEN", "value": "/var/run/secrets/kubeflow/trainer/token"},
]
MOUNT = {
    "name": "kubeflow-trainer-token",
    "mountPath": "/var/run/secrets/kubeflow/trainer",
    "readOnly": True,
}
VOLUME = {
    "name": "kubeflow-trainer-token",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600, "audience": WHERE}},
            {"configMap": {"name": "demo-tls-config", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ]
    },
}
AUTHORITY = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "demo-tls-config",
        "namespace": "ns",
        "labels": {"trainer.kubeflow.org/progress-authority": "true"},
        "ownerReferences": [
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "name": "demo",
                "uid": "u-1",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    },
    "data": {"ca.crt": "-----BEGIN ...\n"},
}


def render_pods(
    *replicated_jobs: Json, trainer: Trainer | None = None, server: ProgressServer = SERVER
) -> dict[str, Json]:
    """The pod spec of each replicated job."""
    job = train_job(trainer)
    rendered = render(job, runtime(runtime_spec(*replicated_jobs)), progress=server)[-1]
    return {
        one["name"]: one["template"]["spec"]["template"]["spec"] for one in rendered["spec"]["replicatedJobs"]
    }


def test_without_a_server_a_job_is_what_it_was() -> None:
    [job_set] = render(train_job(), runtime(runtime_spec()))
    assert "kubeflow-trainer-token" not in msgspec.json.encode(job_set).decode()


def test_all_containers_of_the_trainer_get_variables_and_mount_and_the_pod_one_volume() -> None:
    node = replicated_job(
        "node",
        container("sidecar", env=[{"name": "A", "value": "1"}]),
        container("node"),
        pod={"initContainers": [container("setup")], "volumes": [{"name": "data", "emptyDir": {}}]},
    )
    pod = render_pods(node)["node"]
    [sidecar, trainer] = pod["containers"]
    assert sidecar["env"] == [{"name": "A", "value": "1"}, *ENV]
    assert trainer["env"] == ENV
    assert sidecar["volumeMounts"] == trainer["volumeMounts"] == [MOUNT]
    assert pod["volumes"] == [{"name": "data", "emptyDir": {}}, VOLUME]
    assert pod["initContainers"] == [container("setup")]


def test_only_the_first_step_that_trains_reports() -> None:
    pods = render_pods(
        replicated_job("other", container("other"), ancestor=None), replicated_job("a"), replicated_job("b")
    )
    assert [name for name, pod in pods.items() if "volumes" in pod] == ["a"]


def test_a_job_without_a_trainer_gets_the_authority_alone() -> None:
    job = runtime(runtime_spec(replicated_job(ancestor=None)))
    *beside, job_set = render(train_job(), job, progress=SERVER)
    assert beside == [AUTHORITY]
    assert job_set == render(train_job(), job)[-1]


def test_the_authority_comes_before_the_job_set_and_belongs_to_the_job() -> None:
    [authority, _] = render(train_job(), runtime(runtime_spec()), progress=SERVER)
    assert authority == AUTHORITY
    assert render_authority(train_job(), "-----BEGIN ...\n") == AUTHORITY


def test_an_authority_that_nobody_knows_is_left_to_others() -> None:
    server = ProgressServer(url=SERVER.url)
    [job_set] = render(train_job(), runtime(runtime_spec()), progress=server)
    assert job_set == render(train_job(), runtime(runtime_spec()), progress=SERVER)[-1]


def test_a_variable_of_the_job_wins_in_the_container_that_trains() -> None:
    own = {"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "https://elsewhere.example/"}
    pod = render_pods(replicated_job("node", container(), container("sidecar")), trainer=Trainer(env=[own]))[
        "node"
    ]
    [trainer, sidecar] = pod["containers"]
    assert trainer["env"] == [own, *ENV[1:]]
    assert sidecar["env"] == ENV


def test_a_volume_and_a_mount_of_the_runtime_give_way() -> None:
    node = replicated_job(
        "node",
        container(volumeMounts=[{"name": "mine", "mountPath": MOUNT["mountPath"]}]),
        pod={"volumes": [{"name": "kubeflow-trainer-token", "emptyDir": {}}]},
    )
    pod = render_pods(node)["node"]
    assert pod["volumes"] == [VOLUME]
    assert pod["containers"][0]["volumeMounts"] == [MOUNT]


SHIPPED: dict[str, Runtime] = load_shipped_runtimes()


@pytest.mark.parametrize("name", SHIPPED)
def test_with_every_shipped_runtime_exactly_one_step_reports(name: str) -> None:
    job = msgspec.structs.replace(train_job(), spec=_refer_to(name))
    [job_set] = [obj for obj in render(job, SHIPPED[name], progress=SERVER) if obj["kind"] == "JobSet"]
    reporting = [
        one["name"] for one in job_set["spec"]["replicatedJobs"] if WHERE in msgspec.json.encode(one).decode()
    ]
    assert len(reporting) == 1


@given(train_jobs(), runtime_specs())
def test_nothing_but_the_report_is_added(job: TrainJob, spec: RuntimeSpec) -> None:
    """Without the ConfigMap, the variables and the volume a job is what it is without a server."""
    after = render(job, runtime(spec), progress=SERVER)
    label = AUTHORITY["metadata"]["labels"]
    rest = [obj for obj in after if obj["metadata"].get("labels") != label]
    assert len(rest) == len(after) - 1
    assert strip(rest) == strip(render(job, runtime(spec)))


def strip(value: Any) -> Any:
    """Drop what lets a pod report, lists and maps that held nothing else, and the hash of all that."""
    if isinstance(value, dict):
        stripped = {key: strip(item) for key, item in value.items() if key != TEMPLATE_HASH_ANNOTATION}
        return {key: item for key, item in stripped.items() if item not in ([], {})}
    if isinstance(value, list):
        return [strip(item) for item in value if not _is_added(item)]
    return value


def _is_added(item: Any) -> bool:
    return isinstance(item, dict) and item.get("name") in {VOLUME["name"], *(entry["name"] for entry in ENV)}


def _refer_to(name: str) -> Any:
    spec = train_job().spec
    assert spec is not None
    ref = msgspec.structs.replace(spec.runtime_ref, name=name, kind=CLUSTER_TRAINING_RUNTIME)
    return msgspec.structs.replace(spec, runtime_ref=ref)
