"""The Python of the caller's shell, found on a real file system with real interpreters."""

import os
import sys
from pathlib import Path

import pytest

from trainwright.cli.caller_python import CallerPython, find_caller_python, has_torch

NO_TORCH = "#!/bin/sh\nexit 9\n"  # answers the question "do you find torch?" as an interpreter without it
FINDS_TORCH = "#!/bin/sh\nexit 0\n"


def make_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def make_environment(root: Path, *, torch: bool) -> Path:
    """Make an environment as venv and pip leave it, with an interpreter that must not be started."""
    make_program(root / "bin" / "python", "#!/bin/sh\nexit 1\n")
    if torch:
        make_program(root / "bin" / "torchrun", "#!/bin/sh\n")
        package = root / "lib/python3.12/site-packages/torch"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
    return root


def test_an_active_environment_is_named_as_the_shell_would(tmp_path):
    active = make_environment(tmp_path / "env", torch=True)
    environment = {"VIRTUAL_ENV": str(active), "PATH": f"{active}/bin:/usr/bin"}
    assert find_caller_python(environment) == CallerPython(command=("python",), torchrun=("torchrun",))


def test_an_environment_that_is_not_first_on_path_is_named_by_its_path(tmp_path):
    active = make_environment(tmp_path / "env", torch=True)
    other = make_environment(tmp_path / "other", torch=False)
    environment = {"VIRTUAL_ENV": str(active), "PATH": f"{other}/bin"}
    assert find_caller_python(environment) == CallerPython(
        command=(f"{active}/bin/python",), torchrun=(f"{active}/bin/torchrun",)
    )


def test_without_an_environment_path_decides(tmp_path):
    found = make_environment(tmp_path / "env", torch=True)
    assert find_caller_python({"PATH": f"{found}/bin"}) == CallerPython(
        command=("python",), torchrun=("torchrun",)
    )


def test_a_stale_environment_variable_does_not_hide_what_is_on_path(tmp_path):
    found = make_environment(tmp_path / "env", torch=False)
    environment = {"VIRTUAL_ENV": str(tmp_path / "deleted"), "PATH": f"{found}/bin"}
    assert find_caller_python(environment) == CallerPython(command=("python",), torchrun=None)


def test_python3_does_where_there_is_no_python(tmp_path):
    make_program(tmp_path / "python3", NO_TORCH)
    assert find_caller_python({"PATH": str(tmp_path)}) == CallerPython(command=("python3",), torchrun=None)


def test_torch_without_its_launcher_is_started_as_a_module(tmp_path):
    make_program(tmp_path / "python3", FINDS_TORCH)
    assert find_caller_python({"PATH": str(tmp_path)}) == CallerPython(
        command=("python3",), torchrun=("python3", "-m", "torch.distributed.run")
    )


def test_a_launcher_of_another_interpreter_is_used_where_python_has_no_torch(tmp_path):
    make_program(tmp_path / "first" / "python", NO_TORCH)
    make_program(tmp_path / "second" / "torchrun", "#!/bin/sh\n")
    environment = {"PATH": f"{tmp_path}/first:{tmp_path}/second"}
    assert find_caller_python(environment) == CallerPython(command=("python",), torchrun=("torchrun",))


def test_a_launcher_beside_a_python_that_has_no_torch_is_a_shim_and_not_believed(tmp_path):
    make_program(tmp_path / "python", NO_TORCH)
    make_program(tmp_path / "torchrun", "#!/bin/sh\n")
    assert find_caller_python({"PATH": str(tmp_path)}) == CallerPython(command=("python",), torchrun=None)


def test_no_python_at_all_is_an_answer(tmp_path):
    assert find_caller_python({"PATH": str(tmp_path)}) is None


@pytest.mark.parametrize("text", ["#!/no/such/interpreter\n", "#!/bin/sh\nkill -9 $$\n"])
def test_an_interpreter_that_does_not_work_has_no_torch(tmp_path, text):
    assert not has_torch(make_program(tmp_path / "bin" / "python", text), {})


def test_a_real_interpreter_is_asked_without_importing_torch(tmp_path):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    python = Path(sys.executable)
    assert has_torch(python, {**os.environ, "PYTHONPATH": str(tmp_path)})
