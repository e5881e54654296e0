"""Makes `from trainwright.progress import report` work in a job whose Python does not have trainwright.

Jobs run with the user's environment, not with ours, so the folder of `trainwright.progress` is copied into
one that goes on PYTHONPATH. The copy is a namespace package: it has no `trainwright/__init__.py`. Python then
prefers a real `trainwright` anywhere later on its path, so an environment that has the package keeps all of
its own version, and one without it gets this part alone. A copy rather than a link: it can be mounted into a
container, and an upgrade does not change it under a running job.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import trainwright.progress

PYTHON_PATH_ENV = "PYTHONPATH"


def path_for_jobs(folder: Path) -> Path:
    """Return the folder to put on PYTHONPATH, below `folder`; made once per content, whole or not at all."""
    sources = read_sources()
    digest = hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()[:12]
    target = folder / digest
    if target.is_dir():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{digest}.", dir=folder))
    try:
        making.chmod(0o755)  # containers may run as another user
        package = making / "trainwright" / "progress"
        package.mkdir(parents=True)
        for name, content in sources.items():
            (package / name).write_bytes(content)
        try:
            making.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was faster
                raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return target


def build_python_path(environment: Mapping[str, str], path: Path) -> str:
    """Return the PYTHONPATH of a job: what its environment has, then `path`."""
    own = environment.get(PYTHON_PATH_ENV)
    return f"{own}{os.pathsep}{path}" if own else str(path)


def read_sources() -> dict[str, bytes]:
    """Return the files of `trainwright.progress`, by name."""
    paths = sorted(Path(trainwright.progress.__file__).parent.glob("*.py"))
    return {path.name: path.read_bytes() for path in paths}
