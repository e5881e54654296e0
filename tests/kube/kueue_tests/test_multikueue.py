"""Jobs that Kueue sends to another cluster: here our operator leaves them alone, there it runs them."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.control_plane import ControlPlane
from kube.kueue import API, MULTIKUEUE, NAMESPACE, Kueue
from kube.kueue_tests.accounts import connect_operator
from kube.kueue_tests.queues import Queues, has
from kube.operating import People, Running, condition, eventually, operating, runtime
from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.transport import AiohttpTransport


@pytest.fixture
def worker_namespace(worker_kueue: Kueue, namespace: str) -> str:
    """The namespace of the test on the other cluster."""
    worker_kueue.plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    return namespace


@pytest.fixture
async def worker_transport(worker_kueue: Kueue, tmp_path: Path) -> AsyncIterator[AiohttpTransport]:
    kubeconfig = worker_kueue.plane.kubeconfig()
    async with AiohttpTransport(load_connection({"KUBECONFIG": str(kubeconfig)}, tmp_path)) as transport:
        yield transport


@pytest.fixture
def worker(worker_transport: AiohttpTransport, worker_namespace: str) -> People:
    """People on the other cluster."""
    return People(worker_transport, worker_namespace)


@pytest.fixture
def worker_queues(worker_transport: AiohttpTransport, worker: People) -> Queues:
    """The queues of the other cluster."""
    return Queues(worker_transport, worker)


@pytest.fixture
async def worker_operator(
    worker_kueue: Kueue, worker_namespace: str, tmp_path: Path
) -> AsyncIterator[Running]:
    """The operator of the other cluster."""
    connection = connect_operator(worker_kueue.plane, tmp_path)
    async with operating(connection, worker_namespace) as running:
        yield running


async def send_jobs_to(worker_kueue: Kueue, plane: ControlPlane, queues: Queues) -> None:
    """Let the queue of the test send all its jobs to the other cluster."""
    name = queues.namespace
    kubeconfig = worker_kueue.plane.kubeconfig().read_bytes()
    secret = {"metadata": {"name": name}, "data": {"kubeconfig": base64.b64encode(kubeconfig).decode()}}
    plane.call("POST", f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    source = {"kubeConfig": {"locationType": "Secret", "location": name}}
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": name}
    for kind, spec in (
        ("MultiKueueCluster", {"clusterSource": source}),
        ("MultiKueueConfig", {"clusters": [name]}),
        ("AdmissionCheck", {"controllerName": MULTIKUEUE, "parameters": parameters}),
    ):
        await queues.create({"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec})

    async def is_active() -> bool:
        return has(await queues.get(queues.path("AdmissionCheck", name)), "Active")

    await eventually(is_active)
    await queues.add({"blue": {"cpu": "2"}}, admissionChecksStrategy={"admissionChecks": [{"name": name}]})


async def test_a_job_runs_on_another_cluster_and_its_status_comes_back(
    people: People,
    queues: Queues,
    operator: Running,
    control_plane: ControlPlane,
    worker_kueue: Kueue,
    worker: People,
    worker_queues: Queues,
    worker_operator: Running,
) -> None:
    """1. A queue sends its jobs to another cluster. 2. A job in it is Kueue's to look after: nothing is
    written about it here. 3. Its copy runs there; conditions and counters come back. 4. The copy goes when it
    has ended.
    """
    for cluster in (queues, worker_queues):
        await cluster.add_runtime(runtime())
    await worker_queues.add({"blue": {"cpu": "2"}})
    await send_jobs_to(worker_kueue, control_plane, queues)

    job = await people.create(queues.job(trainer={"numNodes": 2}))
    assert job["spec"]["managedBy"] == MULTIKUEUE
    await worker.until_phase("Running")
    copy = await worker.find("TrainJob")
    assert copy["spec"]["managedBy"] == "trainer.kubeflow.org/trainjob-controller"
    status = await people.until_status(lambda status: status.get("jobsStatus", [{}])[0].get("ready"))
    assert status["jobsStatus"] == (await worker.status())["jobsStatus"]

    await worker_queues.finish("demo", 2)
    status = await people.until_status(lambda status: condition(status, "Complete"))
    await queues.until("Finished")
    await worker.until_gone("TrainJob")
    assert await people.list("JobSet") == []
    assert [write for write in operator.transport.writes if "/demo" in write] == []
    assert "PATCH jobsets/demo" in worker_operator.transport.writes
