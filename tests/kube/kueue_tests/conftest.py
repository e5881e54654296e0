"""A control plane of its own with Kueue, a scheduler, simulated nodes, and our webhooks before Kueue's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from kube.control_plane import ControlPlane
from kube.installing import install_our_crds
from kube.kueue import Kueue, KueueUnavailable
from kube.kueue_tests.accounts import connect_operator, install_operator_account
from kube.kueue_tests.queues import Queues
from kube.kwok import CAPACITY, SIMULATED, SimulatedNodes
from kube.operating import People, Running, operating
from trainwright.cluster.kube.config import Connection
from trainwright.cluster.kube.transport import AiohttpTransport

pytest.importorskip("cryptography", reason="NOT TESTED: needs the extra `operator` (cryptography)")

from kube.admitting import WebhookServer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def kueue() -> Iterator[Kueue]:
    """Kueue's manager, beside a control plane of its own."""
    with run_kueue() as kueue:
        yield kueue


@pytest.fixture(scope="session")
def worker_kueue() -> Iterator[Kueue]:
    """Kueue of another cluster, with simulated nodes, to which jobs can be sent."""
    with run_kueue() as kueue, SimulatedNodes(kueue.plane) as nodes:
        nodes.add(["worker-0"], labels={"pool": "blue"})
        yield kueue


@contextlib.contextmanager
def run_kueue() -> Iterator[Kueue]:
    """Run a control plane with a scheduler, our CRDs and webhooks, and Kueue."""
    programs = os.environ.get("TRAINWRIGHT_CLUSTER_PROGRAMS")
    if not programs:
        pytest.skip("NOT TESTED with Kueue: no Kubernetes; `make test` builds one where Go is installed")
    with ControlPlane(Path(programs), variant=SIMULATED) as plane:
        try:
            kueue = Kueue(plane)
        except KueueUnavailable as error:
            pytest.skip(f"NOT TESTED with Kueue: {error}")
        install_our_crds(plane)
        install_operator_account(plane)
        with WebhookServer(plane):
            kueue.install()
            # The collector of garbage learns new kinds slowly; one that was just started knows them.
            plane.stop_program("kube-controller-manager")
            plane.start_controller_manager()
            plane.start_scheduler()
            kueue.start()
            try:
                yield kueue
            finally:
                kueue.stop()


# Those of the folder above are kept for the plane that they were first asked for.
@pytest.fixture(scope="session")
def control_plane(kueue: Kueue) -> ControlPlane:
    return kueue.plane


@pytest.fixture(scope="session")
def crds(control_plane: ControlPlane) -> None:
    """Our CRDs, which are there."""


@pytest.fixture(scope="session")
def nodes(control_plane: ControlPlane) -> Iterator[SimulatedNodes]:
    """Two machines in the pool `blue`, and one in the pool `green`, whose taint has to be tolerated."""
    with SimulatedNodes(control_plane) as nodes:
        capacity = {**CAPACITY, "nvidia.com/gpu": "64"}
        for number in range(2):
            nodes.add([f"blue-{number}"], capacity, {"pool": "blue", "rack": f"rack-{number}"})
        nodes.add(["green-0"], capacity, {"pool": "green"})
        taint = {"key": "pool", "value": "green", "effect": "NoSchedule"}
        control_plane.call(
            "PATCH",
            "/api/v1/nodes/green-0",
            {"spec": {"taints": [taint]}},
            content_type="application/merge-patch+json",
        )
        yield nodes


@pytest.fixture
def operator_connection(control_plane: ControlPlane, tmp_path: Path) -> Connection:
    """The connection of the account that an installation gives to the operator."""
    return connect_operator(control_plane, tmp_path)


@pytest.fixture
async def operator(
    operator_connection: Connection, namespace: str, nodes: SimulatedNodes
) -> AsyncIterator[Running]:
    async with operating(operator_connection, namespace) as running:
        yield running


@pytest.fixture
def operator_again(
    operator_connection: Connection, namespace: str
) -> Callable[[], contextlib.AbstractAsyncContextManager[Running]]:
    """Start another operator, after the first has ended."""
    return lambda: operating(operator_connection, namespace)


@pytest.fixture
async def queues(transport: AiohttpTransport, people: People, nodes: SimulatedNodes) -> AsyncIterator[Queues]:
    """Whoever sets up the queues of the namespace, and looks at its Workloads."""
    queues = Queues(transport, people)
    yield queues
    await queues.remove_all()
