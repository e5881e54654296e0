"""Packages as an installer leaves them in a folder: modules, and metadata in which entry points are found."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent / "data" / "framework-package"


def install_project(project: Path, target: Path) -> Path:
    """Install a project with `pyproject.toml` and `src`, without building it; return the folder."""
    settings = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    shutil.copytree(project / "src", target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    write_metadata(target, settings["name"], settings["version"], settings["entry-points"])
    return target


def write_metadata(target: Path, name: str, version: str, groups: dict[str, dict[str, str]]) -> Path:
    """Write the `dist-info` of a package; return the folder that it is in."""
    folder = target / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()), "")
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    return target
