"""Runs tests once more as a plain user, where this run is root's.

The user 65534 may not look into root's home, where the interpreter and the packages may lie: a mount
namespace of its own shows just those to it, at their own paths.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

PLAIN_USER = 65534
_ROOT = Path(__file__).parents[2]
# Handed on where they are set.
_ENVIRONMENTS = (
    "TRAINWRIGHT_TRAIN_ENV",
    "TRAINWRIGHT_OPENMPI_ENV",
    "TRAINWRIGHT_MPICH_ENV",
    "TRAINWRIGHT_INTEL_MPI_ENV",
)
_HANDED_ON = (*_ENVIRONMENTS, "CI")

# Hides the closed folder behind one that is open and has only what is needed.
_LAUNCH = r"""
set -e
mount --make-rprivate /
stash=$1 closed=$2 needed=$3; shift 3
mkdir $stash/old
mount --bind "$closed" $stash/old
mount -t tmpfs -o mode=755 tmpfs "$closed"
old_ifs=$IFS; IFS=:
for path in $needed; do
  mkdir -p "$path"
  mount --bind "$stash/old/${path#"$closed"/}" "$path"
done
IFS=$old_ifs
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"""


def run_tests_as_plain_user(files: Sequence[Path], *, expression: str = "", seconds: float = 280) -> None:
    """Run the tests of these files that the expression (pytest's -k) selects; all of them must pass."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED AS ROOT: this run is a plain user's already")
    if missing := [tool for tool in ("unshare", "setpriv", "mount") if shutil.which(tool) is None]:
        pytest.skip(f"NOT TESTED AS A PLAIN USER: no {', '.join(missing)}")
    packages = [path for path in sys.path if path and Path(path).is_dir()]
    needed = {
        Path(sys.base_prefix).resolve(),
        Path(sys.prefix).resolve(),
        *(Path(p).resolve() for p in packages),
        *(Path(file).resolve().parent for file in files),
    }
    needed |= {Path(os.environ[name]).resolve() for name in _ENVIRONMENTS if os.environ.get(name)}
    closed = sorted({folder for path in needed for folder in path.parents if not folder.stat().st_mode & 1})
    if len(closed) > 1:
        pytest.skip(f"NOT TESTED AS A PLAIN USER: {', '.join(map(str, closed))} are closed to it")
    with tempfile.TemporaryDirectory(prefix="tw-plain-") as home, tempfile.TemporaryDirectory() as stash:
        os.chown(home, PLAIN_USER, PLAIN_USER)
        command = [
            sys.executable,
            *("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", expression),
            *("--rootdir", str(_ROOT), "-c", str(_ROOT / "pyproject.toml"), "--basetemp", f"{home}/tests"),
            *map(str, files),
        ]
        if closed:
            below = ":".join(str(path) for path in needed if path.is_relative_to(closed[0]))
            command = [
                "unshare",
                "--mount",
                "sh",
                "-c",
                _LAUNCH,
                "sh",
                stash,
                str(closed[0]),
                below,
                *command,
            ]
        else:
            user = str(PLAIN_USER)
            command = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *command]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "PYTHONPATH": os.pathsep.join(packages),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": f"{home}/hypothesis",
            **{name: os.environ[name] for name in _HANDED_ON if name in os.environ},
        }
        result = subprocess.run(
            command, env=environment, cwd=home, capture_output=True, text=True, timeout=seconds, check=False
        )
    if "unshare failed" in result.stderr:
        pytest.skip(f"NOT TESTED AS A PLAIN USER: {result.stderr.strip()}")
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout, result.stdout
