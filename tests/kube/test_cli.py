"""The command line on a real API server, beside a real operator; we play the kubelet.

Logs, which only a kubelet has, are read in `tests/cli/targets/test_kubernetes_logs.py`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from cli.program import Program
from kube.control_plane import ControlPlane
from kube.operating import People, Running, eventually, operating, runtime, train_job
from trainwright.cli.job_rows import get_phase
from trainwright.cli.targets import Where
from trainwright.cli.targets.kubernetes import open_kubernetes
from trainwright.cli.targets.kubernetes_requests import ExplainingTransport, NotInstalled
from trainwright.cli.watching import watch_train_job
from trainwright.cluster.kube.config import Connection, load_connection
from trainwright.cluster.kube.requests import Request
from trainwright.cluster.kube.transport import AiohttpTransport
from trainwright.errors import NotFound

pytestmark = pytest.mark.usefixtures("crds")

JOB, RUNTIME = "trainjob.trainer.kubeflow.org", "trainingruntime.trainer.kubeflow.org"
SCRIPT = "import sys\nprint(sys.argv)\n"


class Caller:
    """Calls the program for one namespace of the cluster, beside everything else that goes on."""

    def __init__(self, program: Program, kubeconfig: Path, namespace: str) -> None:
        self.program = program
        self.namespace = namespace
        self.options = ("--on", "kubernetes", "--kubeconfig", str(kubeconfig), "-n", namespace)

    async def call(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self.program.run, verb, *self.options, *words)

    async def succeed(self, verb: str, *words: str) -> str:
        done = await self.call(verb, *words)
        assert done.returncode == 0, f"{verb} {words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, verb: str, *words: str) -> subprocess.Popen[str]:
        return self.program.start(verb, *self.options, *words)

    def write(self, name: str, *objects: object) -> str:
        self.program.write(name, yaml.safe_dump_all(objects))
        return name


@pytest.fixture
def connection(control_plane: ControlPlane, tmp_path: Path) -> Connection:
    return load_connection({"KUBECONFIG": str(control_plane.kubeconfig())}, tmp_path)


@pytest.fixture
def people(transport: AiohttpTransport, namespace: str) -> People:
    return People(transport, namespace)


@pytest.fixture
async def operator(connection: Connection, namespace: str) -> AsyncIterator[Running]:
    async with operating(connection, namespace) as running:
        yield running


@pytest.fixture
def caller(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Caller:
    folder = tmp_path / "work"
    folder.mkdir()
    program = Program(folder=folder, state=tmp_path / "state")
    return Caller(program, control_plane.kubeconfig(), namespace)


async def test_files_are_applied_listed_changed_and_deleted(
    caller: Caller, people: People, operator: Running
) -> None:
    files = caller.write("job.yaml", train_job(), runtime())
    done = await caller.call("apply", "-f", files)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"{RUNTIME}/plain created\n{JOB}/demo created\n"
    await people.set_pods("Running", 1)
    await people.until_phase("Running")

    done = await caller.call("apply", "-f", files)
    assert done.stderr == f"{RUNTIME}/plain unchanged\n{JOB}/demo unchanged\n"
    header, row = (await caller.succeed("list")).splitlines()
    assert header.split() == ["NAME", "STATE", "RUNTIME", "NODES", "PROGRESS", "AGE"]
    assert row.split()[:5] == ["demo", "Running", "plain", "1", "-"]
    assert (await caller.succeed("list", "-o", "name")) == f"{JOB}/demo\n"
    assert "State:     Running" in await caller.succeed("get", "demo")
    assert (await caller.call("wait", "demo", "--for", "running")).stderr == "demo is running\n"

    suspending = caller.start("suspend", "demo")
    await people.until_pods(0)
    assert await asyncio.to_thread(suspending.communicate) == ("", "demo suspended\n")
    assert (await caller.call("scale", "demo", "--nodes", "2")).stderr == "demo scaled to 2 training nodes\n"
    assert (await caller.call("resume", "demo")).stderr == "demo resumed\n"
    await people.until_pods(2)

    deleting = await caller.call("delete", "demo")
    assert deleting.returncode == 0
    # The garbage collector hears of a kind that was just installed up to half a minute later.
    assert deleting.stderr.removeprefix("waiting until the JobSet of demo is deleted\n") == "demo deleted\n"
    assert await people.find("TrainJob") is None
    assert await people.list("Pod") == []


async def test_a_stopped_job_has_failed_for_good_and_its_pods_are_gone(
    caller: Caller, people: People, operator: Running
) -> None:
    await people.create(runtime())
    await people.create(train_job())
    await people.set_pods("Running", 1)
    done = await caller.call("stop", "demo")
    assert (done.returncode, done.stderr) == (0, "demo stopped\n")
    assert (await people.until_phase("Failed"))["cause"]["reason"] == "Stopped"
    assert (await caller.call("stop", "demo")).stderr == "demo is already Failed\n"
    logs = await caller.call("logs", "demo")
    assert (logs.returncode, logs.stdout) == (0, "")
    assert logs.stderr == "no pod of demo is left, nor what it printed; the job is Failed\n"
    done = await caller.call("wait", "demo", "--for", "complete")
    assert done.returncode == 1
    assert "Stopped" in done.stderr


async def test_explain_shows_every_layer_of_the_cluster(
    caller: Caller, people: People, operator: Running
) -> None:
    await people.create(runtime())
    await people.create(train_job())
    await people.set_pods("Failed", 1, exit_code=3, message="ValueError: no data")
    await people.until_phase("Failed")
    said = await caller.succeed("explain", "demo")
    assert "ValueError: no data" in said
    layers = [line.split()[0] for line in said.splitlines() if line and line[0].isupper()]
    assert [layer for layer in layers if layer != "Container"] == [
        "TrainJob", "Runtime", "JobSet", "Job", "Pod", "Node",
    ]  # fmt: skip


async def test_a_job_that_nobody_looks_at_says_so(caller: Caller, people: People) -> None:
    await people.create(runtime())
    await people.create(train_job())
    done = await caller.call("wait", "demo", "--for", "running", "--timeout", "6s")
    assert done.returncode == 1
    assert "is the operator running?" in done.stderr
    assert "is the operator running?" in await caller.succeed("explain", "demo")


async def test_run_sends_the_directory_and_the_job_owns_it(
    caller: Caller, people: People, operator: Running
) -> None:
    caller.program.write("train.py", SCRIPT)
    await people.create(runtime(nodes=2))
    done = await caller.call("run", "train.py", "--runtime", "plain", "--detach", "--", "$(HOME)")
    assert done.returncode == 0, done.stderr
    name = done.stdout.strip()
    assert f"`trainwright logs {name} --follow --on kubernetes -n {people.namespace}`" in done.stderr
    job = await people.find("TrainJob", name)
    assert job is not None
    (carrier,) = [item for item in await people.list("ConfigMap") if "binaryData" in item]
    assert [owner["uid"] for owner in carrier["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
    (pod, _) = await people.until_pods(2, name)
    container = pod["spec"]["containers"][0]
    assert container["command"][:2] == ["sh", "-c"]
    assert container["command"][3:] == ["trainwright", "python3", "train.py"]
    assert container["args"] == ["$$(HOME)"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    sources = volumes["trainwright-archive"]["projected"]["sources"]
    assert [source["configMap"]["name"] for source in sources] == [carrier["metadata"]["name"]]

    words = ("--runtime", "plain", "--detach", "--name", "again", "--queue", "team-a")
    second = (await caller.succeed("run", "train.py", *words)).strip()
    queued = await people.find("TrainJob", second)
    assert queued is not None
    assert queued["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team-a"}
    (carrier,) = [item for item in await people.list("ConfigMap") if "binaryData" in item]
    assert {owner["name"] for owner in carrier["metadata"]["ownerReferences"]} == {name, second}
    await caller.succeed("delete", name, second)

    async def is_collected() -> bool:
        return not [item for item in await people.list("ConfigMap") if "binaryData" in item]

    await eventually(is_collected)


async def test_a_run_that_is_refused_leaves_nothing_behind(caller: Caller, people: People) -> None:
    caller.program.write("train.py", SCRIPT)
    await people.create(runtime())
    await people.create(train_job())
    done = await caller.call("run", "train.py", "--runtime", "plain", "--name", "demo")
    assert done.returncode == 2
    assert 'trainjobs.trainer.kubeflow.org "demo" already exists' in done.stderr
    assert not [item for item in await people.list("ConfigMap") if "binaryData" in item]


async def test_a_shipped_runtime_that_is_not_installed_says_what_to_do(caller: Caller) -> None:
    caller.program.write("train.py", SCRIPT)
    done = await caller.call("run", "train.py", "--runtime", "torch-distributed")
    assert done.returncode == 3
    assert "not installed" in done.stderr
    assert "trainwright install" in done.stderr


async def test_runtimes_are_those_of_the_cluster(caller: Caller, people: People) -> None:
    await people.create(runtime("mine"))
    listed = json.loads(await caller.succeed("runtimes", "-o", "json"))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["mine"]


async def test_fields_that_somebody_else_set_are_not_taken_over_unasked(
    caller: Caller, people: People
) -> None:
    await people.create(runtime())
    theirs = train_job(suspend=True, trainer={"numNodes": 2})
    body = {**theirs, "metadata": {**theirs["metadata"], "namespace": caller.namespace}}
    await people.cluster.apply(body, "somebody-else")
    mine = caller.write("mine.yaml", train_job(suspend=True, trainer={"numNodes": 3}), runtime("other"))
    done = await caller.call("apply", "-f", mine)
    assert done.returncode == 1
    assert 'conflict with "somebody-else"' in done.stderr
    assert ".spec.trainer.numNodes" in done.stderr
    assert "--force-conflicts" in done.stderr
    assert await people.find("TrainingRuntime", "other") is None  # nothing half-made
    await caller.succeed("apply", "-f", mine, "--force-conflicts")
    job = await people.find("TrainJob")
    assert job is not None
    assert job["spec"]["trainer"]["numNodes"] == 3


async def test_a_file_goes_over_what_the_command_line_set_itself(caller: Caller, people: People) -> None:
    file = caller.write("job.yaml", train_job(suspend=True, trainer={"numNodes": 2}), runtime())
    await caller.succeed("apply", "-f", file)
    await caller.succeed("scale", "demo", "--nodes", "4")
    await caller.succeed("apply", "-f", file)
    job = await people.find("TrainJob")
    assert job is not None
    assert job["spec"]["trainer"]["numNodes"] == 2


async def test_what_the_api_server_refuses_is_told_with_its_file_and_nothing_is_written(
    caller: Caller, people: People
) -> None:
    good, bad = runtime("good"), train_job("x" * 63)
    done = await caller.call(
        "apply", "-f", caller.write("good.yaml", good), "-f", caller.write("bad.yaml", bad)
    )
    assert done.returncode == 2
    assert done.stderr.startswith("bad.yaml")
    assert await people.find("TrainingRuntime", "good") is None


async def test_what_the_cluster_alone_refuses_is_told_with_its_file_and_nothing_is_written(
    caller: Caller, people: People, control_plane: ControlPlane
) -> None:
    policies = "/apis/admissionregistration.k8s.io/v1"
    name = f"no-forbidden-jobs-{caller.namespace}"
    rule = {"apiGroups": ["trainer.kubeflow.org"], "apiVersions": ["*"], "resources": ["trainjobs"]}
    policy = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [{**rule, "operations": ["CREATE", "UPDATE"]}]},
            "validations": [{"expression": "object.metadata.name != 'forbidden'", "message": "not that one"}],
        },
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": caller.namespace}}
    binding = {
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    }
    control_plane.call("POST", f"{policies}/validatingadmissionpolicies", policy)
    control_plane.call("POST", f"{policies}/validatingadmissionpolicybindings", binding)
    try:
        await people.create(runtime())
        files = (
            *("-f", caller.write("other.yaml", runtime("other"), train_job("fine"))),
            *("-f", caller.write("bad.yaml", train_job("forbidden"))),
        )

        async def is_refused() -> subprocess.CompletedProcess[str] | None:  # once the policy is compiled
            done = await caller.call("apply", *files)
            if done.returncode == 0:
                await caller.succeed("delete", "fine", "forbidden")
                await people.delete("TrainingRuntime", "other")
                return None
            return done

        done = await eventually(is_refused, seconds=60)
    finally:
        control_plane.call("DELETE", f"{policies}/validatingadmissionpolicybindings/{name}")
        control_plane.call("DELETE", f"{policies}/validatingadmissionpolicies/{name}")
    assert done.returncode == 2
    assert done.stderr.startswith("bad.yaml: ")
    assert "not that one" in done.stderr
    assert await people.list("TrainJob") == []
    assert await people.find("TrainingRuntime", "other") is None


@pytest.mark.timeout(300)
async def test_waiting_outlives_a_restart_of_the_api_server(
    caller: Caller, people: People, operator: Running, control_plane: ControlPlane
) -> None:
    await people.create(runtime())
    await people.create(train_job())
    await people.set_pods("Running", 1)
    await people.until_phase("Running")
    where = Where(kubeconfig=control_plane.kubeconfig(), namespace=caller.namespace)
    phases: list[str | None] = []

    async def watch() -> None:
        async with open_kubernetes(where) as target:
            async for seen in watch_train_job(target, people.key("TrainJob")):
                phases.append(seen and get_phase(seen))
                if phases[-1] == "Complete":
                    return

    async with asyncio.timeout(200):  # an API server takes long to start beside other tests
        watching = asyncio.create_task(watch())
        await eventually(lambda: _is_true(bool(phases)))
        await asyncio.to_thread(control_plane.stop_apiserver)
        await asyncio.to_thread(control_plane.start_apiserver)
        await people.set_pods("Succeeded", 1)
        await watching
    assert phases[0] == "Running"


async def _is_true(value: bool) -> bool:
    return value


async def test_a_job_that_does_not_exist_is_not_found(caller: Caller, people: People) -> None:
    await people.create(train_job("train"))
    done = await caller.call("get", "trian")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "Error: TrainJob 'trian' does not exist; did you mean train?\n"


async def test_the_namespace_is_that_of_the_context(
    caller: Caller, people: People, control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = yaml.safe_load(control_plane.kubeconfig().read_text())
    config["contexts"].append(
        {"name": "mine", "context": {**config["contexts"][0]["context"], "namespace": caller.namespace}}
    )
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    await people.create(train_job())
    program = caller.program
    words = ("list", "--on", "kubernetes", "-o", "name")
    environment = {"KUBECONFIG": str(path)}
    here = await asyncio.to_thread(program.run, *words, environment=environment)
    assert "demo" not in here.stdout
    there = await asyncio.to_thread(program.run, *words, "--context", "mine", environment=environment)
    assert there.stdout == f"{JOB}/demo\n"


async def test_nobody_is_deleted_twice(caller: Caller, people: People) -> None:
    await people.create(train_job())
    await caller.succeed("delete", "demo")
    with pytest.raises(NotFound):
        await people.cluster.get(people.key("TrainJob"))
    assert (await caller.call("delete", "demo")).returncode == 3


@pytest.mark.parametrize("path", ["v1alpha1/namespaces/default/trainjobz", "v9/namespaces/default/trainjobs"])
async def test_a_kind_that_the_server_does_not_serve_means_that_nothing_is_installed(
    transport: AiohttpTransport, path: str
) -> None:
    explaining = ExplainingTransport(transport, "https://cluster")
    with pytest.raises(NotInstalled, match="trainwright install"):
        await explaining.request(Request(method="GET", path=f"/apis/trainer.kubeflow.org/{path}"))


async def test_a_job_that_is_not_there_does_not_mean_that(transport: AiohttpTransport) -> None:
    explaining = ExplainingTransport(transport, "https://cluster")
    path = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/nope"
    with pytest.raises(NotFound, match="nope"):
        await explaining.request(Request(method="GET", path=path))


async def test_every_character_is_applied_as_it_is(people: People, caller: Caller) -> None:
    texts = [*map(chr, range(1, 0xA1)), "a\u2028b\u2029c", "\ufeff", "\ufffe\uffff", "\U0001f600"]
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "texts", "namespace": caller.namespace},
        "data": {f"text-{number}": f"<{text}>" for number, text in enumerate(texts)},
    }
    await people.cluster.apply(body, "test")
    stored = await people.find("ConfigMap", "texts")
    assert stored is not None
    assert stored["data"] == body["data"]
