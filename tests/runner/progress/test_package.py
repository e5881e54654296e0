from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import trainwright
from trainwright.runner.progress.package import build_python_path, path_for_jobs

SOURCE = Path(trainwright.__file__).parent.parent
ASK = """
import trainwright, trainwright.progress
print(trainwright.progress.__file__)
trainwright.progress.report(step=1, total=2, metrics={"loss": 0.5})
assert trainwright.progress.flush()
"""


def run_python(
    program: str, python_path: str, python: str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """Run without site-packages (-S): only PYTHONPATH and the standard library are there."""
    environment = {"PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}
    return subprocess.run(
        [python, "-S", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_python_without_trainwright_imports_progress_and_nothing_else(tmp_path: Path):
    folder = path_for_jobs(tmp_path)
    result = run_python(ASK, str(folder))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.strip() == str(folder / "trainwright" / "progress" / "__init__.py")
    assert "ModuleNotFoundError" in run_python("import trainwright.cli", str(folder)).stderr


def test_a_python_with_trainwright_keeps_its_own_whole_package(tmp_path: Path):
    python_path = f"{path_for_jobs(tmp_path)}{os.pathsep}{SOURCE}"
    result = run_python(ASK, python_path)
    assert result.stdout.strip() == str(SOURCE / "trainwright" / "progress" / "__init__.py")
    assert run_python("import trainwright; print(trainwright.__version__)", python_path).stdout.strip() == (
        trainwright.__version__
    )


def other_pythons() -> list[Path]:
    """Every Python that pyenv has here, from 3.9 on."""
    versions = Path.home() / ".pyenv" / "versions"
    numbers = [folder.name for folder in versions.glob("3.*.*") if int(folder.name.split(".")[1]) >= 9]
    return [versions / number / "bin" / "python3" for number in sorted(numbers)]


@pytest.mark.parametrize("python", other_pythons() or [Path(sys.executable)], ids=str)
def test_every_python_from_3_9_on_can_import_all_of_it(tmp_path: Path, python: Path):
    ask = ASK + "import trainwright.progress.endpoint"
    result = run_python(ask, str(path_for_jobs(tmp_path)), str(python))
    assert (result.returncode, result.stderr) == (0, "")


def test_the_copy_is_made_once_and_leaves_nothing_else(tmp_path: Path):
    first = path_for_jobs(tmp_path / "python")
    made = first.stat().st_ino
    assert path_for_jobs(tmp_path / "python") == first
    assert first.stat().st_ino == made
    assert list((tmp_path / "python").iterdir()) == [first]


def test_many_at_once_make_one_copy(tmp_path: Path):
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(path_for_jobs, [tmp_path] * 16))) == 1
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, "/state/x"), ({"PYTHONPATH": ""}, "/state/x"), ({"PYTHONPATH": "/a:/b"}, "/a:/b:/state/x")],
)
def test_the_users_own_python_path_comes_first(environment: dict[str, str], expected: str):
    assert build_python_path(environment, Path("/state/x")) == expected
