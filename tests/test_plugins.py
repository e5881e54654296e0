"""Frameworks of other packages: found, checked, and used by the whole program."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.test_utils import TestClient, TestServer

from cli.program import Program
from installed_packages import EXAMPLE, install_project, write_metadata
from reviews import build_job, build_runtime, encode_review
from template.builders import container, replicated_job, runtime, runtime_spec, train_job
from trainwright.api.jobset import JobSet
from trainwright.api.meta import Json, ObjectKey
from trainwright.api.runtime import CustomPolicy, MLPolicy, Runtime, RuntimeSpec
from trainwright.api.trainjob import Trainer, TrainJob
from trainwright.frameworks import FRAMEWORKS, Framework, list_framework_warnings, select_frameworks
from trainwright.manifests.names import VALIDATING_WEBHOOKS
from trainwright.operator.webhooks import Webhooks
from trainwright.plugins import GROUP, UnusableFramework, add_frameworks, has_offers
from trainwright.render import RenderError, render
from trainwright.template.layout import build_layout

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The example package, as installed into a folder of its own."""
    return install_project(EXAMPLE, tmp_path / "packages")


def offer(folder: Path, name: str, value: str, package: str = "other") -> Path:
    """Install a package that offers a framework."""
    return write_metadata(folder / package, package, "2.0", {GROUP: {name: value}})


def find_entry_points(*folders: Path) -> list[EntryPoint]:
    return [
        entry_point
        for found in distributions(path=[str(folder) for folder in folders])
        for entry_point in found.entry_points
        if entry_point.group == GROUP
    ]


# -- loading -----------------------------------------------------------------------------------------------


@pytest.fixture
def example(installed: Path, monkeypatch: pytest.MonkeyPatch) -> Iterable[tuple[Framework, ...]]:
    """All frameworks, with that of the example package."""
    monkeypatch.syspath_prepend(str(installed))
    yield add_frameworks(FRAMEWORKS, find_entry_points(installed))
    sys.modules.pop("host_file", None)


def test_a_framework_of_another_package_comes_after_those_that_are_shipped(
    example: tuple[Framework, ...],
) -> None:
    assert example[:-1] == FRAMEWORKS
    assert example[-1].name == "hosts"


def test_an_object_is_taken_as_it_is(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "made_before.py").write_text("from host_file import Hosts\n\nframework = Hosts()\n")
    monkeypatch.syspath_prepend(str(installed))
    entry_points = find_entry_points(offer(tmp_path, "hosts", "made_before:framework"))
    (found,) = add_frameworks((), entry_points)
    assert found is sys.modules.pop("made_before").framework
    sys.modules.pop("host_file")


PROBLEMS: dict[str, tuple[str, str, str]] = {
    "a name that is taken": ("torch", "x:Y", "that name is one of ours"),
    "the name of the field that chooses": ("custom", "x:Y", "that name is one of ours"),
    "a module that is not there": (
        "x",
        "no_such_module_anywhere:Y",
        "loading it failed with ModuleNotFoundError: No module named 'no_such_module_anywhere'",
    ),
    "an attribute that is not there": ("x", "json:Nothing", "loading it failed with AttributeError"),
    "a class that wants arguments": ("x", "types:MethodType", "loading it failed with TypeError"),
    "no framework": (
        "x",
        "json:dumps",
        "what it leads to has no is_active, validate, list_warnings, build_contribution",
    ),
    "another name": (
        "x",
        "trainwright.frameworks.torch:Torch",
        "what it leads to has the name 'torch'",
    ),
}


