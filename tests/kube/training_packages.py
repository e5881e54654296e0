"""The packages that training scripts import, for pods: a folder that a pod mounts, not gigabytes in an image.

In: a training environment, as `scripts/environment train` prints it. Out: a folder of packages for the Python
of the base image, of the versions in requirements/train.txt. Where the environment was made from that file
for the same Python it is the environment's own folder; else the wheels are unpacked once more, into the
user's cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

from kube.images import PYTHON_VERSION, ROOT, ImageNotBuilt, get_cache_folder

REQUIREMENTS = ROOT / "requirements/train.txt"


def find_training_packages(environment: Path, requirements: Path = REQUIREMENTS) -> Path:
    """Return the folder with the packages of a training environment, for pods of the base image."""
    own = environment / f"lib/python{PYTHON_VERSION}/site-packages"
    # The mark of scripts/environment: a torch that came with the machine may need the machine's libraries.
    if (environment / ".complete").exists() and own.exists():
        return own
    return install_once(requirements.read_text())


def install_once(requirements: str) -> Path:
    """Return a folder of the packages of a requirements file, for the Python of the base image."""
    chosen = "\n".join(select_requirements(requirements)) + "\n"
    content = hashlib.sha256(f"{PYTHON_VERSION}\0{platform.machine()}\0{chosen}".encode()).hexdigest()[:12]
    target = get_cache_folder() / f"training-{content}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _install(chosen, target)
    return target


def select_requirements(requirements: str) -> Iterator[str]:
    """Yield the requirements, with their hashes, that hold for the Python of the base image.

    pip asks markers about the Python that runs it, also when it installs for another one.
    """
    environment = {
        "python_version": PYTHON_VERSION,
        "python_full_version": f"{PYTHON_VERSION}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    joined = re.sub(r"\\\n\s*", " ", requirements)
    for line in joined.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        specifier, *hashes = line.split(" --hash=")
        requirement = Requirement(specifier.strip())
        if requirement.marker is None or requirement.marker.evaluate(environment):
            requirement.marker = None
            yield " --hash=".join([str(requirement), *(item.strip() for item in hashes)])


def _install(requirements: str, target: Path) -> None:
    print(
        f"Unpacking the training packages for Python {PYTHON_VERSION}, that of the pods, once, into {target}",
        file=sys.stderr,
    )
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as work:
        listed, packages = Path(work, "requirements.txt"), Path(work, "packages")
        listed.write_text(requirements)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
                *("--target", packages, "--no-deps", "--no-compile", "--only-binary=:all:"),
                *("--implementation", "cp", "--python-version", PYTHON_VERSION),
                *("--require-hashes", "-r", listed),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ImageNotBuilt(f"the training packages cannot be installed: {done.stderr.strip()[-1000:]}")
        shutil.move(packages, target)
