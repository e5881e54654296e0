"""The webhooks behind a real API server: what only shows there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from kube.control_plane import ControlPlane
from reviews import build_job, build_patch, build_runtime
from trainwright.api.meta import Json, ObjectKey
from trainwright.cluster.kube.adapter import KubeCluster
from trainwright.cluster.kube.errors import ApiError, ForbiddenError
from trainwright.cluster.kube.transport import AiohttpTransport
from trainwright.errors import NotFound

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")

from kube.admitting import WebhookServer, build_url, send
from trainwright.operator.certificates import build_certificates

NODE = {"nodeSelector": {"pool": "a"}}


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane, crds: None) -> Iterator[WebhookServer]:
    with WebhookServer(control_plane) as server:
        yield server


@pytest.fixture
def cluster(server: WebhookServer, transport: AiohttpTransport, namespace: str) -> World:
    return World(KubeCluster(transport, "test"), server, namespace)


class World:
    """A namespace with the runtime `rt`, and short ways to write into it."""

    def __init__(self, cluster: KubeCluster, server: WebhookServer, namespace: str) -> None:
        self.cluster = cluster
        self.server = server
        self.namespace = namespace

    def place(self, obj: Json) -> Json:
        """Return the object as a new one of this namespace."""
        metadata = {name: value for name, value in obj["metadata"].items() if name != "uid"}
        return {**obj, "metadata": {**metadata, "namespace": self.namespace}}

    def key(self, kind: str, name: str) -> ObjectKey:
        return ObjectKey(kind, self.namespace, name)

    async def create_runtime(self, **changes: Any) -> Json:
        return await self.cluster.create(self.place({**build_runtime(), **changes}))

    async def create(self, **spec: Any) -> Json:
        return await self.cluster.create(self.place(build_job(**spec)))

    async def patch(self, merge: Json, name: str = "demo") -> Json:
        return await self.cluster.patch(self.key("TrainJob", name), merge)

    async def exists(self, kind: str, name: str) -> bool:
        with contextlib.suppress(NotFound):
            await self.cluster.get(self.key(kind, name))
            return True
        return False


# -- defaulting ----------------------------------------------------------------------------------------------


async def test_fractions_of_a_cpu_are_taken_and_stored_as_quantities(cluster: World) -> None:
    await cluster.create_runtime()
    stored = await cluster.create(
        trainer={"numNodes": 2.0, "resourcesPerNode": {"limits": {"cpu": 0.5, "memory": 1e9, "a.b/gpu": 1.0}}}
    )

    assert stored["spec"]["trainer"] == {
        "numNodes": 2,
        "resourcesPerNode": {"limits": {"cpu": "500m", "memory": 1000000000, "a.b/gpu": 1}},
    }


async def test_fractions_may_also_be_applied(cluster: World) -> None:
    await cluster.create_runtime()
    job = cluster.place(build_job(trainer={"resourcesPerNode": {"limits": {"cpu": 0.5}}}))
    first = await cluster.cluster.apply(job, "somebody")
    again = await cluster.cluster.apply(job, "somebody")

    assert again["spec"]["trainer"]["resourcesPerNode"]["limits"] == {"cpu": "500m"}
    assert again["metadata"]["generation"] == first["metadata"]["generation"]


async def test_patches_are_stamped_and_keep_their_time(cluster: World) -> None:
    await cluster.create_runtime()
    stored = await cluster.create(suspend=True, runtimePatches=[build_patch(pod=NODE)])
    time = stored["spec"]["runtimePatches"][0]["time"]
    patches = [build_patch(pod=NODE), build_patch("kueue.x-k8s.io/manager")]
    after = await cluster.patch({"spec": {"runtimePatches": patches}})

    assert time.endswith("Z")
    assert after["spec"]["runtimePatches"][0]["time"] == time
    assert after["spec"]["runtimePatches"][1]["time"] >= time


async def test_a_client_with_older_types_loses_nothing(cluster: World) -> None:
    """Kueue puts a whole object back as it knows it: without fields that came after its types."""
    await cluster.create_runtime()
    pod = {**NODE, "terminationGracePeriodSeconds": 90}
    await cluster.create(
        suspend=True,
        ttlSecondsAfterFinished=60,
        activeDeadlineSeconds=3600,
        runtimePatches=[build_patch(pod=pod), build_patch("kueue.x-k8s.io/manager")],
    )
    path = build_url(build_job(), cluster.namespace, "demo")
    known = send(cluster.server.plane, "GET", path).body
    del known["spec"]["ttlSecondsAfterFinished"], known["spec"]["activeDeadlineSeconds"]
    job = known["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    del job["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    known["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "q"}
    reply = send(cluster.server.plane, "PUT", path, known)

    assert reply.code == 200
    spec = reply.body["spec"]
    assert (spec["ttlSecondsAfterFinished"], spec["activeDeadlineSeconds"]) == (60, 3600)
    [job] = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["template"]["spec"] == pod


# -- refusals ------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Json, str]] = {
    "text for a number": ({"trainer": {"numNodes": "two"}}, "spec.trainer.numNodes"),
    "a word for a number of processes": (
        {"trainer": {"numProcPerNode": "auto"}},
        "spec.trainer.numProcPerNode",
    ),
    "a number for a text": ({"trainer": {"image": 7}}, "spec.trainer.image"),
    "an object for a list": ({"trainer": {"args": {"a": "b"}}}, "spec.trainer.args"),
    "a text for an object": ({"trainer": "torch"}, "spec.trainer"),
    "no quantity": (
        {"trainer": {"resourcesPerNode": {"limits": {"cpu": "lots"}}}},
        "spec.trainer.resourcesPerNode.limits",
    ),
    "a boolean for a quantity": (
        {"trainer": {"resourcesPerNode": {"limits": {"cpu": True}}}},
        "spec.trainer.resourcesPerNode.limits",
    ),
}


@pytest.mark.parametrize(("spec", "path"), WRONG.values(), ids=WRONG)
async def test_a_wrong_type_is_422_with_its_path(cluster: World, spec: Json, path: str) -> None:
    await cluster.create_runtime()
    job = cluster.place(build_job(**spec))
    reply = send(cluster.server.plane, "POST", build_url(job, cluster.namespace), job)

    assert (reply.code, reply.body["reason"]) == (422, "Invalid")
    assert any(field.startswith(path) for field in reply.fields)


async def test_a_denied_job_is_403_with_every_field_and_what_to_do(cluster: World) -> None:
    await cluster.create_runtime()
    with pytest.raises(ForbiddenError) as refused:
        await cluster.create(
            trainer={"env": [{"name": "PET_NNODES", "value": "2"}]},
            initializer={"model": {"storageUri": "s3://a/b"}},
            runtimePatches=[build_patch(manager="no-slash")],
        )

    status = refused.value.status
    assert status.details is not None
    assert [cause.field for cause in status.details.causes] == [
        "spec.runtimePatches[0].manager",
        "spec.runtimeRef",
        "spec.trainer.env",
    ]
    assert status.message.startswith(
        'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: 3 errors: (1) spec.'
    )


async def test_a_job_may_come_right_after_its_runtime(cluster: World) -> None:
    await cluster.create_runtime()

    assert (await cluster.create())["metadata"]["name"] == "demo"


async def test_a_missing_runtime_is_told(cluster: World) -> None:
    with pytest.raises(ForbiddenError, match=r"spec\.runtimeRef: TrainingRuntime 'rt' does not exist"):
        await cluster.create()


async def test_a_name_to_be_generated_is_judged_with_what_the_server_makes_of_it(cluster: World) -> None:
    await cluster.create_runtime()
    job = cluster.place(build_job())
    path = build_url(job, cluster.namespace)

    def generated(prefix: str) -> Json:
        metadata = {"namespace": cluster.namespace, "generateName": prefix}
        return {**job, "metadata": metadata}

    assert send(cluster.server.plane, "POST", path, generated("a" * 42 + "-")).code == 201
    refused = send(cluster.server.plane, "POST", path, generated("a" * 50 + "-"))
    assert (refused.code, refused.fields) == (403, ("metadata.name",))


async def test_a_runtime_with_the_label_is_not_looked_at(cluster: World) -> None:
    broken = build_runtime(labels={"trainer.kubeflow.org/webhook-validation": "disabled"})
    broken["spec"]["template"]["spec"]["replicatedJobs"][0]["replicas"] = 2
    cluster.server.heard.clear()
    await cluster.cluster.create(cluster.place(broken))

    assert cluster.server.heard == []
    with pytest.raises(ForbiddenError, match="must be 1 for a step of a TrainJob"):
        await cluster.cluster.create(cluster.place({**broken, "metadata": {"name": "other"}}))


# -- a job stays editable ------------------------------------------------------------------------------------


async def test_a_job_whose_runtime_is_gone_can_be_labelled_suspended_and_deleted(cluster: World) -> None:
    """1. The runtime of a job is deleted. 2. The job is labelled and suspended. 3. It is deleted in the
    foreground, with a finalizer of somebody else: it goes once they are taken away, which are updates.
    """
    await cluster.create_runtime()
    await cluster.create(trainer={"numNodes": 2})
    await cluster.cluster.delete(cluster.key("TrainingRuntime", "rt"))
    await cluster.patch({"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/hold"]}})
    suspended = await cluster.patch({"spec": {"suspend": True}})
    path = build_url(build_job(), cluster.namespace, "demo")
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
    going = send(cluster.server.plane, "DELETE", path, options).body
    await cluster.patch({"metadata": {"finalizers": []}})

    assert suspended["spec"]["suspend"] is True
    assert set(going["metadata"]["finalizers"]) == {"example.com/hold", "foregroundDeletion"}
    assert not await cluster.exists("TrainJob", "demo")


async def test_a_job_that_was_stored_before_a_rule_was_made_can_be_labelled(cluster: World) -> None:
    await cluster.create_runtime()
    cluster.server.uninstall()
    try:
        await cluster.create(trainer={"env": [{"name": "PET_NNODES", "value": "2"}]})
    finally:
        cluster.server.install(cluster.server.certificates.ca_bundle)

    assert (await cluster.patch({"metadata": {"labels": {"a": "b"}}}))["metadata"]["labels"] == {"a": "b"}
    assert (await cluster.patch({"spec": {"suspend": True}}))["spec"]["suspend"] is True


async def test_a_status_is_written_without_asking_us(cluster: World) -> None:
    await cluster.create_runtime()
    await cluster.create()
    cluster.server.heard.clear()
    await cluster.cluster.patch_status(cluster.key("TrainJob", "demo"), {"status": {"phase": "Running"}})
    await cluster.cluster.delete(cluster.key("TrainJob", "demo"))

    assert cluster.server.heard == []


# -- faults --------------------------------------------------------------------------------------------------


async def test_while_the_webhooks_are_down_nothing_is_half_made(cluster: World) -> None:
    """1. Nobody listens. 2. Jobs are refused as a whole, and one that is there stays as it is. 3. Somebody
    listens again: the same requests go through.
    """
    await cluster.create_runtime()
    before = await cluster.create(suspend=True)
    with cluster.server.down():
        with pytest.raises(ApiError) as refused:
            await cluster.cluster.create(cluster.place(build_job("second")))
        with pytest.raises(ApiError):
            await cluster.patch({"spec": {"suspend": False}})

    assert refused.value.status.code == 500
    assert "failed calling webhook" in refused.value.status.message
    assert not await cluster.exists("TrainJob", "second")
    assert await cluster.cluster.get(cluster.key("TrainJob", "demo")) == before
    await cluster.cluster.create(cluster.place(build_job("second")))
    assert (await cluster.patch({"spec": {"suspend": False}}))["spec"]["suspend"] is False


async def test_a_certificate_that_nobody_trusts_is_refused_and_its_renewal_noticed_by_nobody(
    cluster: World,
) -> None:
    """1. The server comes back with a certificate of an unknown CA: jobs are refused. 2. It serves its own
    again, without listening anew: jobs are taken.
    """
    await cluster.create_runtime()
    with cluster.server.down():
        cluster.server.slot.swap(build_certificates(("127.0.0.1",), datetime.now(UTC)).serving)
    try:
        with pytest.raises(ApiError, match="certificate signed by unknown authority"):
            await cluster.create()
    finally:
        cluster.server.slot.swap(cluster.server.certificates.serving)

    assert (await cluster.create())["metadata"]["name"] == "demo"
