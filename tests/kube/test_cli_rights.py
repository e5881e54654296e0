"""The command line of people with few rights: what they may do works, what they may not is named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from cli.program import Program
from kube.control_plane import ControlPlane
from kube.operating import People, Running, operating, runtime, train_job
from kube.test_cli import Caller
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.transport import AiohttpTransport
from trainwright.manifests.access import EDIT, VIEW, VIEW_CLUSTER_RUNTIMES, build_user_access
from trainwright.manifests.settings import InstallSettings

pytestmark = pytest.mark.usefixtures("crds")

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def people(transport: AiohttpTransport, namespace: str) -> People:
    return People(transport, namespace)


@pytest.fixture
async def operator(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Running]:
    connection = load_connection({"KUBECONFIG": str(control_plane.kubeconfig())}, tmp_path)
    async with operating(connection, namespace) as running:
        yield running


@pytest.fixture
def stranger(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Caller:
    """Somebody whom the cluster knows, without any rights."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    control_plane.call("POST", accounts, {"metadata": {"name": "eve"}})
    token = control_plane.call("POST", f"{accounts}/eve/token", {"spec": {}})["status"]["token"]
    config = yaml.safe_load(control_plane.kubeconfig().read_text())
    config["users"][0]["user"] = {"token": token}
    kubeconfig = tmp_path / "eve"
    kubeconfig.write_text(yaml.safe_dump(config))
    folder = tmp_path / "work"
    folder.mkdir()
    return Caller(Program(folder=folder, state=tmp_path / "state"), kubeconfig, namespace)


GivesRole = Callable[[str, Sequence[Json]], Caller]


