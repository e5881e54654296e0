"""Which packages pods get: those of the Python in the image, whatever Python this machine has."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube.images import PYTHON_VERSION
from kube.training_packages import find_training_packages, install_once, select_requirements

REQUIREMENTS = """\
# made by a tool
numpy==2.4.6 ; python_version < '3.12' \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via -r train.in
numpy==2.5.1 ; python_version >= '3.12' \\
    --hash=sha256:cc
pywin32==1 ; sys_platform == 'win32' \\
    --hash=sha256:dd
nvidia-nvtx==13.2 ; (python_version < '3.14' or sys_platform == 'win32') and sys_platform == 'linux' \\
    --hash=sha256:ee
fsspec[http]==2026.4 \\
    --hash=sha256:ff
"""


def test_requirements_of_another_python_or_system_are_left_out():
    assert list(select_requirements(REQUIREMENTS)) == [
        "numpy==2.4.6 --hash=sha256:aa --hash=sha256:bb",
        "nvidia-nvtx==13.2 --hash=sha256:ee",
        "fsspec[http]==2026.4 --hash=sha256:ff",
    ]


def test_an_environment_made_for_the_python_of_the_image_is_used_as_it_is(tmp_path: Path):
    packages = tmp_path / f"lib/python{PYTHON_VERSION}/site-packages"
    packages.mkdir(parents=True)
    (tmp_path / ".complete").touch()
    assert find_training_packages(tmp_path) == packages


@pytest.mark.parametrize(
    "made", ["lib/python3.13/site-packages", f"lib/python{PYTHON_VERSION}/site-packages"]
)
def test_for_any_other_python_the_packages_are_unpacked_once(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The second environment is of the right Python, but came with the machine."""
    (tmp_path / "env" / made).mkdir(parents=True)
    if "3.13" in made:
        (tmp_path / "env/.complete").touch()
    nothing = tmp_path / "train.txt"
    nothing.write_text("# nothing\n")
    monkeypatch.setenv("TRAINWRIGHT_CACHE", str(tmp_path / "cache"))

    packages = find_training_packages(tmp_path / "env", nothing)

    assert packages.is_dir()
    assert packages.parent == tmp_path / "cache/images"
    made_at = packages.stat().st_ctime_ns
    assert find_training_packages(tmp_path / "env", nothing) == packages
    assert packages.stat().st_ctime_ns == made_at
    assert install_once("a==1 ; sys_platform == 'win32'") == packages
