"""Jobs that Kueue preempts and admits again, in pods that really run, get signals and save their work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kube.cluster import Cluster
from kube.kueue import Kueue, KueueUnavailable
from kube.kueue_tests.queues import Queues
from kube.node_tests.training import read_log
from kube.operating import People, operating, runtime
from trainwright.api.meta import Json
from trainwright.cluster.kube.config import load_connection
from trainwright.cluster.kube.transport import AiohttpTransport

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_SECONDS = 90.0
EVICTIONS = 2

# Works for so many seconds; asked to stop before, it says that it has saved its work, and exits with 0.
SCRIPT = """
import os, signal, sys, time

def stop(number, frame):
    print("saved", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, stop)
print("started", flush=True)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    time.sleep(0.05)
print("done", flush=True)
"""


@pytest.fixture(scope="module")
def kueue(real_cluster: Cluster) -> Iterator[Kueue]:
    try:
        kueue = Kueue(real_cluster.plane)
    except KueueUnavailable as error:
        pytest.skip(f"NOT TESTED with Kueue on a real node: {error}")
    kueue.install()
    kueue.start()
    yield kueue
    kueue.stop()


@pytest.fixture
async def transport(real_cluster: Cluster, tmp_path: Path) -> AsyncIterator[AiohttpTransport]:
    connection = load_connection({"KUBECONFIG": str(real_cluster.kubeconfig)}, tmp_path)
    async with AiohttpTransport(connection) as transport:
        yield transport


@pytest.fixture
async def people(
    real_cluster: Cluster, transport: AiohttpTransport, namespace: str, tmp_path: Path
) -> AsyncIterator[People]:
    """People in the namespace, and an operator that looks after it."""
    connection = load_connection({"KUBECONFIG": str(real_cluster.kubeconfig)}, tmp_path)
    async with operating(connection, namespace):
        yield People(transport, namespace)


@pytest.fixture
async def queues(kueue: Kueue, transport: AiohttpTransport, people: People) -> AsyncIterator[Queues]:
    queues = Queues(transport, people)
    yield queues
    await queues.remove_all()


def build_runtime(image: str) -> Json:
    plain = runtime()
    (job,) = plain["spec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    container = {"name": "node", "image": image, "imagePullPolicy": "IfNotPresent"}
    pod["containers"] = [{**container, "command": ["python3", "-c", SCRIPT]}]
    pod["terminationGracePeriodSeconds"] = 10
    return plain


async def test_a_job_saves_its_work_when_it_is_preempted_and_comes_back(
    real_cluster: Cluster, people: People, queues: Queues
) -> None:
    """1. Two pods work on all of the quota. 2. A job of a higher priority comes: they are asked to stop, save
    their work, and exit with 0, which is no success of the job. 3. It comes back with new pods. 4. So twice;
    the third time it is left alone, and completes.
    """
    node = {"nodeLabels": {"kubernetes.io/hostname": real_cluster.node_name}}
    await queues.add({"here": {"cpu": "200m"}}, {"here": node})
    await queues.add_priorities(low=1, high=100)
    await queues.add_runtime(build_runtime(real_cluster.image))
    resources = {"requests": {"cpu": "100m"}}
    low = {"numNodes": 2, "resourcesPerNode": resources, "args": ["15"]}
    high = {"numNodes": 2, "resourcesPerNode": resources, "args": ["0"]}
    await people.create(queues.job("low", "low", trainer=low))
    seen: set[str] = set()
    for turn in range(EVICTIONS + 1):
        await people.until_status(
            lambda status: status.get("phase") == "Running", "low", seconds=PATIENCE_SECONDS
        )
        pods = await people.until_pods(2, "low")
        uids = {pod["metadata"]["uid"] for pod in pods}
        assert not uids & seen
        seen |= uids
        if turn == EVICTIONS:
            break
        await people.create(queues.job(f"high-{turn}", "high", trainer=high))
        await people.until_status(
            lambda status: status.get("phase") == "Complete", f"high-{turn}", seconds=PATIENCE_SECONDS
        )
    status = await people.until_status(
        lambda status: status.get("phase") in ("Complete", "Failed"), "low", seconds=PATIENCE_SECONDS
    )
    assert (status["phase"], status["restarts"]) == ("Complete", 0)
    for pod in await people.until_pods(2, "low"):
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/hostname": real_cluster.node_name}
        assert read_log(real_cluster, people.namespace, pod) == "started\ndone\n"
