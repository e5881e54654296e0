"""Which container of a Flux job is told where to listen on this machine, and what."""

from __future__ import annotations

import pytest

from trainwright.runner.executors.flux_pod import build_installer_defaults, installs_flux

MOUNTED = [{"name": "demo-flux-entrypoint", "mountPath": "/etc/flux-config"}]
CONTAINERS = {
    "the one that the framework adds": ({"name": "flux-installer", "volumeMounts": MOUNTED}, True),
    "the trainer": ({"name": "node", "volumeMounts": MOUNTED}, False),
    "one of that name without the scripts": ({"name": "flux-installer"}, False),
}


@pytest.mark.parametrize(("container", "expected"), CONTAINERS.values(), ids=CONTAINERS)
def test_which_container_writes_the_configuration(container, expected):
    assert installs_flux(container) is expected


def test_brokers_listen_on_the_address_of_their_pod_at_the_port_of_the_job():
    assert build_installer_defaults("127.1.0.2", {29500: 41000}) == {
        "TRAINWRIGHT_FLUX_ADDRESS": "127.1.0.2",
        "TRAINWRIGHT_FLUX_PORT": "41000",
    }
