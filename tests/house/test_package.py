"""What is packed, and that public names are as they are said to be."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import trainwright

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_wheel_holds_everything_that_is_read_at_run_time(tmp_path: Path):
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
        timeout=100,
    )
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/trainwright").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources <= names


def list_packages() -> list[str]:
    return [info.name for info in pkgutil.walk_packages(trainwright.__path__, "trainwright.") if info.ispkg]


@pytest.mark.parametrize("name", list_packages())
def test_a_package_exports_what_it_says(name: str):
    module = importlib.import_module(name)
    assert [one for one in getattr(module, "__all__", ()) if not hasattr(module, one)] == []


def test_importing_the_package_loads_nothing_heavy():
    heavy = "asyncio aiohttp yaml msgspec typer rich sqlite3 structlog"
    code = f"import trainwright, sys; print([m for m in {heavy.split()!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert ran.stdout.strip() == "[]"
