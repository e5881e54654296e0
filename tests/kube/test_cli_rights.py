"""The command line of people with few rights: what they may do works, what they may not is named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import yaml

from cli.program import Program
from kube.control_plane import ControlPlane
from kube.operating import People, Running, operating, runtime, train_job
from kube.test_cli import Caller
from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.transport import AiohttpTransport
from trainwright.manifests.access import EDIT, VIEW_CLUSTER_RUNTIMES, build_user_access
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


@pytest.fixture
def editor(control_plane: ControlPlane, stranger: Caller) -> Iterator[Caller]:
    """The same, with the rights of the shipped role of users, in one namespace, and nothing else."""
    roles = {
        role["metadata"]["name"]: role
        for role in build_user_access(InstallSettings())
        if role["kind"] == "ClusterRole"
    }
    namespace = stranger.namespace
    subject = {"kind": "ServiceAccount", "name": "eve", "namespace": namespace}
    own = {"metadata": {"name": "edit"}, "rules": roles[EDIT]["rules"]}
    control_plane.call("POST", f"{RBAC}/namespaces/{namespace}/roles", own)
    bound = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "edit"}
    binding = {"metadata": {"name": "edit"}, "roleRef": bound, "subjects": [subject]}
    control_plane.call("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    # What everybody may read is not of one namespace: named after it, and taken away again.
    name = f"read-{namespace}"
    shared = {"metadata": {"name": name}, "rules": roles[VIEW_CLUSTER_RUNTIMES]["rules"]}
    control_plane.call("POST", f"{RBAC}/clusterroles", shared)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    control_plane.call(
        "POST",
        f"{RBAC}/clusterrolebindings",
        {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]},
    )
    yield stranger
    control_plane.call("DELETE", f"{RBAC}/clusterrolebindings/{name}")
    control_plane.call("DELETE", f"{RBAC}/clusterroles/{name}")


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
    layers = {line.split()[0]: line for line in said.splitlines() if line and line[0].isupper()}
    assert "you have no right to see it" in layers["JobSet"]
    assert "you have no right to see it" in layers["Job"]
    assert "Running" in layers["Pod"]
    await editor.succeed("stop", "demo")
    assert (
        await editor.call("get", "dmo")
    ).stderr == "Error: TrainJob 'dmo' does not exist; did you mean demo?\n"
    await editor.succeed("delete", "demo")
    editor.program.write("train.py", "")
    await editor.succeed("run", "train.py", "--no-code", "--runtime", "plain", "--detach", "--name", "sent")


async def test_without_the_right_to_make_config_maps_no_code_is_sent_and_nothing_is_made(
    editor: Caller, people: People
) -> None:
    await people.create(runtime())
    editor.program.write("train.py", "")
    done = await editor.call("run", "train.py", "--runtime", "plain")
    assert (done.returncode, done.stdout) == (1, "")
    assert 'cannot create resource "configmaps"' in done.stderr
    assert "--code-volume" in done.stderr
    assert await people.list("TrainJob") == []
