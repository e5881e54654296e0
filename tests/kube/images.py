"""The container images of the test cluster, made on this machine: nothing is pulled from a registry.

Out: docker-archives, which `ctr images import` takes. Layers are made once per recipe and kept in the user's
cache under the recipe's hash. `pause` is a static C program; `base` is a minimal Debian with Python, made by
debootstrap, so it needs root and a Debian mirror the first time (under a minute), and nothing after that. It
finds packages, PyTorch among them, where a pod mounts them (`training_packages`), and has their commands.
`operator` is what deploy/Containerfile describes, on top of `base`, and needs a package index once.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PAUSE_IMAGE = "trainwright.test/pause:1"
BASE_IMAGE = "trainwright.test/base:1"
OPERATOR_REPOSITORY = "trainwright.test/operator"

SUITE = "bookworm"
PYTHON_VERSION = "3.11"  # of that suite
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
# Where a pod of the base image mounts packages that are too many gigabytes for an image of its own.
PACKAGES_MOUNT = "/opt/packages"
_COMMANDS = {"torchrun": "torch.distributed.run", "accelerate": "accelerate.commands.accelerate_cli"}
_COMMAND = "#!/usr/bin/python3\nimport sys\n\nfrom {module} import main\n\nsys.exit(main())\n"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_FORMAT = "2"  # of layers and archives: counts in the hash
_PATH = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class ImageNotBuilt(Exception):
    """An image cannot be made on this machine."""


def get_cache_folder() -> Path:
    """Return where built images are kept; TRAINWRIGHT_CACHE chooses another place."""
    chosen = os.environ.get("TRAINWRIGHT_CACHE")
    if chosen:
        return Path(chosen) / "images"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwright" / "images"


def build_images() -> list[Path]:
    """Return the archives that a node starts with, made where they are not in the cache."""
    pause = _build_layer("pause", _PAUSE_SOURCE, _fill_pause)
    base = [
        _build_base(),
        _build_layer("commands", repr((PACKAGES_MOUNT, _COMMANDS, _COMMAND)), _fill_commands),
    ]
    return [
        _build_archive_once(PAUSE_IMAGE, [pause], {"Entrypoint": ["/pause"]}),
        _build_archive_once(BASE_IMAGE, base, {"Cmd": ["/usr/bin/python3"], "Env": [_PATH]}),
    ]


def build_debian_image(
    image: str,
    packages: Sequence[str],
    recipe: str,
    configure: Callable[[Path], None],
    env: Mapping[str, str] | None = None,
) -> Path:
    """Return the archive of a minimal Debian with these packages, from the cache where it is there.

    `configure` changes its files afterwards; `recipe` is another text where `configure` does something else.
    """

    def fill(root: Path) -> None:
        _fill_debian(root, packages)
        configure(root)

    layer = _build_layer("debian", repr((SUITE, *packages, recipe)), fill)
    variables = [_PATH, *(f"{name}={value}" for name, value in (env or {}).items())]
    return _build_archive_once(image, [layer], {"Cmd": ["/bin/sh"], "Env": variables})


def name_operator_image() -> str:
    """Return the image of the operator for the working tree as it is: another tree has another tag."""
    sources = sorted(path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix != ".pyc")
    files = [ROOT / "pyproject.toml", *sources]
    content = _hash(*(f"{path.relative_to(ROOT)} {_hash_file(path)}" for path in files))
    return f"{OPERATOR_REPOSITORY}:{content}"


def build_operator_image(folder: Path, image: str) -> Path:
    """Return the archive of an image of the operator, of the working tree as it is, made in `folder`."""
    packages = sorted(_list_requirements("trainwright", "operator"))
    layers = [
        _build_base(),
        _build_layer("packages", repr(packages), lambda root: _fill_packages(root, packages)),
        _build_own_layer(folder),
    ]
    config = {
        "Entrypoint": ["trainwright"],
        "Cmd": ["controller"],
        "User": "65532:65532",
        "WorkingDir": "/tmp",
        "Env": [
            f"PATH=/opt/trainwright/bin:{_PATH.removeprefix('PATH=')}",
            "PYTHONPATH=/opt/trainwright/lib",
            "PYTHONDONTWRITEBYTECODE=1",
            "PYTHONUNBUFFERED=1",
            "HOME=/tmp",
        ],
    }
    return _build_archive(folder / "operator.tar", image, layers, config)


def _build_layer(name: str, recipe: str, fill: Callable[[Path], None]) -> Path:
    """Return a tar of what `fill` puts into a folder, from the cache where the recipe is known."""
    content = _hash(_FORMAT, name, recipe, platform.machine())

    def build(work: Path) -> Path:
        root = work / "root"
        root.mkdir(mode=0o755)
        fill(root)
        return _pack(root, work / "layer.tar")

    return _build_once(f"{name}-{content}.layer", build)


def _build_archive_once(image: str, layers: Sequence[Path], config: dict[str, object]) -> Path:
    content = _hash(_FORMAT, image, repr(config), *(layer.name for layer in layers))
    return _build_once(
        f"{content}.image", lambda work: _build_archive(work / "image.tar", image, layers, config)
    )


def _build_once(name: str, build: Callable[[Path], Path]) -> Path:
    folder = get_cache_folder()
    target = folder / name
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as work:
                build(Path(work)).rename(target)
    return target


def _build_base() -> Path:
    return _build_layer("base", repr((SUITE, BASE_PACKAGES, _LEFT_OUT)), _fill_base)


def _fill_pause(root: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise ImageNotBuilt("no C compiler for the pause image: install gcc and libc6-dev")
    _run([compiler, "-static", "-Os", "-s", "-x", "c", "-", "-o", root / "pause"], "pause", _PAUSE_SOURCE)


def _fill_commands(root: Path) -> None:
    programs = root / "usr/local/bin"
    programs.mkdir(parents=True)
    # What images of Python have, and a Debian does not.
    (programs / "python").symlink_to("/usr/bin/python3")
    for name, module in _COMMANDS.items():
        (programs / name).write_text(_COMMAND.format(module=module))
        (programs / name).chmod(0o755)
    found_by_python = root / f"usr/local/lib/python{PYTHON_VERSION}/dist-packages"
    found_by_python.mkdir(parents=True)
    (found_by_python / "mounted.pth").write_text(f"{PACKAGES_MOUNT}\n")
    (root / PACKAGES_MOUNT.lstrip("/")).mkdir(parents=True)


def _fill_base(root: Path) -> None:
    _fill_debian(root, BASE_PACKAGES)


def _fill_debian(root: Path, packages: Sequence[str]) -> None:
    if shutil.which("debootstrap") is None:
        raise ImageNotBuilt("no debootstrap for images with programs: run scripts/system-packages")
    # debootstrap knows the mirror of its suites; the variable names another.
    mirror = os.environ.get("TRAINWRIGHT_DEBIAN_MIRROR")
    # In namespaces of its own: what it mounts is gone with it, also when it is killed.
    _run(
        [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("debootstrap", "--variant=minbase", f"--include={','.join(packages)}"),
            *(SUITE, root, *([mirror] if mirror else ())),
        ],
        "base",
    )


def _run(command: list[str | Path], image: str, text: str | None = None) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-1000:]
        raise ImageNotBuilt(f"the {image} image cannot be made: {command[0]} says: {said}")


def _list_requirements(name: str, *extras: str) -> set[str]:
    """Return what a package that is installed here needs in the image, and what those need: NAME==VERSION."""
    found: set[str] = set()
    for line in importlib.metadata.requires(name) or ():
        requirement = Requirement(line)
        environments = [{"python_version": PYTHON_VERSION, "extra": extra} for extra in (*extras, "")]
        if requirement.marker and not any(requirement.marker.evaluate(one) for one in environments):
            continue
        if requirement.name != name:
            version = importlib.metadata.version(requirement.name)
            found.add(f"{canonicalize_name(requirement.name)}=={version}")
        found |= _list_requirements(requirement.name, *requirement.extras)
    return found


def _fill_packages(root: Path, packages: Iterable[str]) -> None:
    target = root / "opt/trainwright/lib"
    _run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
            *("--target", target, "--no-deps", "--no-compile", "--only-binary=:all:"),
            *("--implementation", "cp", "--python-version", PYTHON_VERSION),
            *packages,
        ],
        "operator",
    )


def _build_own_layer(folder: Path) -> Path:
    """Return a layer with the wheel of the working tree and the command."""
    _run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"),
            *("--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT),
        ],
        "operator",
    )
    [wheel] = folder.glob("trainwright-*.whl")
    root = folder / "root"
    library, programs = root / "opt/trainwright/lib", root / "opt/trainwright/bin"
    programs.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(library)
    command = programs / "trainwright"
    command.write_text(
        "#!/usr/bin/python3\nimport sys\n\nfrom trainwright.cli import main\n\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    return _pack(root, folder / "own.layer")


def _pack(root: Path, target: Path) -> Path:
    with tarfile.open(target, "w") as tar:
        tar.add(root, arcname=".", filter=lambda member: None if member.name in _LEFT_OUT else member)
    return target


def _build_archive(target: Path, image: str, layers: Sequence[Path], config: dict[str, object]) -> Path:
    """Write a docker-archive of layers, lowest first."""
    digests = [_hash_file(layer) for layer in layers]
    document = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
    ).encode()
    config_name = hashlib.sha256(document).hexdigest() + ".json"
    names = [f"{digest}.tar" for digest in digests]
    manifest = json.dumps([{"Config": config_name, "RepoTags": [image], "Layers": names}]).encode()
    with tarfile.open(target, "w") as tar:
        for name, content in (("manifest.json", manifest), (config_name, document)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for name, layer in zip(names, layers, strict=True):
            tar.add(layer, arcname=name)
    return target


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
