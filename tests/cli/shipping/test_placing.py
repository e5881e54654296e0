from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.encoding import build_json, parse_object
from trainwright.api.meta import Json, ObjectMeta
from trainwright.api.runtime import (
    JobSetTemplate,
    MLPolicy,
    MPIPolicy,
    RuntimeSpec,
    TensorFlowPolicy,
    TorchPolicy,
    TrainingRuntime,
)
from trainwright.api.trainjob import RuntimePatch, RuntimeRef, Trainer, TrainJob, TrainJobSpec
from trainwright.cli.admitting import admit_new
from trainwright.cli.code_sources import CodeUrl, CodeVolume, WorkingDirectory
from trainwright.cli.shipping.carriers import CHUNK_BYTES, build_shipment
from trainwright.cli.shipping.placing import MANAGER, Places, build_start, place_code
from trainwright.errors import UsageError
from trainwright.render import render
from trainwright.runtimes import load_shipped_runtimes
from trainwright.template.steps import list_steps

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


def build_step(name: str, container: str = "node", *, trains: bool = True) -> Json:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"} if trains else {}
    pod = {"containers": [{"name": container}]}
    template = {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}
    return {"name": name, "template": template}


def build_runtime(policy: MLPolicy | None, *steps: Json) -> TrainingRuntime:
    template = JobSetTemplate(spec={"replicatedJobs": list(steps)})
    spec = RuntimeSpec(ml_policy=policy, template=template)
    return TrainingRuntime(metadata=ObjectMeta(name="any"), spec=spec)


PODS = {
    "one step": (load_shipped_runtimes()["torch-distributed"], ["node"]),
    "a launcher, and nodes that run sshd": (
        load_shipped_runtimes()["mpi-distributed"],
        ["node", "launcher"],
    ),
    "a step that does not train, workers and parameter servers": (
        build_runtime(
            MLPolicy(tensorflow=TensorFlowPolicy()),
            build_step("prepare", trains=False),
            build_step("worker"),
            build_step("ps"),
        ),
        ["worker", "ps"],
    ),
}


@pytest.mark.parametrize(("runtime", "steps"), PODS.values(), ids=PODS)
def test_one_patch_gives_the_code_to_all_pods_that_train(runtime, steps):
    placed = place_code(build_job(), runtime, build_shipment(b"x", "team"), WorkingDirectory())
    mounts = [
        {"name": "trainwright-archive", "mountPath": "/trainwright/archive", "readOnly": True},
        {"name": "trainwright-work", "mountPath": "/trainwright/work"},
    ]
    name = build_shipment(b"x", "team").names[0]
    source = {"configMap": {"name": name, "items": [{"key": "part", "path": "part-00"}]}}
    volumes = [
        {"name": "trainwright-archive", "projected": {"sources": [source]}},
        {"name": "trainwright-work", "emptyDir": {}},
    ]
    pod = {"volumes": volumes, "containers": [{"name": "node", "volumeMounts": mounts}]}
    job = {"spec": {"template": {"spec": pod}}}
    patched = [{"name": step, "template": job} for step in steps]
    assert build_json(placed.spec)["runtimePatches"] == [
        {
            "manager": "trainer.kubeflow.org/trainwright",
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": patched}}},
        }
    ]


def test_the_launcher_starts_in_the_code_and_nodes_go_on_running_sshd():
    job, runtime = (
        build_job(command=["mpirun", "python3", "train.py"]),
        load_shipped_runtimes()["mpi-distributed"],
    )
    exports = {"HYDRA_LAUNCHER_EXEC": "/trainwright/work/mpi/agent"}
    placed = place_code(job, runtime, SHIPMENT, WorkingDirectory(), exports)
    (job_set,) = [child for child in render(placed, runtime) if child["kind"] == "JobSet"]
    commands = {
        step["name"]: step["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
        for step in job_set["spec"]["replicatedJobs"]
    }
    start = build_start(WorkingDirectory(), Places(), exports)
    assert "\nexport HYDRA_LAUNCHER_EXEC=/trainwright/work/mpi/agent\n" in start[2]
    assert commands == {"launcher": [*start, "mpirun", "python3", "train.py"], "node": ["/usr/sbin/sshd"]}


POLICIES = st.sampled_from(
    [
        None,
        MLPolicy(),
        MLPolicy(torch=TorchPolicy()),
        MLPolicy(mpi=MPIPolicy()),
        MLPolicy(tensorflow=TensorFlowPolicy()),
    ]
)
STEPS = st.dictionaries(
    st.sampled_from(["launcher", "node", "worker", "ps", "prepare"]),
    st.tuples(st.booleans(), st.sampled_from(["node", "other"])),
    min_size=1,
)


@given(policy=POLICIES, named=STEPS)
def test_every_container_that_trains_has_the_code(policy, named):
    runtime = build_runtime(
        policy, *(build_step(name, container, trains=trains) for name, (trains, container) in named.items())
    )
    assert runtime.spec is not None
    assert runtime.spec.template is not None
    steps = list_steps(runtime.spec.template.spec, policy)
    expected = [
        name
        for (name, (_, container)), step in zip(named.items(), steps, strict=True)
        if step.trains and container == "node"
    ]
    runs = [
        step.runs_command and entry[1] == "node" for step, entry in zip(steps, named.values(), strict=True)
    ]
    if not any(runs):
        with pytest.raises(UsageError, match="has no training step"):
            place_code(build_job(), runtime, SHIPMENT, WorkingDirectory())
        return
    placed = place_code(build_job(), runtime, SHIPMENT, WorkingDirectory())
    patch = build_json(placed.spec)["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]
    assert [step["name"] for step in patch["replicatedJobs"]] == expected


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
    code = CodeUrl(url="https://host/$(id)/`x`.tar")
    start = build_start(code, Places())
    assert start[3:] == ["trainwright", code.url]
    assert "host" not in start[2]
    placed = place_code(build_job(command=["./prog"]), load_shipped_runtimes()["plain"], SHIPMENT, code)
    assert placed.spec is not None
    assert placed.spec.trainer is not None
    assert placed.spec.trainer.command == [*start[:4], "https://host/$$(id)/`x`.tar", "./prog"]


@pytest.mark.parametrize("code", [WorkingDirectory(), CodeUrl(url="https://x/y"), CodeVolume(claim="c")])
def test_kubernetes_finds_nothing_to_replace_in_the_script(code):
    script = build_start(code, Places(), {"A": "/x"})[2]
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
