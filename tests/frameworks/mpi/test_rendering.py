"""MPI jobs as a whole: who gets what of the TrainJob, in which order, how large, and always the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from frameworks.mpi.builders import launcher, mpi_runtime, node
from template.builders import container, runtime, train_job
from trainwright.admission import Verdict, default_train_job, validate_runtime, validate_train_job
from trainwright.api.encoding import encode_canonical
from trainwright.api.meta import Json
from trainwright.api.pod import ResourceRequirements
from trainwright.api.reading import read_objects
from trainwright.api.runtime import ClusterTrainingRuntime, MPIPolicy, RuntimeSpec, TrainingRuntime
from trainwright.api.trainjob import Trainer, TrainJob
from trainwright.render import render

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MEBIBYTE = 1024 * 1024
AS_NODE = MPIPolicy(run_launcher_as_node=True)
RUNTIMES = sorted((Path(__file__).resolve().parents[2] / "data/mpi").glob("*.yaml"))


def render_job(spec: RuntimeSpec, name: str = "demo", **trainer: Any) -> list[Json]:
    return render(train_job(Trainer(**trainer), name=name), runtime(spec))


def list_jobs(objects: list[Json]) -> list[Json]:
    jobs: list[Json] = objects[-1]["spec"]["replicatedJobs"]
    return jobs


def get_container(objects: list[Json], name: str) -> Json:
    [job] = [job for job in list_jobs(objects) if job["name"] == name]
    [found] = job["template"]["spec"]["template"]["spec"]["containers"]
    return found


def test_what_is_mounted_is_written_before_the_job_set() -> None:
    objects = render_job(mpi_runtime(), num_nodes=2)
    assert [(obj["kind"], obj["metadata"]["name"]) for obj in objects] == [
        ("Secret", "demo-mpi-ssh-auth"),
        ("ConfigMap", "demo-mpi-hostfile"),
        ("JobSet", "demo"),
    ]
    owner = objects[-1]["metadata"]["ownerReferences"]
    assert [obj["metadata"]["ownerReferences"] for obj in objects[:-1]] == [owner, owner]


def test_keys_are_in_nothing_that_is_rendered() -> None:
    """The shell makes them when it creates the Secret."""
    secret = render_job(mpi_runtime())[0]
    assert secret.keys() == {"apiVersion", "kind", "metadata", "type", "immutable"}
    assert secret["metadata"]["annotations"] == {"trainer.kubeflow.org/generated-data": "ssh-key"}


def test_b071_the_image_is_for_all_and_the_command_for_the_launcher() -> None:
    spec = mpi_runtime(
        node(container(command=["/usr/sbin/sshd"], args=["-De"]), ancestor="trainer"),
        launcher(container(command=["mpirun"], args=["old"]), ancestor=None),
    )
    objects = render_job(
        spec, num_nodes=2, image="u:2", command=["mpirun", "app"], env=[{"name": "A", "value": "1"}]
    )
    workers, leader = get_container(objects, "node"), get_container(objects, "launcher")
    assert (workers["image"], leader["image"]) == ("u:2", "u:2")
    assert (workers["command"], workers["args"]) == (["/usr/sbin/sshd"], ["-De"])
    assert (leader["command"], "args" in leader) == (["mpirun", "app"], False)
    assert {"name": "A", "value": "1"} in workers["env"]
    assert {"name": "A", "value": "1"} in leader["env"]


def test_b071_arguments_alone_leave_the_runtimes_command() -> None:
    spec = mpi_runtime(node(), launcher(container(command=["mpirun"], args=["old"])))
    leader = get_container(render_job(spec, args=["new"]), "launcher")
    assert (leader["command"], leader["args"]) == (["mpirun"], ["new"])


@pytest.mark.parametrize(
    ("policy", "expected"), [(MPIPolicy(), {"node"}), (AS_NODE, {"node", "launcher"})], ids=["apart", "node"]
)
def test_resources_are_for_the_pods_that_train(policy: MPIPolicy, expected: set[str]) -> None:
    objects = render_job(
        mpi_runtime(policy=policy), resources_per_node=ResourceRequirements(limits={"cpu": "2"})
    )
    assert {name for name in ("node", "launcher") if "resources" in get_container(objects, name)} == expected


# The launcher in the runtime, policy, numNodes -> pods by replicated job.
COUNTS: dict[str, tuple[Json, MPIPolicy, int, dict[str, int]]] = {
    "apart": (launcher(), MPIPolicy(), 3, {"node": 3, "launcher": 1}),
    "a node": (launcher(), AS_NODE, 3, {"node": 2, "launcher": 1}),
    "one node, which is the launcher": (launcher(), AS_NODE, 1, {"node": 0, "launcher": 1}),
    "never two launchers": (
        launcher(replicas=2, ancestor=None, job={"parallelism": 4, "completions": 4}),
        MPIPolicy(),
        2,
        {"node": 2, "launcher": 1},
    ),
}


@pytest.mark.parametrize(("leader", "policy", "num_nodes", "expected"), COUNTS.values(), ids=COUNTS)
def test_counts(leader: Json, policy: MPIPolicy, num_nodes: int, expected: dict[str, int]) -> None:
    jobs = list_jobs(render_job(mpi_runtime(node(), leader, policy=policy), num_nodes=num_nodes))
    for count in ("parallelism", "completions"):
        assert {job["name"]: job["template"]["spec"][count] for job in jobs} == expected
    assert [job.get("replicas", 1) for job in jobs] == [1, 1]


def test_b074_the_launcher_starts_when_the_nodes_are_ready_wherever_it_stands() -> None:
    first, second = list_jobs(render_job(mpi_runtime(launcher(dependsOn=[]), node()), num_nodes=2))
    assert (first["name"], second["name"]) == ("node", "launcher")
    assert second["dependsOn"] == [{"name": "node", "status": "Ready"}]


def test_r04_ten_thousand_nodes_with_the_longest_name_fit() -> None:
    spec = mpi_runtime(policy=AS_NODE)
    longest = "a" * (63 - len("-launcher-0-0-xxxxx"))
    for name, refused in ((longest, []), (longest + "a", ["metadata.name"])):
        job = default_train_job(train_job(Trainer(num_nodes=10_000), name=name), None, NOW)
        errors = validate_train_job(job, runtime(spec)).errors
        assert [error.path for error in errors] == refused
    objects = render_job(spec, name=longest, num_nodes=10_000, num_proc_per_node=128)
    assert max(len(json.dumps(obj)) for obj in objects) < MEBIBYTE
    hosts = "".join(obj["data"]["hostfile"] for obj in objects if obj["kind"] == "ConfigMap")
    assert hosts.count("\n") == 10_000


@pytest.mark.parametrize("file", RUNTIMES, ids=lambda path: path.stem)
def test_a_runtime_of_each_implementation_is_good_and_renders_the_same_bytes_each_time(file: Path) -> None:
    [read] = read_objects(file.read_text(), str(file)).objects
    given = read.value
    assert isinstance(given, ClusterTrainingRuntime)
    assert validate_runtime(given) == Verdict()
    job = default_train_job(train_job(Trainer(num_nodes=2, command=["mpirun", "app"])), None, NOW)
    assert validate_train_job(job, given) == Verdict()
    first, second = (encode_canonical(render(job, given)) for _ in range(2))
    assert first == second


def test_there_is_a_runtime_of_each_implementation() -> None:
    assert [file.stem for file in RUNTIMES] == ["intel-mpi", "mpich", "open-mpi-4", "open-mpi-5"]


def test_the_runtime_and_job_of_the_users_page_are_good() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/how-to/mpi.md").read_text()
    given, job = (
        read.value for read in read_objects(page.split("```")[1].removeprefix("yaml"), "page").objects
    )
    assert isinstance(given, TrainingRuntime)
    assert isinstance(job, TrainJob)
    assert validate_runtime(given) == Verdict()
    assert validate_train_job(default_train_job(job, None, NOW), given) == Verdict()