@pytest.mark.parametrize(("name", "value", "problem"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_cannot_be_used_is_an_error_that_names_the_package(
    tmp_path: Path, name: str, value: str, problem: str
) -> None:
    with pytest.raises(UnusableFramework) as caught:
        add_frameworks(FRAMEWORKS, find_entry_points(offer(tmp_path, name, value)))
    assert caught.value.package == "other 2.0"
    assert str(caught.value).startswith(
        f"package other 2.0 offers a framework '{name}' (entry point '{value}' in the group "
        f"trainwright.frameworks), but {problem}"
    )
    assert str(caught.value).endswith("; upgrade the package or uninstall it")


def test_two_packages_with_one_name_are_both_named(installed: Path, tmp_path: Path, example: Any) -> None:
    rival = offer(tmp_path, "hosts", "rival:Hosts", "zebra")
    with pytest.raises(
        UnusableFramework,
        match=r"package zebra 2\.0 .* but package trainwright-host-file 1\.0 offers one of that name as well",
    ):
        add_frameworks(FRAMEWORKS, find_entry_points(rival, installed))


def test_whether_a_package_offers_anything_is_seen_without_reading_all_of_them(
    installed: Path, tmp_path: Path
) -> None:
    others = write_metadata(tmp_path / "others", "plain", "1.0", {"console_scripts": {"x": "y:z"}})
    (others / "bare-1.0.dist-info").mkdir()
    archive = tmp_path / "archive.zip"
    assert not has_offers([str(others), str(tmp_path / "absent")])
    assert not has_offers([str(archive)])
    assert has_offers([str(others), str(installed)])
    archive.touch()
    assert has_offers([str(archive)])


def test_the_folder_of_the_program_is_on_the_path_as_nothing(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(installed)
    assert has_offers([""])


# -- in the pure core --------------------------------------------------------------------------------------


def choosing(*jobs: Json, **parameters: Any) -> RuntimeSpec:
    policy = MLPolicy(num_nodes=1, custom=CustomPolicy(framework="hosts", parameters=parameters or None))
    return runtime_spec(*jobs, policy=policy)


def test_it_takes_part_beside_plain(example: tuple[Framework, ...]) -> None:
    chosen = select_frameworks(choosing().ml_policy, example)
    assert [framework.name for framework in chosen] == ["plain", "hosts"]
    assert [framework.name for framework in select_frameworks(None, example)] == ["plain"]


def test_its_objects_come_before_the_jobset_and_belong_to_the_job(example: tuple[Framework, ...]) -> None:
    config_map, job_set = render(train_job(Trainer(num_nodes=2)), runtime(choosing()), frameworks=example)
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


def test_its_additions_are_folded_into_the_pods(example: tuple[Framework, ...]) -> None:
    job = train_job(Trainer(num_nodes=2, env=[{"name": "A", "value": "1"}]))
    job_set = render(job, runtime(choosing(folder="/run/hosts")), frameworks=example)[-1]
    assert job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"] == {
        "containers": [
            container(
                env=[{"name": "A", "value": "1"}, {"name": "HOST_FILE", "value": "/run/hosts/hosts"}],
                volumeMounts=[{"name": "hosts", "mountPath": "/run/hosts", "readOnly": True}],
                terminationMessagePolicy="FallbackToLogsOnError",
            )
        ],
        "volumes": [{"name": "hosts", "configMap": {"name": "demo-hosts"}}],
    }


def test_its_errors_keep_the_job_from_being_rendered(example: tuple[Framework, ...]) -> None:
    job = train_job(Trainer(env=[{"name": "HOST_FILE", "value": "x"}]))
    with pytest.raises(RenderError) as caught:
        render(job, runtime(choosing(path="/run")), frameworks=example)
    assert [error.path for error in caught.value.errors] == ["spec.runtimeRef", "spec.trainer.env"]


def test_its_warnings_are_listed(example: tuple[Framework, ...]) -> None:
    assert list_framework_warnings(build_layout(train_job(), choosing()), example) == [
        "one node alone needs no host file"
    ]


def test_a_runtime_without_a_trainer_step_gets_nothing(example: tuple[Framework, ...]) -> None:
    spec = choosing(replicated_job(ancestor=None))
    assert [obj["kind"] for obj in render(train_job(), runtime(spec), frameworks=example)] == ["JobSet"]


# -- in the operator ----------------------------------------------------------------------------------------


class Lookup:
    """A cluster with one runtime."""

    def __init__(self, found: Runtime) -> None:
        self._found = found

    async def find_runtime(self, key: ObjectKey) -> Runtime | None:
        return self._found

    async def find_snapshot(self, train_job: TrainJob, name: str) -> Json | None:
        return None

    async def find_job_set(self, namespace: str, name: str) -> JobSet | None:
        return None

    def list_runtime_names(self, kind: str, namespace: str) -> list[str]:
        return []

    async def read_runtime(self, key: ObjectKey) -> Runtime | None:
        return self._found


async def ask(webhooks: Webhooks, path: str, body: Json) -> Json:
    async with TestClient(TestServer(webhooks.build_app())) as client:
        answer = await client.post(
            path, data=encode_review(body), headers={"Content-Type": "application/json"}
        )
        response: Json = (await answer.json())["response"]
        return response


@pytest.mark.parametrize("knows", [True, False])
async def test_webhooks_know_the_frameworks_of_their_process(
    example: tuple[Framework, ...], knows: bool
) -> None:
    world = Lookup(runtime(choosing()))
    frameworks = example if knows else FRAMEWORKS
    webhooks = Webhooks(world, world.read_runtime, lambda: NOW, frameworks=frameworks)
    (job_path,) = (webhook.path for webhook in VALIDATING_WEBHOOKS if webhook.kind == "TrainJob")
    job = await ask(webhooks, job_path, build_job(trainer={"numNodes": 2}))
    assert job["allowed"] is knows
    (path,) = (webhook.path for webhook in VALIDATING_WEBHOOKS if webhook.kind == "TrainingRuntime")
    body = build_runtime()
    body["spec"]["mlPolicy"] = {"custom": {"framework": "hosts"}}
    answer = await ask(webhooks, path, body)
    assert answer["allowed"] is True
    assert bool(answer.get("warnings")) is not knows


# -- the whole program -------------------------------------------------------------------------------------

FILE = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: with-hosts}
spec:
  mlPolicy: {numNodes: 1, custom: {framework: hosts, parameters: {folder: FOLDER}}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            backoffLimit: 0
            template:
              spec:
                restartPolicy: Never
                containers: [{name: node, image: python}]
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: demo}
spec:
  runtimeRef: {name: with-hosts}
  trainer:
    numNodes: 2
    command: [sh, -c, "cat $HOST_FILE; test $(wc -w < $HOST_FILE) = 2"]
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "hosts").mkdir()
    (folder / "job.yaml").write_text(FILE.replace("FOLDER", str(tmp_path / "hosts")))
    return Program(folder=folder, state=tmp_path / "state")


