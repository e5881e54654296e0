"""Installing and uninstalling on a real API server, with a control plane of its own: kinds come and go here.

There are no nodes and no Deployment controller, so the tests say themselves when the operator is ready.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cli.program import Program
from kube.control_plane import ControlPlane
from reviews import build_job, build_runtime
from trainwright import __version__
from trainwright.api.encoding import build_object
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.transport import AiohttpTransport
from trainwright.errors import TargetUnreachable
from trainwright.manifests.access import EDIT, VIEW
from trainwright.manifests.installation import build_installation
from trainwright.manifests.names import CERTIFICATE_SECRET, OPERATOR, OPERATOR_JOBS
from trainwright.manifests.settings import InstallSettings
from trainwright.operator.followed_object import Place
from trainwright.operator.install import (
    InstallationIncomplete,
    InstallationRefused,
    apply_installation,
    check_cluster,
    remove_other_access,
    wait_until_ready,
)
from trainwright.operator.installed_objects import (
    apply_object,
    build_place,
    delete_object,
    find_place,
    get_object,
    list_access,
    list_objects,
    patch_object,
)
from trainwright.operator.uninstall import find_namespace, plan_removal, remove
from trainwright.runtimes import load_shipped_runtimes

JOBSET_CRD = build_place("CustomResourceDefinition", "jobsets.jobset.x-k8s.io")


pytestmark = pytest.mark.slow

# An API server takes its time to take kinds away: 18 s for three on a machine with 15 processes a core. What
# a finalizer holds stays for ever.
CLEAN_UP_SECONDS = 120


def build_objects(settings: InstallSettings) -> list[Json]:
    return build_installation(settings, [build_object(one) for one in load_shipped_runtimes().values()])


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    programs = os.environ.get("TRAINWRIGHT_CLUSTER_PROGRAMS")
    if not programs:
        pytest.skip("NOT TESTED: no Kubernetes; `make test` builds one where Go is installed")
    with ControlPlane(Path(programs)) as plane:
        yield plane


class Admin:
    """Somebody with all rights, and what the program told them.

    `home` is the namespace of the operator, `users` and `peers` are those of others; each test has its own.
    """

    def __init__(self, transport: AiohttpTransport) -> None:
        self.transport = transport
        self.home = f"home-{uuid.uuid4().hex[:6]}"
        self.users, self.peers = f"{self.home}-users", f"{self.home}-peers"
        self.settings = InstallSettings(namespace=self.home)
        self.deployment = build_place("Deployment", OPERATOR, self.home)
        self.told: list[str] = []

    @property
    def objects(self) -> list[Json]:
        """What an installation consists of."""
        return build_objects(self.settings)

    @property
    def crds(self) -> list[Json]:
        return [obj for obj in self.objects if obj["kind"] == "CustomResourceDefinition"]

    async def install(self, *, replace: bool = False, **changes: Any) -> list[str]:
        """Check and apply; return what became of each object."""
        self.told = []
        settings = msgspec.structs.replace(self.settings, **changes)
        objects = build_objects(settings)
        await check_cluster(self.transport, settings, objects, replace=replace)
        await apply_installation(self.transport, objects, self.told.append)
        await remove_other_access(self.transport, objects, self.told.append)
        return [line.rsplit(" ", 1)[1] for line in self.told]

    async def uninstall(self, *, delete_jobs: bool = False) -> None:
        self.told = []
        where = await find_namespace(self.transport)
        removal = await plan_removal(self.transport, where, delete_jobs=delete_jobs)
        await remove(self.transport, removal, self.told.append)

    async def list_present(self) -> list[str]:
        """Which objects of an installation there are."""
        places = [find_place(obj) for obj in self.objects]
        return [str(place) for place in places if await get_object(self.transport, place) is not None]

    async def list_access(self) -> list[str]:
        """Return the roles and bindings of ours, of all namespaces, in order."""
        return sorted(str(place) for place in await list_access(self.transport))

    async def get(self, place: Place) -> Json:
        found = await get_object(self.transport, place)
        assert found is not None, f"there is no {place}"
        return found

    async def apply(self, obj: Json) -> None:
        await apply_object(self.transport, obj)

    async def create_namespace(self, name: str) -> None:
        await self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def create_deployment(self, namespace: str) -> None:
        """Make the Deployment of an operator that is not ours."""
        await self.create_namespace(namespace)
        [deployment] = [obj for obj in self.objects if obj["kind"] == "Deployment"]
        await self.apply({**deployment, "metadata": {"name": OPERATOR, "namespace": namespace}})

    async def create_jobs(self, *names: str) -> None:
        """Make TrainJobs and a runtime of a user; the kinds must be there, and no webhooks."""
        await self.create_namespace(self.users)
        for obj in (build_runtime("users-own"), *(build_job(name) for name in names)):
            await self.apply({**obj, "metadata": {"name": obj["metadata"]["name"], "namespace": self.users}})

    async def clean_up(self) -> None:
        """Remove everything; only the kinds, whose names all tests share, are waited for."""
        runtimes = build_place("ClusterTrainingRuntime", "plain")
        if await get_object(self.transport, runtimes) is not None:
            await patch_object(self.transport, runtimes, {"metadata": {"finalizers": []}})
        for obj in reversed(self.objects):
            await delete_object(self.transport, find_place(obj))
        await delete_object(self.transport, build_place("Deployment", OPERATOR, self.peers))
        for name in (self.home, self.users, self.peers):
            await delete_object(self.transport, build_place("Namespace", name))
        for crd in self.crds:
            await until_gone(self, find_place(crd))


@pytest.fixture
async def admin(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Admin]:
    connection = load_connection({"KUBECONFIG": str(plane.kubeconfig())}, tmp_path)
    async with AiohttpTransport(connection) as transport:
        admin = Admin(transport)
        yield admin
        await admin.clean_up()


# -- installing ----------------------------------------------------------------------------------------------


async def test_everything_is_applied_and_applying_again_changes_nothing(admin: Admin) -> None:
    first = await admin.install()
    again = await admin.install()

    assert set(first) == {"created"}
    assert len(first) == len(admin.objects)
    assert await admin.list_present() == [str(find_place(obj)) for obj in admin.objects]
    assert again == ["kept", *["unchanged"] * (len(first) - 1)]


async def test_another_setting_changes_only_what_it_concerns(admin: Admin) -> None:
    await admin.install()
    await admin.install(replicas=3)

    changed = [line for line in admin.told if line.endswith(" changed")]
    assert changed == [f"Deployment {admin.home}/{OPERATOR} changed"]


async def test_an_upgrade_keeps_the_certificate_and_the_ca(admin: Admin) -> None:
    """What the operator put into objects of ours is not ours to take away."""
    await admin.install()
    secret = build_place("Secret", CERTIFICATE_SECRET, admin.home)
    await patch_object(admin.transport, secret, {"data": {"tls.crt": "eA=="}})
    hook = build_place("MutatingWebhookConfiguration", "defaulter.trainer.kubeflow.org")
    before = await get_object(admin.transport, hook)
    assert before is not None
    before["webhooks"][0]["clientConfig"]["caBundle"] = "LS0tLS1CRUdJTi0="
    await patch_object(admin.transport, hook, {"webhooks": before["webhooks"]})
    await admin.install(replicas=4)

    after = await get_object(admin.transport, hook)
    kept = await get_object(admin.transport, secret)
    assert kept is not None
    assert kept["data"] == {"tls.crt": "eA=="}
    assert after is not None
    assert after["webhooks"][0]["clientConfig"]["caBundle"] == "LS0tLS1CRUdJTi0="


async def test_a_namespace_and_runtimes_of_others_are_left_as_they_are(admin: Admin) -> None:
    await admin.create_namespace(admin.home)
    await apply_installation(admin.transport, admin.crds, admin.told.append)
    mine = {**build_runtime("torch-distributed", kind="ClusterTrainingRuntime")}
    await apply_object(admin.transport, mine)
    await admin.install()

    assert f"Namespace {admin.home} kept" in admin.told
    assert "ClusterTrainingRuntime torch-distributed kept: it was not made by Trainwright" in admin.told
    found = await get_object(admin.transport, build_place("Namespace", admin.home))
    assert found is not None
    assert "app.kubernetes.io/managed-by" not in (found["metadata"].get("labels") or {})
    await delete_object(admin.transport, find_place(mine))
    await delete_object(admin.transport, build_place("Namespace", admin.home))


async def test_another_operator_in_another_namespace_is_not_disturbed(admin: Admin) -> None:
    await admin.create_deployment(admin.peers)
    with pytest.raises(InstallationRefused) as refused:
        await admin.install(replace=True)

    assert f"another operator for TrainJobs runs in namespace {admin.peers}" in str(refused.value)
    assert f"kubectl -n {admin.peers} delete deployment {OPERATOR}" in str(refused.value)
    assert await admin.list_present() == []


async def test_another_operator_in_the_same_namespace_is_replaced_only_if_that_is_asked_for(
    admin: Admin,
) -> None:
    await admin.create_deployment(admin.home)
    with pytest.raises(InstallationRefused, match="add --replace"):
        await admin.install()
    await admin.install(replace=True)

    deployment = await get_object(admin.transport, admin.deployment)
    assert deployment is not None
    assert deployment["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "trainwright"
    await delete_object(admin.transport, build_place("Namespace", admin.home))


async def test_another_version_of_ours_is_replaced_only_if_that_is_asked_for(admin: Admin) -> None:
    await admin.install()
    labels = {"app.kubernetes.io/version": "0.0.1"}
    await patch_object(admin.transport, admin.deployment, {"metadata": {"labels": labels}})
    with pytest.raises(InstallationRefused, match=rf"Trainwright 0\.0\.1 runs .* Trainwright {__version__}"):
        await admin.install()

    assert "unchanged" in await admin.install(replace=True)


async def test_without_jobset_nothing_is_applied(admin: Admin) -> None:
    crd = await get_object(admin.transport, JOBSET_CRD)
    assert crd is not None
    await delete_object(admin.transport, JOBSET_CRD)
    try:
        await until_gone(admin, JOBSET_CRD)
        with pytest.raises(InstallationRefused, match="JobSet is not installed"):
            await admin.install()
        assert await admin.list_present() == []
    finally:
        metadata = {"name": crd["metadata"]["name"], "annotations": crd["metadata"].get("annotations", {})}
        await apply_object(admin.transport, {**crd, "metadata": metadata, "status": {}})


async def until_gone(admin: Admin, place: Place) -> None:
    async with asyncio.timeout(CLEAN_UP_SECONDS):
        while await get_object(admin.transport, place) is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_an_interrupted_installation_says_where_and_the_next_one_goes_on(admin: Admin) -> None:
    objects = admin.objects
    broken = [
        {**obj, "spec": {**obj["spec"], "replicas": -1}} if obj["kind"] == "Deployment" else obj
        for obj in objects
    ]
    with pytest.raises(InstallationIncomplete) as incomplete:
        await apply_installation(admin.transport, broken, admin.told.append)

    before = [obj["kind"] for obj in objects].index("Deployment")
    said = str(incomplete.value)
    assert said.startswith(f"Deployment {admin.home}/{OPERATOR}: ")
    assert f"{before} of {len(objects)} objects are applied; run the same command again" in said
    states = await admin.install()
    assert set(states[before:]) == {"created"}
    assert "created" not in states[:before]


# -- one namespace -------------------------------------------------------------------------------------------


async def test_rights_follow_the_namespace_that_is_watched(admin: Admin) -> None:
    await admin.create_namespace(admin.users)
    await admin.create_namespace(admin.peers)
    await admin.install()
    everywhere = await admin.list_access()
    await admin.install(watch_namespace=admin.users)
    users = await admin.list_access()
    await admin.install(watch_namespace=admin.peers)
    peers = await admin.list_access()
    again = await admin.install(watch_namespace=admin.peers)
    await admin.install()

    assert f"ClusterRole {EDIT}" in everywhere
    assert [place for place in users if admin.users in place] == [
        f"Role {admin.users}/{OPERATOR_JOBS}",
        f"Role {admin.users}/{EDIT}",
        f"Role {admin.users}/{VIEW}",
        f"RoleBinding {admin.users}/{OPERATOR_JOBS}",
    ]
    assert f"ClusterRole {EDIT}" not in users
    assert peers == [place.replace(admin.users, admin.peers) for place in users]
    assert again == ["kept", *["unchanged"] * (len(again) - 1)]
    assert await admin.list_access() == everywhere


async def test_reading_for_everybody_ends_when_it_is_not_asked_for_any_more(admin: Admin) -> None:
    await admin.install()
    before = await admin.list_access()
    await admin.install(public_read=False)

    assert set(before) - set(await admin.list_access()) == {
        "ClusterRoleBinding kubeflow-trainer-view-cluster-runtimes",
        f"Role {admin.home}/kubeflow-trainer-public",
        f"RoleBinding {admin.home}/kubeflow-trainer-public",
    }


async def test_rights_that_others_made_under_our_names_are_left(admin: Admin) -> None:
    await admin.create_namespace(admin.users)
    theirs = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": EDIT, "namespace": admin.users},
        "rules": [],
    }
    await admin.apply(theirs)
    await admin.install()

    assert await get_object(admin.transport, find_place(theirs)) is not None


async def test_a_namespace_to_watch_must_be_there(admin: Admin) -> None:
    with pytest.raises(InstallationRefused, match=f"make it first: kubectl create namespace {admin.users}"):
        await admin.install(watch_namespace=admin.users)
    assert await admin.list_present() == []
    assert set(await admin.install(watch_namespace=admin.home)) == {"created"}


async def test_what_was_given_in_a_namespace_of_users_goes_and_the_namespace_stays(admin: Admin) -> None:
    await admin.create_namespace(admin.users)
    await admin.install(watch_namespace=admin.users)
    await admin.uninstall()

    assert await admin.list_access() == []
    assert await admin.list_present() == [str(find_place(crd)) for crd in admin.crds]
    assert await get_object(admin.transport, build_place("Namespace", admin.users)) is not None


async def test_waiting_ends_when_all_pods_are_available(admin: Admin) -> None:
    await admin.install()
    waiting = asyncio.create_task(wait_until_ready(admin.transport, admin.settings, 30))
    counts = {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 1}
    await _set_status(admin, counts)
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await _set_status(admin, {**counts, "availableReplicas": 2})
    await waiting


async def test_waiting_in_vain_tells_what_is_missing(admin: Admin) -> None:
    await admin.install()
    with pytest.raises(TargetUnreachable) as late:
        await wait_until_ready(admin.transport, admin.settings, 0.3)

    assert "the operator is not ready after 0.3 s: 0 of 2 pods are available" in str(late.value)
    assert f"kubectl -n {admin.home} describe deployment {OPERATOR}" in str(late.value)


async def _set_status(admin: Admin, counts: Json) -> None:
    deployment = await get_object(admin.transport, admin.deployment)
    assert deployment is not None
    status = {"observedGeneration": deployment["metadata"]["generation"], **counts}
    place = build_place("Deployment", f"{OPERATOR}/status", admin.home)
    await patch_object(admin.transport, place, {"status": status})


# -- uninstalling --------------------------------------------------------------------------------------------


async def test_uninstalling_leaves_nothing_where_no_jobs_are(admin: Admin) -> None:
    await admin.install()
    await admin.uninstall(delete_jobs=True)

    assert await admin.list_present() == []
    assert await get_object(admin.transport, build_place("Namespace", admin.home)) is None
    await admin.uninstall(delete_jobs=True)
    assert admin.told == []


async def test_jobs_and_runtimes_of_users_stay_unless_their_deletion_is_asked_for(admin: Admin) -> None:
    await apply_installation(admin.transport, admin.crds, admin.told.append)
    await admin.create_jobs("one", "two")
    await admin.install()
    removal = await plan_removal(admin.transport, admin.home, delete_jobs=False)
    await admin.uninstall()

    assert (removal.train_jobs, removal.unfinished) == (2, 2)
    assert await admin.list_present() == [
        f"CustomResourceDefinition {crd['metadata']['name']}" for crd in admin.crds
    ]
    jobs = await list_objects(admin.transport, "TrainJob")
    assert [job["metadata"]["name"] for job in jobs] == ["one", "two"]
    assert len(await list_objects(admin.transport, "TrainingRuntime")) == 1
    await admin.uninstall(delete_jobs=True)
    assert await list_objects(admin.transport, "TrainJob") == []
    assert await admin.list_present() == []


async def test_what_others_made_under_our_names_stays(admin: Admin) -> None:
    await admin.install()
    service = build_place("Service", OPERATOR, admin.home)
    await patch_object(
        admin.transport, service, {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}
    )
    removal = await plan_removal(admin.transport, admin.home, delete_jobs=False)

    assert service not in removal.places
    assert f"Service {admin.home}/{OPERATOR} stays: it was not made by Trainwright" in removal.notices
    assert build_place("Namespace", admin.home) not in removal.places
    await delete_object(admin.transport, service)


async def test_a_namespace_that_holds_something_else_stays(admin: Admin) -> None:
    await admin.install()
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": admin.home}}
    await apply_object(admin.transport, other)
    removal = await plan_removal(admin.transport, admin.home, delete_jobs=True)

    assert build_place("Namespace", admin.home) not in removal.places
    assert f"Namespace {admin.home} stays: it holds ConfigMap other" in removal.notices
    await delete_object(admin.transport, find_place(other))


async def test_the_lease_and_snapshots_of_the_operator_go_as_well(admin: Admin) -> None:
    await admin.install()
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "trainer.kubeflow.org", "namespace": admin.home},
    }
    await admin.create_namespace(admin.users)
    labels = {"trainer.kubeflow.org/runtime-snapshot": "true"}
    snapshot = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "trainer-runtime-abc", "namespace": admin.users, "labels": labels},
    }
    for obj in (lease, snapshot):
        await apply_object(admin.transport, obj)
    await admin.uninstall(delete_jobs=True)

    assert await get_object(admin.transport, find_place(lease)) is None
    assert await get_object(admin.transport, find_place(snapshot)) is None


async def test_runtimes_with_a_finalizer_of_an_older_version_do_not_hold_the_kinds(admin: Admin) -> None:
    await admin.install()
    runtime = build_place("ClusterTrainingRuntime", "plain")
    finalizers = ["trainer.kubeflow.org/resource-in-use"]
    await patch_object(admin.transport, runtime, {"metadata": {"finalizers": finalizers}})
    async with asyncio.timeout(CLEAN_UP_SECONDS):
        await admin.uninstall(delete_jobs=True)

    assert await admin.list_present() == []


# -- the command line ----------------------------------------------------------------------------------------


@pytest.fixture
def program(plane: ControlPlane, tmp_path: Path) -> Program:
    (tmp_path / "work").mkdir()
    return Program(
        folder=tmp_path / "work", state=tmp_path / "state", extra={"KUBECONFIG": str(plane.kubeconfig())}
    )


async def test_the_verbs_install_print_and_uninstall(admin: Admin, program: Program) -> None:
    installed = await asyncio.to_thread(program.run, "install", "--apply", "--no-wait", "-n", admin.home)
    assert (installed.returncode, installed.stdout) == (0, "")
    assert f"Deployment {admin.home}/{OPERATOR} created" in installed.stderr
    late = await asyncio.to_thread(program.run, "install", "--apply", "-n", admin.home, "--timeout", "1")
    assert late.returncode == 4
    assert "Error: the operator is not ready after 1 s: 0 of 2 pods are available" in late.stderr
    present = await admin.list_present()
    shown = await asyncio.to_thread(program.run, "uninstall")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0].startswith("MutatingWebhookConfiguration ")
    assert await admin.list_present() == present
    removed = await asyncio.to_thread(program.run, "uninstall", "--apply")
    assert (removed.returncode, removed.stdout) == (0, "")
    assert await admin.list_present() == [
        line for line in present if line.startswith("CustomResourceDefinition")
    ]
    nothing = await asyncio.to_thread(program.run, "uninstall", "--apply")
    assert "nothing of Trainwright is on this cluster" in nothing.stderr


async def test_the_verbs_install_and_uninstall_for_one_namespace(admin: Admin, program: Program) -> None:
    await admin.create_namespace(admin.users)
    words = ("install", "--apply", "--no-wait", "-n", admin.home, "--watch-namespace", admin.users)
    installed = await asyncio.to_thread(program.run, *words)
    assert (installed.returncode, installed.stdout) == (0, "")
    assert installed.stderr.startswith(f"the operator runs the TrainJobs of namespace {admin.users} alone; ")
    assert f"RoleBinding {admin.users}/{OPERATOR_JOBS} created" in installed.stderr
    removed = await asyncio.to_thread(program.run, "uninstall", "--apply")
    assert removed.returncode == 0
    assert f"RoleBinding {admin.users}/{OPERATOR_JOBS} deleted" in removed.stderr
    assert await admin.list_access() == []


async def test_a_refusal_is_one_message_and_writes_nothing(admin: Admin, program: Program) -> None:
    await admin.create_deployment(admin.peers)
    refused = await asyncio.to_thread(program.run, "install", "--apply", "-n", admin.home)

    assert refused.returncode == 1
    assert refused.stderr.startswith(f"Error: another operator for TrainJobs runs in namespace {admin.peers}")
    assert await admin.list_present() == []
