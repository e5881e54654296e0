"""A control plane of its own whose pods are placed in gangs: by Kubernetes itself, and by coscheduling.

Two schedulers run: Kubernetes' own, with its feature gates for gangs, and that of scheduler-plugins, under
the name `coscheduling`. Nodes are simulated.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from kube.control_plane import ControlPlane, find_module_folder
from kube.gang_tests.jobs import COSCHEDULING
from kube.installing import grant_operator_rights, install_our_crds
from kube.kwok import SIMULATED, SimulatedNodes

GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
GANGS = dataclasses.replace(
    SIMULATED,
    apiserver_arguments=(
        *SIMULATED.apiserver_arguments,
        GATES,
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    ),
    users={**SIMULATED.users, COSCHEDULING: ("test-coscheduling", "system:masters")},
)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    programs = os.environ.get("TRAINWRIGHT_CLUSTER_PROGRAMS")
    if not programs:
        pytest.skip("NOT TESTED: no Kubernetes; `make test` builds one where Go is installed")
    with ControlPlane(Path(programs), variant=GANGS) as plane:
        _start_scheduler(plane)
        _start_coscheduling(plane)
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


def _start_scheduler(plane: ControlPlane) -> None:
    plane.start_program(
        "kube-scheduler",
        *("--kubeconfig", str(plane.kubeconfig("system:kube-scheduler"))),
        *("--leader-elect=false", "--secure-port=0", GATES),
    )


def _start_coscheduling(plane: ControlPlane) -> None:
    """Install the CRD of coscheduling, and start the scheduler beside Kubernetes' own."""
    folder = find_module_folder("scheduler-plugins", "sigs.k8s.io/scheduler-plugins")
    documents = yaml.safe_load_all((folder / "manifests/coscheduling/crd.yaml").read_text())
    plane.install_crds([document for document in documents if document])
    profile = {
        "schedulerName": COSCHEDULING,
        "plugins": {
            "multiPoint": {"enabled": [{"name": "Coscheduling"}]},
            "queueSort": {"enabled": [{"name": "Coscheduling"}], "disabled": [{"name": "*"}]},
        },
        "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}],
    }
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(plane.kubeconfig(COSCHEDULING))},
        "profiles": [profile],
    }
    file = plane.folder / "coscheduling.yaml"
    file.write_text(yaml.safe_dump(configuration))
    # A gang that the plugin sent back is tried again when pods or PodGroups come, not when pods go: then it
    # waits for the regular look at all pods that wait, every 30 seconds at those that have waited so long.
    plane.start_program(
        "scheduler-plugins",
        *("--config", str(file), "--secure-port=0", "--pod-max-in-unschedulable-pods-duration=5s"),
    )
