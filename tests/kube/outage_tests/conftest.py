"""A control plane of its own: a slow etcd, counted quotas, and owners that need a right to be set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.control_plane import ControlPlane, Variant, find_free_ports
from kube.installing import grant_operator_rights, install_our_crds
from kube.slow_link import SlowLink

HARD = Variant(
    apiserver_arguments=(
        *Variant().apiserver_arguments,
        # As on OpenShift: who names an owner that blocks deletion needs the right to its finalizers.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
    ),
    controllers=f"{Variant().controllers},resourcequota-controller",
    # A quota on a kind that the controller did not know yet is counted at its next round only.
    controller_manager_arguments=("--resource-quota-sync-period=5s",),
)


class LinkedControlPlane(ControlPlane):
    """Its API server reaches etcd through a link."""

    link: SlowLink

    @property
    def etcd_url(self) -> str:
        return f"http://127.0.0.1:{self.link.port}"


@pytest.fixture(scope="session")
def control_plane() -> Iterator[LinkedControlPlane]:
    programs = os.environ.get("TRAINWRIGHT_CLUSTER_PROGRAMS")
    if not programs:
        pytest.skip("NOT TESTED: no Kubernetes; `make test` builds one where Go is installed")
    plane = LinkedControlPlane(Path(programs), variant=HARD)
    with SlowLink(find_free_ports(1)[0], plane.port["etcd"]) as plane.link, plane:
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