def seeing(*folders: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(str(folder) for folder in folders)}


def test_a_package_that_is_installed_is_found_by_render(program: Program, installed: Path) -> None:
    done = program.run("render", "-f", "job.yaml", "-o", "yaml", environment=seeing(installed))
    assert (done.returncode, done.stderr) == (0, "")
    assert [document["kind"] for document in yaml.safe_load_all(done.stdout)] == ["ConfigMap", "JobSet"]


def test_its_rules_are_part_of_admission(program: Program, installed: Path) -> None:
    text = (program.folder / "job.yaml").read_text().replace("{folder: ", "{foldre: ")
    (program.folder / "job.yaml").write_text(text)
    done = program.run("validate", "-f", "job.yaml", environment=seeing(installed))
    assert done.returncode == 2
    assert "spec.mlPolicy.custom.parameters.foldre of the runtime: unknown; known is folder" in done.stderr


def test_without_the_package_the_error_says_what_to_install(program: Program) -> None:
    done = program.run("validate", "-f", "job.yaml")
    assert done.returncode == 2
    assert (
        "spec.runtimeRef: framework hosts is not installed (none of other packages is); install the package "
        "that provides it"
    ) in done.stderr


def test_a_package_that_is_broken_stops_what_needs_frameworks_and_nothing_else(
    program: Program, tmp_path: Path
) -> None:
    broken = seeing(offer(tmp_path, "x", "no_such_module_anywhere:Y"))
    done = program.run("validate", "-f", "job.yaml", environment=broken)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: package other 2.0 offers a framework 'x'")
    assert program.run("list", environment=broken).returncode == 0


def test_a_job_of_an_installed_framework_runs_on_this_machine(program: Program, installed: Path) -> None:
    environment = seeing(installed)
    applied = program.run("apply", "-f", "job.yaml", environment=environment)
    assert applied.returncode == 0, applied.stderr
    waited = program.run("wait", "demo", "--for", "complete", "--timeout", "60s", environment=environment)
    logs = program.run("logs", "demo", environment=environment)
    assert waited.returncode == 0, waited.stderr + logs.stdout
    assert sorted(logs.stdout.splitlines()) == [
        "[node-0-0] demo-node-0-0.demo",
        "[node-0-0] demo-node-0-1.demo",
        "[node-0-1] demo-node-0-0.demo",
        "[node-0-1] demo-node-0-1.demo",
    ]
