"""An image with two MPIs and an ssh server, as users of MPI jobs make one: for tests on the node.

Debian's Open MPI 4 and MPICH live side by side (`mpirun.openmpi`, `mpirun.mpich`). sshd listens on port 2222,
as root or as `mpiuser`; for him it has the configuration of our own images as well.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from kube.images import ROOT, build_debian_image

MPI_IMAGE: Final = "trainwright.test/mpi:1"
USER_ID: Final = 1000
# Host keys are as new as the pods; the server's has to be readable for whoever runs it.
START_SSHD: Final = [
    "/bin/sh",
    "-c",
    # The folder is asked for by the sshd of root, who alone can make it.
    "mkdir -p /run/sshd 2> /dev/null; ssh-keygen -q -N '' -t ed25519 -f /tmp/host_key"
    " && exec /usr/sbin/sshd -De -f /etc/ssh/mpi_sshd_config",
]

_PACKAGES: Final = ("python3", "openssh-server", "openssh-client", "openmpi-bin", "mpich")
_SSH_CONFIG: Final = """\
Host *
  Port 2222
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""
# The folder of a mounted Secret is writable for all, with the sticky bit, which StrictModes does not take.
_SSHD_CONFIG: Final = """\
Port 2222
HostKey /tmp/host_key
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
"""
_SHIPPED_SSHD_CONFIG: Final = ROOT / "deploy/images/ssh/sshd_config"
_USER: Final = f"mpiuser:x:{USER_ID}:{USER_ID}::/home/mpiuser:/bin/sh\n"


def build_mpi_image() -> Path:
    """Return the archive of the image, made where it is not in the cache. Needs a Debian mirror then."""
    recipe = repr((_SSH_CONFIG, _SSHD_CONFIG, _USER, _SHIPPED_SSHD_CONFIG.read_text()))
    return build_debian_image(MPI_IMAGE, _PACKAGES, recipe, _add_user_and_settings)


def _add_user_and_settings(root: Path) -> None:
    with (root / "etc/passwd").open("a") as users:
        users.write(_USER)
    (root / "etc/ssh/ssh_config").write_text(_SSH_CONFIG)
    (root / "etc/ssh/mpi_sshd_config").write_text(_SSHD_CONFIG)
    (root / "home/mpiuser/.ssh").mkdir(parents=True)
    shutil.copyfile(_SHIPPED_SSHD_CONFIG, root / "home/mpiuser/.sshd_config")
