"""Runs the tests of this folder once more as a plain user, where this run is root's.

A user namespace takes the place of root's rights there, and every path has other permissions. The user
65534 may not look into root's home, where the interpreter and the packages may lie: a mount namespace of
its own shows just those to it, at their own paths.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PLAIN_USER = 65534
FILES = ("test_process.py", "test_containment.py", "test_torchrun.py")

# Hides each closed folder behind one that is open and has only what is needed.
LAUNCH = r"""
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


@pytest.mark.timeout(600)
def test_everything_holds_for_a_plain_user():
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED AS ROOT: this run is a plain user's already")
    tools = [tool for tool in ("unshare", "setpriv", "mount") if shutil.which(tool) is None]
    if tools:
        pytest.skip(f"NOT TESTED AS A PLAIN USER: no {', '.join(tools)}")
    packages = [path for path in sys.path if path and Path(path).is_dir()]
    needed = {Path(sys.base_prefix), Path(sys.prefix), *map(Path, packages), HERE}
    if training := os.environ.get("TRAINWRIGHT_TRAIN_ENV"):
        needed.add(Path(training))
    closed = sorted(
        {folder for path in needed for folder in path.resolve().parents if not folder.stat().st_mode & 1}
    )
    with tempfile.TemporaryDirectory(prefix="tw-plain-") as home:
        os.chown(home, PLAIN_USER, PLAIN_USER)
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
            "--rootdir", str(HERE.parents[2]), "-c", str(HERE.parents[2] / "pyproject.toml"),
            *(str(HERE / file) for file in FILES if (HERE / file).exists()),
        ]  # fmt: skip
        if len(closed) > 1:
            pytest.skip(f"NOT TESTED AS A PLAIN USER: {', '.join(map(str, closed))} are closed to it")
        if closed:
            below = [str(path.resolve()) for path in needed if path.resolve().is_relative_to(closed[0])]
            with tempfile.TemporaryDirectory(prefix="tw-stash-") as stash:
                command = [
                    "unshare", "--mount", "sh", "-c", LAUNCH, "sh",
                    stash, str(closed[0]), ":".join(below), *command,
                ]  # fmt: skip
                result = run(command, home, packages)
        else:
            setpriv = ["setpriv", "--reuid", str(PLAIN_USER), "--regid", str(PLAIN_USER), "--clear-groups"]
            result = run([*setpriv, *command], home, packages)
    if "unshare failed" in result.stderr:
        pytest.skip(f"NOT TESTED AS A PLAIN USER: {result.stderr.strip()}")
    print(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout


def run(command: list[str], home: str, packages: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "PYTHONPATH": os.pathsep.join(packages),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": f"{home}/hypothesis",
    }
    for name in ("TRAINWRIGHT_TRAIN_ENV", "CI"):
        if name in os.environ:
            environment[name] = os.environ[name]
    return subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, timeout=580, check=False
    )
