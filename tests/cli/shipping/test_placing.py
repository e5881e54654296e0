from __future__ import annotations

import msgspec
import pytest

from trainwright.api.encoding import build_json, parse_object
from trainwright.api.meta import ObjectMeta
from trainwright.api.runtime import TrainingRuntime
from trainwright.api.trainjob import RuntimePatch, RuntimeRef, Trainer, TrainJob, TrainJobSpec
from trainwright.cli.admitting import admit_new
from trainwright.cli.code_sources import CodeUrl, CodeVolume, WorkingDirectory
from trainwright.cli.shipping.carriers import CHUNK_BYTES, build_shipment
from trainwright.cli.shipping.placing import MANAGER, Places, build_start, place_code
from trainwright.errors import UsageError
from trainwright.render import render
from trainwright.runtimes import load_shipped_runtimes

SHIPMENT = build_shipment(b"x" * (CHUNK_BYTES + 1), "team")


def build_job(**trainer: object) -> TrainJob:
    return TrainJob(
        metadata=ObjectMeta(name="demo", namespace="team"),
        spec=TrainJobSpec(runtime_ref=RuntimeRef(name="torch-distributed"), trainer=Trainer(**trainer)),
    )


def test_carriers_are_named_by_what_they_hold_and_never_change():
    first, second = SHIPMENT.carriers
    assert first["metadata"] == {
        "name": f"trainer-code-{SHIPMENT.hash}-0",
        "namespace": "team",
        "labels": {"app.kubernetes.io/managed-by": "trainwright", "trainer.kubeflow.org/code": SHIPMENT.hash},
    }
    assert first["immutable"]
    assert second["binaryData"] == {"part": "eA=="}
    assert build_shipment(b"x" * (CHUNK_BYTES + 1), "team") == SHIPMENT
    assert build_shipment(b"y", "team").hash != SHIPMENT.hash


def test_the_trainer_starts_in_its_code_and_the_pods_have_the_volumes():
    job = build_job(command=["torchrun", "train.py"], args=["--lr", "1"])
    runtime = load_shipped_runtimes()["torch-distributed"]
    placed = place_code(job, runtime, SHIPMENT, WorkingDirectory())
    (job_set,) = [child for child in render(placed, runtime) if child["kind"] == "JobSet"]
    pod = job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    start = build_start(WorkingDirectory(), Places())
    assert container["command"] == [*start, "torchrun", "train.py"]
    assert container["args"] == ["--lr", "1"]
    assert container["volumeMounts"] == [
        {"name": "trainwright-archive", "mountPath": "/trainwright/archive", "readOnly": True},
        {"name": "trainwright-work", "mountPath": "/trainwright/work"},
    ]
    parts = [
        {"configMap": {"name": name, "items": [{"key": "part", "path": f"part-0{number}"}]}}
        for number, name in enumerate(SHIPMENT.names)
    ]
    assert pod["volumes"] == [
        {"name": "trainwright-archive", "projected": {"sources": parts}},
        {"name": "trainwright-work", "emptyDir": {}},
    ]
    assert admit_new(placed, runtime, []) == admit_new(job, runtime, [])


def test_patches_that_are_there_stay():
    job = build_job()
    assert job.spec is not None
    theirs = RuntimePatch(manager="kueue.x-k8s.io/manager")
    job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, runtime_patches=[theirs]))
    placed = place_code(job, load_shipped_runtimes()["plain"], SHIPMENT, WorkingDirectory())
    assert placed.spec is not None
    assert [patch.manager for patch in placed.spec.runtime_patches or ()] == [theirs.manager, MANAGER]


@pytest.mark.parametrize(
    ("code", "mount"),
    [
        (CodeVolume(claim="src"), {"name": "trainwright-code", "mountPath": "/trainwright/code"}),
        (
            CodeVolume(claim="src", path="a/b"),
            {"name": "trainwright-code", "mountPath": "/trainwright/code", "subPath": "a/b"},
        ),
    ],
)
def test_a_volume_is_mounted_and_started_in(code, mount):
    placed = place_code(build_job(), load_shipped_runtimes()["plain"], SHIPMENT, code)
    patch = build_json(placed.spec)["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]
    pod = patch["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["volumes"][-1] == {"name": "trainwright-code", "persistentVolumeClaim": {"claimName": "src"}}
    assert pod["containers"][0]["volumeMounts"][-1] == mount
    assert placed.spec is not None
    assert placed.spec.trainer is not None
    assert "cd /trainwright/code\n" in (placed.spec.trainer.command or [])[2]


def test_a_url_is_an_argument_of_the_script_and_no_part_of_it():
    url = "https://host/$(id)/`x`.tar"
    start = build_start(CodeUrl(url=url), Places())
    assert start[3:] == ["trainwright", "https://host/$$(id)/`x`.tar"]
    assert "host" not in start[2]


@pytest.mark.parametrize("code", [WorkingDirectory(), CodeUrl(url="https://x/y"), CodeVolume(claim="c")])
def test_kubernetes_finds_nothing_to_replace_in_the_script(code):
    script = build_start(code, Places())[2]
    assert "$(" not in script
    assert "$$" not in script


def test_a_runtime_without_a_training_container_is_told():
    body = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": "odd"},
        "spec": {"template": {"spec": {"replicatedJobs": [{"name": "node"}]}}},
    }
    with pytest.raises(UsageError, match="runtime 'odd' has no training step with a container 'node'"):
        place_code(build_job(), parse_object(body, TrainingRuntime), SHIPMENT, WorkingDirectory())