@pytest.fixture
def give(control_plane: ControlPlane, stranger: Caller) -> Iterator[GivesRole]:
    """Give the stranger rules in one namespace, and what everybody may read; nothing else."""
    namespace = stranger.namespace
    subject = {"kind": "ServiceAccount", "name": "eve", "namespace": namespace}
    # What everybody may read is not of one namespace: named after it, and taken away again.
    shared = f"read-{namespace}"

    def give_rules(role: str, rules: Sequence[Json]) -> Caller:
        own = {"metadata": {"name": role}, "rules": list(rules)}
        control_plane.call("POST", f"{RBAC}/namespaces/{namespace}/roles", own)
        bound = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
        binding = {"metadata": {"name": role}, "roleRef": bound, "subjects": [subject]}
        control_plane.call("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
        readable = {"metadata": {"name": shared}, "rules": get_rules(VIEW_CLUSTER_RUNTIMES)}
        control_plane.call("POST", f"{RBAC}/clusterroles", readable)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": shared}
        everywhere = {"metadata": {"name": shared}, "roleRef": reference, "subjects": [subject]}
        control_plane.call("POST", f"{RBAC}/clusterrolebindings", everywhere)
        return stranger

    yield give_rules
    control_plane.call("DELETE", f"{RBAC}/clusterrolebindings/{shared}")
    control_plane.call("DELETE", f"{RBAC}/clusterroles/{shared}")


@pytest.fixture
def editor(give: GivesRole) -> Caller:
    """Somebody with the shipped role of those who run jobs."""
    return give("edit", get_rules(EDIT))


@pytest.fixture
def viewer(give: GivesRole) -> Caller:
    """Somebody with the shipped role of those who look on."""
    return give("view", get_rules(VIEW))


def get_rules(role: str, *, without: Sequence[str] = ()) -> list[Json]:
    """The rules of a shipped role, without those about some resources."""
    [rules] = [
        obj["rules"]
        for obj in build_user_access(InstallSettings())
        if (obj["kind"], obj["metadata"]["name"]) == ("ClusterRole", role)
    ]
    return [rule for rule in rules if not set(rule["resources"]) & set(without)]


def list_layers(explanation: str) -> dict[str, str]:
    """What each layer says."""
    lines = explanation.partition("\n\n")[2].splitlines()
    return {line.split()[0]: line for line in lines if line and line[0].isupper()}


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["list"], 'cannot list resource "trainjobs"'),
        (["list", "-A"], 'cannot list resource "trainjobs"'),
        (["get", "demo"], 'cannot get resource "trainjobs"'),
        (["delete", "demo"], 'cannot get resource "trainjobs"'),
        (["runtimes"], 'cannot list resource "trainingruntimes"'),
    ],
)
async def test_a_missing_right_is_named(stranger: Caller, words: list[str], missing: str) -> None:
    done = await stranger.call(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert missing in done.stderr
    assert "Traceback" not in done.stderr


async def test_the_shipped_role_is_enough_to_look_after_jobs(
    editor: Caller, people: People, operator: Running
) -> None:
    await people.create(runtime())
    file = editor.write("job.yaml", train_job())
    await editor.succeed("apply", "-f", file)
    await people.set_pods("Running", 1)
    await people.until_phase("Running")
    await editor.succeed("apply", "-f", file)
    assert "demo" in await editor.succeed("list")
    assert "Running" in await editor.succeed("get", "demo")
    await editor.succeed("wait", "demo", "--for", "running")
    said = await editor.succeed("explain", "demo")
    assert "no right" not in said
    assert set(list_layers(said)) >= {"TrainJob", "Runtime", "JobSet", "Job", "Pod"}
    await editor.succeed("stop", "demo")
    assert (
        await editor.call("get", "dmo")
    ).stderr == "Error: TrainJob 'dmo' does not exist; did you mean demo?\n"
    await editor.succeed("delete", "demo")


async def test_the_shipped_role_is_enough_to_send_code_along(
    editor: Caller, people: People, operator: Running
) -> None:
    await people.create(runtime())
    editor.program.write("train.py", "print('hello')\n")
    words = ("train.py", "--runtime", "plain", "--detach")
    await editor.succeed("run", *words, "--name", "first")
    [carrier] = [obj for obj in await people.list("ConfigMap") if "binaryData" in obj]
    assert [owner["name"] for owner in carrier["metadata"]["ownerReferences"]] == ["first"]
    await editor.succeed("run", *words, "--name", "second")
    [carrier] = [obj for obj in await people.list("ConfigMap") if "binaryData" in obj]
    assert {owner["name"] for owner in carrier["metadata"]["ownerReferences"]} == {"first", "second"}
    assert (await editor.call("run", *words, "--name", "first")).returncode != 0
    assert len([obj for obj in await people.list("ConfigMap") if "binaryData" in obj]) == 1


async def test_whoever_looks_on_sees_all_and_changes_nothing(
    viewer: Caller, people: People, operator: Running
) -> None:
    await people.create(runtime())
    await people.create(train_job())
    await people.set_pods("Running", 1)
    await people.until_phase("Running")
    assert "demo" in await viewer.succeed("list")
    said = await viewer.succeed("explain", "demo")
    assert "no right" not in said
    assert set(list_layers(said)) >= {"TrainJob", "Runtime", "JobSet", "Job", "Pod"}
    for verb, missing in (("delete", "cannot delete"), ("suspend", "cannot patch"), ("stop", "cannot patch")):
        done = await viewer.call(verb, "demo")
        assert (done.returncode, done.stdout) == (1, "")
        assert f'{missing} resource "trainjobs"' in done.stderr
    viewer.program.write("train.py", "")
    done = await viewer.call("run", "train.py", "--runtime", "plain", "--no-code")
    assert 'cannot create resource "trainjobs"' in done.stderr


async def test_a_layer_that_may_not_be_seen_is_named(
    give: GivesRole, people: People, operator: Running
) -> None:
    caller = give("view", get_rules(VIEW, without=["jobs", "jobsets", "workloads"]))
    await people.create(runtime())
    queued = train_job()
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a"}
    await people.create(queued)
    await people.until_pods(1)
    layers = list_layers(await caller.succeed("explain", "demo"))
    for kind in ("JobSet", "Job", "Workload"):
        assert "you have no right to see it" in layers[kind]
    assert "Pending" in layers["Pod"]


async def test_without_the_right_to_make_config_maps_no_code_is_sent_and_nothing_is_made(
    give: GivesRole, people: People
) -> None:
    editor = give("edit", get_rules(EDIT, without=["configmaps"]))
    await people.create(runtime())
    editor.program.write("train.py", "")
    done = await editor.call("run", "train.py", "--runtime", "plain")
    assert (done.returncode, done.stdout) == (1, "")
    assert 'cannot create resource "configmaps"' in done.stderr
    assert "--code-volume" in done.stderr
    assert await people.list("TrainJob") == []
