"""The Python that the caller's scripts run with: that of the caller's shell, not the one that runs this
program.

It is `$VIRTUAL_ENV/bin/python`, else `python` and then `python3` on PATH. Commands name it as the shell would
(`python`, `torchrun`), so that a TrainJob made here reads the same elsewhere, and by its path only where PATH
would give another one.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

_PROBE = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('torch') else 9)"
_HAS_NO_TORCH = 9
_PROBE_SECONDS = 30


class CallerPython(msgspec.Struct, frozen=True, kw_only=True):
    """What a script can be started with.

    `command` starts the interpreter, `torchrun` the launcher of torch; the latter is None where torch cannot
    be
    imported. Both are lists of words.
    """

    command: tuple[str, ...]
    torchrun: tuple[str, ...] | None


def find_caller_python(environment: Mapping[str, str]) -> CallerPython | None:
    """Return the caller's Python, None where there is none. May start it, to ask whether it has torch."""
    path = environment.get("PATH")
    python = _find_interpreter(environment, path)
    if python is None:
        return None
    command = (_name_as_on_path(python, path),)
    beside = python.with_name("torchrun")
    if beside.is_file() and has_torch(python, environment):
        return CallerPython(command=command, torchrun=(_name_as_on_path(beside, path),))
    if has_torch(python, environment):
        return CallerPython(command=command, torchrun=(*command, "-m", "torch.distributed.run"))
    if torchrun := shutil.which(
        "torchrun", path=path
    ):  # belongs to another interpreter, which then has torch
        shims = Path(torchrun).parent == python.parent
        return CallerPython(command=command, torchrun=None if shims else ("torchrun",))
    return CallerPython(command=command, torchrun=None)


def has_torch(python: Path, environment: Mapping[str, str]) -> bool:
    """Say whether this interpreter finds torch, without importing it.

    Looks for the folder in an ordinary installation first (no process); asks the interpreter otherwise, which
    knows about `.pth` files, PYTHONPATH and user installations.
    """
    prefix = python.parent.parent
    if any(prefix.glob("lib/python3.*/site-packages/torch/__init__.py")):
        return True
    try:
        answer = subprocess.run(
            [python, "-c", _PROBE],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0


def _find_interpreter(environment: Mapping[str, str], path: str | None) -> Path | None:
    if chosen := environment.get("VIRTUAL_ENV"):
        python = Path(chosen) / "bin" / "python"
        if python.is_file():
            return python
    for name in ("python", "python3"):
        if found := shutil.which(name, path=path):
            return Path(found)
    return None


def _name_as_on_path(program: Path, path: str | None) -> str:
    found = shutil.which(program.name, path=path)
    return program.name if found and Path(found) == program else str(program)
