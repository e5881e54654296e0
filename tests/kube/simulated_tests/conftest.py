"""A control plane of its own with a scheduler and simulated nodes, in the place of the one without nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.control_plane import ControlPlane
from kube.installing import grant_operator_rights, install_our_crds
from kube.kwok import SIMULATED, SimulatedNodes


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    programs = os.environ.get("TRAINWRIGHT_CLUSTER_PROGRAMS")
    if not programs:
        pytest.skip("NOT TESTED: no Kubernetes; `make test` builds one where Go is installed")
    with ControlPlane(Path(programs), variant=SIMULATED) as plane:
        plane.start_scheduler()
        yield plane


# Once more, since those of the folder above are kept for the plane that they were first asked for.
@pytest.fixture(scope="session")
def crds(control_plane: ControlPlane) -> None:
    """Our CRDs, installed; they stay for the session."""
    install_our_crds(control_plane)


@pytest.fixture(scope="session")
def operator_rights(control_plane: ControlPlane) -> None:
    """The rights that an installation gives to the operator, for the user of that name."""
    grant_operator_rights(control_plane)


@pytest.fixture(scope="session")
def simulated_nodes(control_plane: ControlPlane) -> Iterator[SimulatedNodes]:
    """Kubelets for nodes that tests add."""
    with SimulatedNodes(control_plane) as nodes:
        yield nodes
