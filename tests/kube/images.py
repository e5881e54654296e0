"""The container images of the test cluster, made on this machine: nothing is pulled from a registry.

Out: docker-archives, which `ctr images import` takes. Each is made once per recipe and kept in the user's
cache under the recipe's hash. `pause` is a static C program; `base` is a minimal Debian with Python, made by
debootstrap, so it needs root and a Debian mirror the first time (under a minute), and nothing after that.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

PAUSE_IMAGE = "trainwright.test/pause:1"
BASE_IMAGE = "trainwright.test/base:1"

SUITE = "bookworm"
# `python3-minimal` lacks modules that training scripts use, http among them.
BASE_PACKAGES = ("python3",)
# Documents and caches: half of the tree, and every start of a node unpacks it.
_LEFT_OUT = (
    "./var/cache/apt",
    "./var/lib/apt/lists",
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/share/info",
    "./usr/share/locale",
)
_PAUSE_SOURCE = """\
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The first process of a pod: holds its namespaces, and reaps where the pod shares one PID namespace. */
static void leave(int number) { (void)number; _exit(0); }
static void reap(int number) { (void)number; while (waitpid(-1, NULL, WNOHANG) > 0) {} }

int main(void) {
  signal(SIGINT, leave);
  signal(SIGTERM, leave);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
"""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_FORMAT = "1"  # of the archives: counts in the hash


class ImageNotBuilt(Exception):
    """An image cannot be made on this machine."""


def get_cache_folder() -> Path:
    """Return where built images are kept; TRAINWRIGHT_CACHE chooses another place."""
    chosen = os.environ.get("TRAINWRIGHT_CACHE")
    if chosen:
        return Path(chosen) / "images"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwright" / "images"


def build_images() -> list[Path]:
    """Return the archives of all images, made where they are not in the cache. Raises ImageNotBuilt."""
    return [
        _build_once("pause", PAUSE_IMAGE, _PAUSE_SOURCE, _fill_pause, ["/pause"]),
        _build_once(
            "base", BASE_IMAGE, repr((SUITE, BASE_PACKAGES, _LEFT_OUT)), _fill_base, ["/usr/bin/python3"]
        ),
    ]


def _build_once(name: str, image: str, recipe: str, fill: Callable[[Path], None], command: list[str]) -> Path:
    content = hashlib.sha256(
        "\0".join((_FORMAT, image, recipe, platform.machine(), *command)).encode()
    ).hexdigest()[:12]
    folder = get_cache_folder()
    archive = folder / f"{name}-{content}.tar"
    if archive.exists():
        return archive
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=folder) as work:
                root = Path(work) / "root"
                root.mkdir(mode=0o755)
                fill(root)
                _pack(root, Path(work), image, command).rename(archive)
    return archive


def _fill_pause(root: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise ImageNotBuilt("no C compiler for the pause image: install gcc and libc6-dev")
    _run([compiler, "-static", "-Os", "-s", "-x", "c", "-", "-o", root / "pause"], "pause", _PAUSE_SOURCE)


def _fill_base(root: Path) -> None:
    if shutil.which("debootstrap") is None:
        raise ImageNotBuilt("no debootstrap for the base image: run scripts/system-packages")
    mirror = os.environ["TRAINWRIGHT_DEBIAN_MIRROR"]
    # In namespaces of its own: what it mounts is gone with it, also when it is killed.
    _run(
        [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("debootstrap", "--variant=minbase", f"--include={','.join(BASE_PACKAGES)}"),
            *(SUITE, root, mirror),
        ],
        "base",
    )


def _run(command: list[str | Path], image: str, text: str | None = None) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-1000:]
        raise ImageNotBuilt(f"the {image} image cannot be made: {command[0]} says: {said}")


def _pack(root: Path, work: Path, image: str, command: list[str]) -> Path:
    """Return a docker-archive of one layer that holds the folder."""
    layer = work / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(root, arcname=".", filter=lambda member: None if member.name in _LEFT_OUT else member)
    digest = "sha256:" + _hash_file(layer)
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": command, "Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"]},
            "rootfs": {"type": "layers", "diff_ids": [digest]},
        }
    ).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = [{"Config": config_name, "RepoTags": [image], "Layers": ["layer.tar"]}]
    (work / config_name).write_bytes(config)
    (work / "manifest.json").write_text(json.dumps(manifest))
    archive = work / "image.tar"
    with tarfile.open(archive, "w") as tar:
        for member in ("manifest.json", config_name, "layer.tar"):
            tar.add(work / member, arcname=member)
    return archive


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
