"""What is different about a pod of a Flux job on one machine. Pure.

On a cluster a broker listens on a device of its pod, at a port that is the same in every job. Here all pods
have the network of the machine: each listens on its own address, which its name resolves to in the others,
and the port is the job's. The init container writes the configuration, so it is the one that is told.
Flux itself is the machine's: there is no image to take it from.
Source: spec 02 section 9.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trainwright.api.constants import FLUX_ADDRESS, FLUX_PORT, TRAINER_PORT
from trainwright.api.meta import Json

_INSTALLER: Final = "flux-installer"
_SCRIPTS_MOUNT: Final = "/etc/flux-config"


def installs_flux(container: Json) -> bool:
    """Say whether this is the init container that the flux framework adds."""
    mounted = {mount.get("mountPath") for mount in container.get("volumeMounts") or ()}
    return container.get("name") == _INSTALLER and _SCRIPTS_MOUNT in mounted


def build_installer_defaults(address: str, ports: Mapping[int, int]) -> dict[str, str]:
    """Return where the broker of a pod with this address listens."""
    return {FLUX_ADDRESS: address, FLUX_PORT: str(ports.get(TRAINER_PORT, TRAINER_PORT))}
